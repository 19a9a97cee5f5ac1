"""FedMAP's rule: what a step is asked, and the paper's own accountant by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sordino.errors import BadInput
from sordino.methods import method
from sordino.privacy import rdp
from sordino.privacy.bounds import Flat
from sordino.rules.base import RoundOutput
from sordino.rules.query import Answer, CentredBit
from sordino.schemes.fedmap.rule import ORDERS, FedMap, PrintedLedger


def test_a_step_is_asked_for_a_count():
    rule = FedMap(2.0, share=0.1)
    assert rule.query(rule.init()).with_sum == CentredBit(0.1) and rule.bound(rule.init(), None) == Flat(2.0)
    mean = np.array([3.0, 4.0])
    seen = RoundOutput(1, Flat(2.0), Answer(np.array([-12.0]), 40, 2.0), mean, 0.5)
    state = rule.observe(rule.init(), seen)
    assert state["within"] == pytest.approx(0.5 - 12 / 40) and state["noise"] == pytest.approx(0.05)
    assert state["signal"] == pytest.approx(25 / (2 * 0.25) - 1)


def test_published_asks_for_nothing_for_it_takes_what_it_wants():
    assert FedMap(raw=True).query({}) == (None, None)


def test_bad_weights_are_refused():
    for bad in ({"lam": -1.0}, {"beta": math.nan}, {"tune": -0.1}, {"share": 1.0}):
        with pytest.raises(BadInput):
            FedMap(**bad)


def test_the_printed_ledger_by_hand():
    """Two clients, sigma 2 and 0.5 at q = 0.1; the second one pays sixteen times as much."""
    book = PrintedLedger(3, 0.1, 1e-5)
    for _ in range(15):
        book.charge(np.array([0, 2]), np.array([2.0, 0.5]))
    assert not book.rho[1].any()
    for client, sigma in ((0, 2.0), (2, 0.5)):
        assert book.rho[client] == pytest.approx(15 * ORDERS * 0.01 / (2 * sigma**2), rel=0.02)
    expected = min(15 * a * 0.01 / (2 * 0.25) + math.log(1e5) / (a - 1) for a in ORDERS)
    assert book.epsilon() == pytest.approx(expected, rel=0.01)


def test_nothing_charged_nothing_claimed():
    assert PrintedLedger(3, 0.1, 1e-5).epsilon() == 0.0


def test_what_is_printed_is_less_than_what_holds():
    """The paper's participation rate 0.3 on SVHN: its formula says 27.6 for sigma 0.91; the true figure is higher."""
    book = PrintedLedger(1, 0.3, 1e-5)
    for _ in range(150):
        book.charge(np.array([0]), np.array([0.91]))
    true = rdp.epsilon_of(150 * rdp.poisson_gaussian(rdp.ORDERS, 0.3, 0.91), 1e-5)
    assert 25 < book.epsilon() < 29 and true > 1.25 * book.epsilon()


def test_all_reasons_are_told():
    told = method("fedmap").reasons
    assert len(told) == 14
    for word in ("expansion", "sensitivity", "clipped", "noisy step for each batch", "who takes part", "raw gradients", "sends its sigma",
                 "filter", "weighted", "gradient is zero", "seed 42", "pre-trained"):  # fmt: skip
        assert sum(word in reason for reason in told) >= 1, word
