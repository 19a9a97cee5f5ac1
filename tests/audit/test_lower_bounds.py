"""Lower bounds on epsilon against slow, obvious versions, numbers from the literature, and mechanisms of known epsilon."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sordino.audit import bounds
from sordino.audit.curves import Family
from sordino.errors import BadInput
from sordino.privacy import accounting, events, gdp
from sordino.privacy.randomness import stream
from sordino.privacy.vocabulary import Relation

DELTA = 1e-5


# ---- many runs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (70, 1000)])
def test_rates_are_those_of_clopper_and_pearson(hits, trials):
    interval = stats.binomtest(hits, trials).proportion_ci(confidence_level=0.9, method="exact")
    assert bounds.rate_above(hits, trials, 0.05) == pytest.approx(interval.low, abs=1e-12)
    assert bounds.rate_below(hits, trials, 0.05) == pytest.approx(interval.high, abs=1e-12)


def test_a_perfect_test_by_hand():
    """No false alarm in n runs allows a rate of 1 - (alpha/2)^(1/n); finding it always, one of at least (alpha/2)^(1/n)."""
    n, least = 500, 0.025 ** (1 / 500)
    assert bounds.many_runs(0, n, n, n, 0.0, 0.95) == pytest.approx(math.log(least / (1 - least)), rel=1e-9)
    assert bounds.many_runs(0, n, n, n, 0.1, 0.95) == pytest.approx(math.log((least - 0.1) / (1 - least)), rel=1e-9)


def test_a_test_and_its_opposite_show_the_same():
    assert bounds.many_runs(10, 400, 300, 400, 0.01, 0.95) == bounds.many_runs(100, 400, 390, 400, 0.01, 0.95)


def test_guessing_shows_nothing():
    assert bounds.many_runs(50, 100, 50, 100, 0.0, 0.95) == 0.0
    assert bounds.many_runs_gdp(50, 100, 50, 100, DELTA, 0.95) == 0.0


def test_many_runs_move_the_right_way():
    base = bounds.many_runs(10, 500, 400, 500, 0.01, 0.95)
    assert bounds.many_runs(9, 500, 400, 500, 0.01, 0.95) > base
    assert bounds.many_runs(10, 500, 401, 500, 0.01, 0.95) > base
    assert bounds.many_runs(10, 500, 400, 500, 0.02, 0.95) < base
    assert bounds.many_runs(10, 500, 400, 500, 0.01, 0.99) < base


def test_counts_that_cannot_be_are_refused():
    with pytest.raises(BadInput, match="not counts of runs"):
        bounds.many_runs(11, 10, 5, 10, 0.0, 0.95)
    with pytest.raises(BadInput, match="not a count of guesses"):
        bounds.one_run(10, 5, 6, 0.0, 0.95)


@pytest.mark.parametrize("mu", [0.5, 1.5])
def test_many_runs_of_a_gaussian_hold_and_come_near(mu):
    """Over many repeats the bound exceeds the truth in at most one of twenty, and gets most of it."""
    rng = stream(1, 0, 0, f"gaussian {mu}")
    true, n, repeats, found = gdp.epsilon(0.05, mu), 4000, 200, []
    for _ in range(repeats):
        alarms, hits = rng.binomial(n, stats.norm.sf(mu / 2)), rng.binomial(n, stats.norm.sf(-mu / 2))
        found.append(bounds.many_runs_gdp(alarms, n, hits, n, 0.05, 0.95))
    assert np.mean(np.array(found) > true) <= 0.05
    assert np.median(found) > 0.7 * true


# ---- one run ---------------------------------------------------------------------------------------------------------


def slow_p(m, r, v, epsilon, delta):
    """Steinke et al. 2023, theorem 5.2, term by term."""
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    pmf = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    worst = max(sum(pmf[v - i : v]) / i for i in range(1, v + 1)) if v else 0.0
    return min(1.0, sum(pmf[v:]) + 2 * m * delta * worst)


@pytest.mark.parametrize("delta", [0.0, 1e-4, 0.01])
@pytest.mark.parametrize(("m", "r", "v"), [(40, 40, 35), (60, 20, 18), (30, 30, 15), (10, 3, 0)])
def test_one_run_against_the_obvious_version(m, r, v, delta):
    for epsilon in (0.0, 0.5, 2.0):
        assert bounds.one_run_p(m, r, v, epsilon, delta) == pytest.approx(slow_p(m, r, v, epsilon, delta), abs=1e-12)


def test_one_run_returns_an_epsilon_that_is_refuted_and_no_more():
    found = bounds.one_run(300, 100, 90, DELTA, 0.95)
    assert slow_p(300, 100, 90, found, DELTA) <= 0.05
    assert slow_p(300, 100, 90, found + 1e-6, DELTA) > 0.05


def test_one_run_moves_the_right_way():
    base = bounds.one_run(500, 100, 85, 1e-4, 0.95)
    assert bounds.one_run(500, 100, 86, 1e-4, 0.95) > base
    assert bounds.one_run(500, 100, 85, 1e-3, 0.95) < base
    assert bounds.one_run(500, 100, 85, 1e-4, 0.99) < base
    assert bounds.one_run(5000, 100, 85, 1e-4, 0.95) < base


def test_what_a_perfect_attack_could_show():
    assert [round(bounds.largest_provable(m, 0.95), 1) for m in (100, 1000, 10000)] == [3.5, 5.8, 8.1]
    assert bounds.largest_provable(1, 0.95) == 0.0


def test_randomised_response_is_not_accused_of_more_than_it_leaks():
    """The mechanism for which theorem 5.2 is tight: every coin is told truthfully with probability e^eps/(1 + e^eps)."""
    rng, m, epsilon = stream(2, 0, 0, "randomised response"), 400, 1.0
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    rejected = [bounds.one_run_p(m, m, int(rng.binomial(m, right)), epsilon, 0.0) <= 0.05 for _ in range(1000)]
    assert np.mean(rejected) <= 0.06  # 0.05 and two standard errors
    less = [bounds.one_run_p(m, m, int(rng.binomial(m, right)), 0.6, 0.0) <= 0.05 for _ in range(1000)]
    assert np.mean(less) > 0.9


def slow_refutes(m, r, v, mu, tau):
    """Mahloujifar et al. 2024, algorithm 3, with the two sequences kept whole."""
    right, wrong = [0.0] * (v + 1), [0.0] * (v + 1)
    right[v], wrong[v] = tau * v / m, tau * (r - v) / m
    for i in range(v - 1, -1, -1):
        wrong[i] = max(wrong[i + 1], stats.norm.cdf(stats.norm.ppf(min(right[i + 1], 1)) - mu))
        right[i] = right[i + 1] + i / (r - i) * (wrong[i] - wrong[i + 1])
    return right[0] + wrong[0] > r / m


@pytest.mark.parametrize(("m", "r", "v"), [(100, 100, 80), (200, 40, 36), (50, 50, 26)])
def test_the_gaussian_curve_against_the_obvious_version(m, r, v):
    for mu in (0.1, 0.5, 1.0, 2.0, 4.0):
        assert bounds.refutes(m, r, v, bounds.gaussian_curve(mu), 0.05) == slow_refutes(m, r, v, mu, 0.05)


@pytest.mark.parametrize("mu", [0.5, 1.5])
def test_a_gaussian_is_not_accused_of_more_than_it_leaks(mu):
    """One run with many canaries, again and again: the true mu is refuted in at most one of twenty, a third of it mostly."""
    rng, m, guesses = stream(3, 0, 0, f"one run {mu}"), 400, 100
    rejected, less = 0, 0
    for _ in range(300):
        coins = rng.random(m) < 0.5
        order = np.argsort(rng.standard_normal(m) + mu * coins)
        correct = int(coins[order[-guesses // 2 :]].sum() + (~coins[order[: guesses // 2]]).sum())
        rejected += bounds.refutes(m, guesses, correct, bounds.gaussian_curve(mu), 0.05)
        less += bounds.refutes(m, guesses, correct, bounds.gaussian_curve(mu / 4), 0.05)
    assert rejected <= 0.05 * 300
    assert less > 150


def test_the_gaussian_curve_shows_more_than_any_curve():
    assert bounds.one_run_gdp(1000, 200, 160, DELTA, 0.95) > bounds.one_run(1000, 200, 160, DELTA, 0.95)


# ---- the proven curve ------------------------------------------------------------------------------------------------


def test_for_gaussians_without_sampling_the_proven_curve_is_the_gaussian_one():
    family = Family(events.to_json(events.repeated(events.gaussian(2.0), 4)), DELTA, Relation.ADD_REMOVE)
    ours, gaussian = family.lower(500, 100, 85, 0.95), bounds.one_run_gdp(500, 100, 85, DELTA, 0.95)
    assert 0.97 * gaussian < ours <= gaussian * 1.002


def test_a_sampled_gaussian_is_not_accused_of_more_than_it_leaks():
    """Rounds of Poisson-sampled Gaussians, attacked by likelihood ratios; refuted at a third of the noise claimed too much."""
    rate, z, rounds, m, guesses = 0.3, 0.8, 4, 400, 60
    event = events.repeated(events.poisson(rate, events.gaussian(z)), rounds)
    family = Family(events.to_json(event), DELTA, Relation.ADD_REMOVE)
    rng, true, noisier = stream(4, 0, 0, "sampled"), 0, 0
    for _ in range(200):
        coins = rng.random(m) < 0.5
        seen = rng.standard_normal((rounds, m)) + (rng.random((rounds, m)) < rate) * coins / z
        scores = np.logaddexp(math.log(1 - rate), math.log(rate) + seen / z - 0.5 / z**2).sum(0)
        correct = int(coins[np.argsort(scores)[-guesses:]].sum())
        true += bounds.refutes(m, guesses, correct, family.curve(1.0), 0.05)
        noisier += bounds.refutes(m, guesses, correct, family.curve(4.0), 0.05)
    assert true <= 0.05 * 200
    assert noisier > 150


def test_the_family_is_scaled_in_every_part():
    event = events.composed(
        [events.poisson(0.5, events.gaussian(1.0)), events.laplace(2.0), events.repeated(events.gaussian(3.0), 2)]
    )
    family = Family(events.to_json(event), DELTA, Relation.ADD_REMOVE)
    double = events.composed(
        [events.poisson(0.5, events.gaussian(2.0)), events.laplace(4.0), events.repeated(events.gaussian(6.0), 2)]
    )
    assert family.epsilon(2.0) == pytest.approx(accounting.epsilon(double, DELTA).epsilon)
