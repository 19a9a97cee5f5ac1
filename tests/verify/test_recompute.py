"""Epsilon by dp-accounting alone: by hand, against a slow way, and independent of the accountant that prints."""

from __future__ import annotations

import ast
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import sordino.verify
from sordino.privacy import accounting, events
from sordino.verify.epsilon import _most_exposed
from sordino.verify.recompute import MANY, Leaf, leaves, recompute
from sordino.verify.verdict import Broken


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The slow way: integrate max(0, p - e^epsilon q) for N(mu, 1) against N(0, 1) on a fine grid."""
    x = np.linspace(-40, 40, 4_000_001)
    p, q = (np.exp(-((x - m) ** 2) / 2) / math.sqrt(2 * math.pi) for m in (mu, 0.0))
    return float(np.maximum(0.0, p - math.exp(epsilon) * q).sum() * (x[1] - x[0]))


@pytest.mark.parametrize(("relation", "mu"), [("add-remove", 1.0), ("zero-out", 1.0), ("replace-one", 2.0)])
def test_unsampled_gaussians_are_one_gaussian(relation, mu):
    """Sixteen releases of multiplier 4 are one of multiplier 1; replacing a unit moves the sum twice as far."""
    found = recompute(Counter({Leaf("gaussian", 4.0): 16}), 1e-5, relation, 5.0)
    assert found.accountant == "gaussian" and gaussian_delta(mu, found.epsilon) == pytest.approx(1e-5, rel=1e-3)


def test_one_sampled_gaussian_by_integration():
    """Poisson rate 0.3, add-remove: the pair (1-q) N(0) + q N(1) against N(0), both ways round."""
    q, z, delta = 0.3, 1.0, 1e-3
    found = recompute(Counter({Leaf("gaussian", z, "poisson", q): 1}), delta, "add-remove", 1.0)
    x = np.linspace(-40, 40, 4_000_001)
    base, moved = (np.exp(-((x - m) ** 2) / 2) / math.sqrt(2 * math.pi) for m in (0.0, 1.0))
    mixed, step = (1 - q) * base + q * moved, x[1] - x[0]
    both = [np.maximum(0.0, a - math.exp(found.epsilon) * b).sum() * step for a, b in ((mixed, base), (base, mixed))]
    assert found.accountant == "pld" and max(both) == pytest.approx(delta, rel=2e-3)


@pytest.mark.parametrize("relation", ["add-remove", "zero-out", "replace-one"])
@pytest.mark.parametrize("event", ["poisson", "gaussian", "laplace", "poisson-laplace", "fixed"])
def test_two_accountants_that_share_nothing_agree(relation, event):
    made = {
        "poisson": events.poisson(0.1, events.gaussian(1.2)),
        "gaussian": events.gaussian(5.0),
        "laplace": events.laplace(8.0),
        "poisson-laplace": events.poisson(0.1, events.laplace(2.0)),
        "fixed": events.without_replacement(100, 10, events.gaussian(3.0)),
    }[event]
    if (event, relation) == ("fixed", "add-remove"):
        return  # not proven by anyone here
    ours = accounting.epsilon(events.repeated(made, 20), 1e-5, relation)
    found = recompute(leaves(events.to_json(events.repeated(made, 20))), 1e-5, relation, ours.epsilon)
    if (event, relation) == ("poisson-laplace", "replace-one"):
        assert found.epsilon is None and 0 < found.at_least <= ours.epsilon
    elif event == "fixed":
        assert found.accountant == "rdp" and found.epsilon == pytest.approx(ours.epsilon, rel=1e-2)
        assert found.at_least < ours.epsilon and "no loss distribution" in found.why
    else:
        assert found.tight and found.epsilon == pytest.approx(ours.epsilon, rel=1e-3)


def test_noise_that_is_too_small_is_not_confirmed():
    """Both ways: two thirds and three halves of the noise are told apart from it."""
    epsilons = [
        recompute(Counter({Leaf("gaussian", z, "poisson", 0.1): 50}), 1e-5, "add-remove", 4.0).epsilon
        for z in (2 / 3, 1.0, 1.5)
    ]
    assert epsilons[0] > 1.3 * epsilons[1] > 1.3 * 1.3 * epsilons[2]


def test_queries_on_one_sample_are_one_gaussian():
    both = {
        "kind": "composed",
        "events": [{"kind": "gaussian", "multiplier": 3.0}, {"kind": "gaussian", "multiplier": 4.0}],
    }
    (leaf,) = leaves({"kind": "poisson", "rate": 0.5, "event": both})
    assert leaf.multiplier == pytest.approx(2.4) and (leaf.sampling, leaf.rate) == ("poisson", 0.5)


def test_leaves_are_counted():
    local = {
        "kind": "repeated",
        "count": 3,
        "event": {"kind": "poisson", "rate": 0.5, "event": {"kind": "gaussian", "multiplier": 1.0}},
    }
    assert leaves({"kind": "repeated", "count": 2, "event": local}) == Counter(
        {Leaf("gaussian", 1.0, "poisson", 0.5): 6}
    )
    assert leaves({"kind": "composed", "events": [local, {"kind": "nonprivate", "reason": "r"}]}) is None
    assert leaves({"kind": "nothing"}) == Counter()
    assert leaves({"kind": "zcdp", "rho": 0.5, "xi": 0.0}) == Counter({Leaf("zcdp", 1.0): 1})


@pytest.mark.parametrize(
    "row",
    [
        {"kind": "gaussian"},
        {"kind": "gaussian", "multiplier": True},
        {"kind": "gaussian", "multiplier": math.inf},
        {"kind": "poisson", "rate": 1.5, "event": {"kind": "gaussian", "multiplier": 1.0}},
        {"kind": "poisson", "rate": 0.5},
        {"kind": "poisson", "rate": 0.5, "event": {"kind": "poisson", "rate": 0.5, "event": {"kind": "gaussian", "multiplier": 1.0}}},
        {"kind": "without-replacement", "population": 3, "cohort": 4, "event": {"kind": "gaussian", "multiplier": 1.0}},
        {"kind": "repeated", "count": 1.5, "event": {"kind": "nothing"}},
        {"kind": "composed", "events": 3},
        {"kind": "zcdp", "rho": 0.5, "xi": 0.1},
    ],
)  # fmt: skip
def test_events_that_are_no_events_are_refused(row):
    with pytest.raises(Broken, match="ledger.jsonl"):
        leaves(row)


def test_the_costliest_rounds_of_an_uneven_schedule_count():
    rounds = [Counter({Leaf("gaussian", z): 1}) for z in (3.0, 1.0, 2.0, 4.0)]
    total, said = _most_exposed(rounds, 2)
    assert total == Counter({Leaf("gaussian", 1.0): 1, Leaf("gaussian", 2.0): 1}) and "2 costliest of 4" in said
    assert _most_exposed(rounds, 4)[0].total() == _most_exposed(rounds, None)[0].total() == 4
    mixed = [*rounds, Counter({Leaf("laplace", 9.0): 1})]
    assert _most_exposed(mixed, 2)[0].total() == 5  # which of them cost most is not known: all count


def test_a_long_uneven_schedule_is_left_for_later_on_request():
    total = Counter({Leaf("gaussian", 1 + i / 100, "poisson", 0.01): 1 for i in range(MANY + 1)})
    found = recompute(total, 1e-5, "add-remove", 1.0, thorough=False)
    assert found.epsilon is None and "run sordino verify" in found.why
    whole = recompute(total, 1e-5, "add-remove", 0.5)
    ours = accounting.epsilon(
        events.composed([events.poisson(0.01, events.gaussian(1 + i / 100)) for i in range(MANY + 1)]), 1e-5
    )
    assert whole.epsilon == pytest.approx(ours.epsilon, rel=3e-3)


def test_no_code_is_shared_with_the_ledger_and_the_accountant():
    """Of the privacy rooms only the words are used."""
    for file in Path(sordino.verify.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sordino.privacy"):
                assert node.module == "sordino.privacy.vocabulary", file
            assert not (isinstance(node, ast.Import) and any("sordino.privacy" in one.name for one in node.names)), file
