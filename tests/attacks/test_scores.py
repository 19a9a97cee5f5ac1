"""Scores against slow and obvious versions, written from the papers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from sordino.attacks.membership import basic, lira, quantile, rmia
from sordino.attacks.membership.ml_leaks import balanced
from sordino.errors import BadInput


def recorded(models: int, records: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-odds of a target, of reference models, and who was in."""
    rng = np.random.Generator(np.random.PCG64(seed))
    inside = np.zeros((models, records), bool)
    for k in range(0, models, 2):
        inside[k, rng.permutation(records)[: records // 2]] = True
        inside[k + 1] = ~inside[k]
    hard = rng.normal(size=records) * 2
    known = hard + 2 * inside + rng.normal(size=(models, records))
    return hard + rng.normal(size=records) + (rng.random(records) < 0.5), known, inside


def slow_normal(values: list[float], everyone: list[list[float]], enough: bool) -> tuple[float, float]:
    if enough:
        return float(np.median(values)), float(np.std(values))
    squares = sum((v - np.mean(each)) ** 2 for each in everyone for v in each)
    return float(np.median(values)), float(np.sqrt(squares / sum(len(each) - 1 for each in everyone)))


@pytest.mark.parametrize("models", [4, 10, 64])
def test_lira_agrees_with_an_independent_version(models):
    phi, known, inside = recorded(models)
    enough = models // 2 >= lira.ENOUGH
    ins = [[known[k, i] for k in range(models) if inside[k, i]] for i in range(len(phi))]
    outs = [[known[k, i] for k in range(models) if not inside[k, i]] for i in range(len(phi))]
    ratios, tails = [], []
    for i, value in enumerate(phi):
        mean_in, std_in = slow_normal(ins[i], ins, enough)
        mean_out, std_out = slow_normal(outs[i], outs, enough)
        ratios.append(norm.logpdf(value, mean_in, std_in) - norm.logpdf(value, mean_out, std_out))
        tails.append(1 - norm.sf(value, mean_out, std_out))
    assert np.abs(lira.online(phi, known, inside) - ratios).max() < 1e-9
    assert np.abs(norm.cdf(lira.offline(phi, known, inside)) - tails).max() < 1e-9


def test_offline_lira_is_one_sided():
    """An answer far *below* what non-members get is no sign of membership, though its density is as small."""
    known = np.tile(np.array([[-1.0], [0.0], [0.5], [1.0]]), (1, 3)) + np.array([0.0, 0.1, 0.2])
    scores = lira.offline(np.array([-9.0, 0.1, 9.0]), known, np.zeros((4, 3), bool))
    assert scores[0] < scores[1] < scores[2]


def test_lira_needs_a_model_on_either_side():
    with pytest.raises(BadInput, match="train at least 2"):
        lira.online(np.zeros(3), np.zeros((1, 3)), np.ones((1, 3), bool))
    with np.errstate(all="raise"):
        assert np.isfinite(lira.online(*recorded(2))).all()
        same = np.zeros((4, 5)), np.array([[1] * 5, [0] * 5, [1] * 5, [0] * 5], bool)
        assert np.isfinite(lira.online(np.ones(5), *same)).all()  # equal models


@pytest.mark.parametrize("gamma", [1.0, 1.5])
def test_rmia_agrees_with_an_independent_version(gamma):
    rng = np.random.Generator(np.random.PCG64(1))
    p, known, inside = rng.random(30), rng.random((4, 30)), recorded(4, 30)[2]
    z, known_z, a = rng.random(50), rng.random((4, 50)), 0.3
    expected = []
    for i in range(30):
        out = np.mean([known[k, i] for k in range(4) if not inside[k, i]])
        ratio = p[i] / (((1 + a) * out + (1 - a)) / 2)
        beaten = 0
        for j in range(50):
            beaten += ratio / (z[j] / (((1 + a) * known_z[:, j].mean() + (1 - a)) / 2)) > gamma
        expected.append(beaten)
    scores = rmia.score(p, rmia.mean_out(known, inside), z, known_z.mean(0), a, gamma)
    assert np.array_equal(np.floor(scores * 51 + 1e-12), expected)


def test_rmia_orders_records_of_equal_share_by_their_ratio():
    scores = rmia.score(np.array([0.9, 0.99]), np.full(2, 0.5), np.full(20, 0.01), np.full(20, 0.5), 0.3)
    assert scores[0] < scores[1] <= 1


def test_thresholds_of_classes_and_where_too_little_is_known():
    values = np.r_[
        np.linspace(5, 6, 20), np.linspace(3, 4, 20), np.linspace(1, 2, 20), np.linspace(-1, 0, 20), 9.0, 8.0
    ]
    members = np.r_[np.ones(20), np.zeros(20), np.ones(20), np.zeros(20), 1, 0].astype(bool)
    labels = np.r_[np.zeros(40), np.ones(40), 2, 2].astype(int)
    found = basic.thresholds(values, members, labels, 3, common=-7.0)
    assert 4 < found[0] < 5 and 0 < found[1] < 1 and found[2] == -7.0


def test_pinball_loss_is_least_at_the_quantiles():
    import torch

    rng = np.random.Generator(np.random.PCG64(0))
    targets = torch.from_numpy(rng.normal(size=4000).astype(np.float32))
    true = torch.from_numpy(norm.ppf(np.clip(quantile.LEVELS, 1e-9, 1)).astype(np.float32)).clamp(-4, 4)
    at_true = quantile.pinball_loss(true.expand(4000, -1), targets)
    for shift in (-0.3, 0.3):
        assert quantile.pinball_loss((true + shift).expand(4000, -1), targets) > at_true
    assert len(quantile.LEVELS) == 41 and quantile.LEVELS[0] == pytest.approx(1 - 1e-4) and quantile.LEVELS[-1] == 0


def test_normal_loss_is_least_at_mean_and_deviation():
    import torch

    rng = np.random.Generator(np.random.PCG64(0))
    targets = torch.from_numpy((3 + 2 * rng.normal(size=4000)).astype(np.float32))

    def at(mean: float, std: float) -> float:
        return float(quantile.normal_loss(torch.tensor([[mean, np.log(std)]]).expand(4000, -1), targets))

    best = at(3, 2)
    assert all(at(*other) > best for other in ((2.7, 2), (3.3, 2), (3, 4 / 3), (3, 3)))


def test_pinball_scores_grow_with_the_margin():
    told = np.tile(norm.ppf(np.clip(quantile.LEVELS, 1e-6, 1)), (7, 1))
    seen = np.array([-9.0, -1.0, 0.0, 1.0, 3.0, 5.0, 6.0])
    scores = quantile.pinball_scores(seen, told)
    assert (np.diff(scores) > 0).all() and scores[2] == pytest.approx(0.5, abs=0.1)


def test_balanced_takes_as_many_of_either_side():
    inside = np.r_[np.ones(7, bool), np.zeros(20, bool)]
    some = balanced(inside, np.random.Generator(np.random.PCG64(0)))
    assert inside[some].sum() == 7 and len(some) == len(set(some)) == 14
