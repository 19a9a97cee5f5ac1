"""Choosing on one half and measuring on the other: honest where there is nothing to find, sharp where there is."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.audit import bounds, thresholds
from sordino.audit.guessing import guess, perfect
from sordino.errors import BadInput
from sordino.privacy import gdp
from sordino.privacy.randomness import stream


def test_choosing_among_many_useless_statistics_proves_nothing():
    """Both worlds alike: a bound above 0 must be as rare as the confidence says; choosing on the same runs is not."""
    rng, honest, cheating = stream(0, 0, 0, "useless"), 0, 0
    for _ in range(100):
        without, with_it = rng.standard_normal((2, 60, 12))
        honest += thresholds.split(without, with_it, 0.0, 0.9).epsilon > 0
        attack = thresholds.choose(without, with_it, 0.0, 0.9, False)
        cheating += thresholds.measure(attack, without, with_it, 0.0, 0.9).epsilon > 0
    assert honest <= 12
    assert cheating > 30


def test_the_statistic_that_tells_is_found_on_either_side():
    rng = stream(1, 0, 0, "telling")
    without, with_it = rng.standard_normal((2, 400, 5))
    with_it[:, 3] -= 2.5
    outcome = thresholds.split(without, with_it, 0.01, 0.95, gdp=True)
    assert (outcome.attack.statistic, outcome.attack.side) == (3, -1)
    assert 0.5 * gdp.epsilon(0.01, 2.5) < outcome.epsilon < gdp.epsilon(0.01, 2.5)


def test_a_noiseless_difference_is_drawn_between_the_worlds():
    without, with_it = np.zeros((100, 1)), np.full((100, 1), 1e-9)
    outcome = thresholds.split(without, with_it, 0.0, 0.95)
    assert (outcome.false_alarms, outcome.found) == (0, 50)
    assert outcome.epsilon == bounds.many_runs(0, 50, 50, 50, 0.0, 0.95)


def test_too_few_runs_are_refused():
    with pytest.raises(BadInput, match="at least four runs"):
        thresholds.split(np.zeros((3, 1)), np.zeros((3, 1)), 0.1, 0.95)


def test_guesses_are_paid_for():
    """The best of several numbers of guesses, each at a raised confidence: less than an oracle, and valid."""
    rng, coins = stream(2, 0, 0, "coins"), stream(2, 0, 0, "in").random(600) < 0.5

    def bound(m, r, v, confidence):
        return bounds.one_run(m, r, v, 0.0, confidence)

    above = sum(guess(rng.standard_normal(600), coins, bound, 0.9).epsilon > 0 for _ in range(200))
    assert above <= 20
    best = guess(rng.standard_normal(600) + 3 * coins, coins, bound, 0.95)
    assert 1.0 < best.epsilon < perfect(600, bound, 0.95) < bounds.largest_provable(600, 0.95)
