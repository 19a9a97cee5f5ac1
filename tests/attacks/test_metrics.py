"""Metrics against scikit-learn, brute force and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score, roc_curve

from sordino.attacks import metrics
from sordino.errors import BadInput


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def recorded(seed: int, members: int = 700, others: int = 1300, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Scores as an attack records them."""
    r = rng(seed)
    labels = r.permutation(np.arange(members + others) < members)
    scores = r.normal(size=labels.size) + labels
    return np.round(scores, 1) if ties else scores, labels


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_auc_and_found_agree_with_scikit_learn(seed, ties):
    scores, labels = recorded(seed, ties=ties)
    assert abs(metrics.auc(scores, labels) - roc_auc_score(labels, scores)) < 1e-9
    false, true, _ = roc_curve(labels, scores, drop_intermediate=False)
    for rate in (0.001, 0.01, 0.1, 0.5):
        assert abs(metrics.found_at(scores, labels, rate).rate - true[false <= rate].max()) < 1e-9


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30),
    st.sampled_from([0.0, 0.1, 0.34, 1.0]),
)
def test_small_cases_agree_with_every_threshold_tried(pairs, rate):
    scores = np.array([s for s, _ in pairs], float)
    labels = np.array([m for _, m in pairs])
    if labels.all() or not labels.any():
        return
    inside, outside = scores[labels], scores[~labels]
    wins = (inside[:, None] > outside).mean() + 0.5 * (inside[:, None] == outside).mean()
    assert abs(metrics.auc(scores, labels) - wins) < 1e-12
    cuts = [*np.unique(scores), np.inf]
    allowed = [(inside >= c).sum() for c in cuts if (outside >= c).mean() <= rate + 1e-12]
    assert metrics.found_at(scores, labels, rate).count == max(allowed)
    balanced = [((inside >= c).mean() + (outside < c).mean()) / 2 for c in cuts]
    chosen, _ = metrics.success_rate(scores, labels, metrics.best_threshold(scores, labels))
    assert chosen >= max(balanced[:-1]) - 1e-12


def test_delongs_interval_covers_as_often_as_it_says_and_no_more():
    true = 0.76024993890652  # of normals one deviation apart
    covered = halved = 0
    for seed in range(400):
        low, high = metrics.auc_interval(*recorded(seed, 60, 90))
        covered += low <= true <= high
        middle, half = (low + high) / 2, (high - low) / 4
        halved += middle - half <= true <= middle + half
    assert 0.92 <= covered / 400 <= 0.98
    assert halved / 400 < 0.8  # half the interval would be caught


def test_delong_and_bootstrap_agree():
    scores, labels = recorded(3, 200, 200)
    a, b = metrics.auc_interval(scores, labels), metrics.bootstrap_interval(scores, labels, rng(1), draws=800)
    assert np.allclose(a, b, atol=0.012)


def test_classes_that_are_apart_still_get_an_interval():
    labels = np.arange(40) < 20
    low, high = metrics.auc_interval(labels.astype(float), labels)
    assert high == 1.0 and 0.8 < low < 0.9
    assert metrics.auc_interval(-labels.astype(float), labels)[0] == 0.0


@pytest.mark.parametrize(("count", "trials"), [(0, 10), (3, 10), (10, 10), (17, 500)])
def test_clopper_pearson_agrees_with_scipy(count, trials):
    theirs = binomtest(count, trials).proportion_ci(0.95, "exact")
    assert np.allclose(metrics.clopper_pearson(count, trials), (theirs.low, theirs.high), atol=1e-12)


def test_the_success_rate_is_balanced_and_its_interval_holds_it():
    scores, labels = np.array([2.0, 0, 1, 1, 0, 0, 0, 0]), np.array([1, 1, 0, 0, 0, 0, 0, 0], bool)
    rate, (low, high) = metrics.success_rate(scores, labels, 1.0)
    assert rate == pytest.approx((1 / 2 + 4 / 6) / 2)
    assert low < rate < high


def test_one_false_alarm_too_many_is_not_let_through():
    scores = np.r_[np.linspace(1, 2, 100), 3.0, np.zeros(99)]
    labels = np.arange(200) < 100
    assert metrics.found_at(scores, labels, 0.009).count == 0  # one of 100 is more than 0.9%
    assert metrics.found_at(scores, labels, 0.01).count == 100


def test_infinite_scores_are_scores_and_missing_ones_are_refused():
    labels = np.array([True, False, False])
    assert metrics.auc(np.array([np.inf, 0.0, -np.inf]), labels) == 1.0
    assert metrics.best_threshold(np.array([np.inf, 0.0, -np.inf]), labels) > 0
    with pytest.raises(BadInput, match="not numbers"):
        metrics.auc(np.array([np.nan, 0.0, 1.0]), labels)
    with pytest.raises(BadInput, match="0 non-members"):
        metrics.auc(np.array([1.0, 2.0]), np.array([True, True]))
