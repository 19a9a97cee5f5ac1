"""Clients that take turns, under noise that is correlated over rounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from sordino import Plan, train
from sordino.callbacks import Callback
from sordino.errors import BadInput
from sordino.federation.population import Federation
from sordino.federation.sampling import Draws
from sordino.federation.sizes import PublicSizes
from sordino.privacy import events
from sordino.schemes import settle
from sordino.schemes.client import Client
from sordino.schemes.turns import Turns
from sordino.verify.checking import check

ROUNDS = 10


def plan(**settings):
    usual = {
        "clients": 24,
        "cohort": 4,
        "method": "dp-bandmf",
        "unit": "client",
        "observer": "public",
        "multiplier": 2.0,
    }
    usual |= {"rounds": ROUNDS, "options": {"bands": 3}, "batch_size": 4, "lr": 0.1, "data": "toy"}
    return Plan(**(usual | settings))


def toy(clients=24):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((clients, 4, 5)).astype(np.float32)
    return Federation.from_arrays(
        [(one, (one[:, 0] > 0).astype(int)) for one in x], (x[0], (x[0, :, 0] > 0).astype(int))
    )


def model():
    torch.manual_seed(0)
    return nn.Linear(5, 2)


def test_nobody_takes_part_before_it_is_its_turn_again():
    wanted = plan(rounds=200)
    last: dict[int, int] = {}
    draws, taken = Draws(wanted), np.zeros(24)
    for t in range(1, 201):
        for k in draws.cohort(t):
            assert t - last.get(k, -9) >= 3 and (t - last.get(k, t)) % 3 == 0
            last[k] = t
            taken[k] += 1
    assert wanted.scheme.turn_rate == 0.5 and taken.max() <= 67
    assert 0.4 < taken.mean() / (200 / 3) < 0.6  # the coin is the one that is charged
    groups = [wanted.scheme.turn(t) for t in (1, 2, 3)]
    assert sorted(np.concatenate(groups)) == list(range(24))


def test_a_client_is_charged_for_its_turns():
    terms = settle(plan(), PublicSizes(24, 4))
    assert terms.exposures == 4  # ceil(10 / 3)
    assert terms.total == events.composed([events.repeated(events.poisson(0.5, events.gaussian(2.0)), 4)])
    everyone = settle(plan(cohort=8), PublicSizes(24, 4))
    assert everyone.round_event(1) == events.gaussian(2.0)


def test_one_band_is_independent_noise():
    one = plan(options={"bands": 1})
    usual = plan(method="dp-fedavg", options={})
    assert isinstance(one.scheme, Turns) and type(usual.scheme) is Client
    sizes = PublicSizes(24, 4)
    assert settle(one, sizes).total == settle(usual, sizes).total
    assert one.scheme.turn(1) is None


def test_bands_follow_from_the_plan_where_they_are_not_given():
    assert plan(options={}).scheme.separation == 6
    assert plan(options={}, rounds=2).scheme.separation == 2
    assert plan(options={}, sampling="fixed").scheme.separation == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"options": {"bands": 7}}, "at most 6 bands"),
        ({"options": {"bands": 2.5}}, "whole number"),
        ({"options": {"bands": 0}}, "bands"),
        ({"sampling": "fixed"}, "poisson"),
        ({"server_optimizer": "adam"}, "adam"),
        ({"lr_schedule": "decay"}, "constant"),
        ({"relation": "replace-one"}, "zero-out"),
        ({"observer": "server"}, "observer server"),
        ({"unit": "example"}, "example unit"),
        ({"options": {"tau": 0.5}}, "no option"),
    ],
)
def test_bad_input(settings, said):
    with pytest.raises(BadInput, match=said):
        plan(**settings)


class Stop(Callback):
    def __init__(self, after):
        self.after = after

    def on_round(self, run):
        if run.state.round == self.after:
            raise KeyboardInterrupt


def test_a_seeded_run_resumes_to_the_same_bits(tmp_path):
    whole = train(model(), toy(), plan(), out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(model(), toy(), plan(), out=tmp_path / "cut", callbacks=[Stop(4)])
    resumed = train(model(), toy(), plan(), out=tmp_path / "cut", resume=True)
    for one, other in zip(whole.model.parameters(), resumed.model.parameters()):
        assert torch.equal(one, other)
    for folder in ("whole", "cut"):
        assert all(one.ok is not False for one in check(tmp_path / folder).checks)
    text = whole.statement.text()
    assert "take turns" in text and "one round of 3" in " ".join(text.split())
