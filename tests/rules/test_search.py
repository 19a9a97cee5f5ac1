"""Bisection under a belief: what one answer does to it, worked out by hand, and that it finds a place through noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sordino.rules import base, search


def test_the_belief_begins_mostly_near_the_bound():
    belief = np.exp(search.around(10.0))
    assert belief.sum() == pytest.approx(1.0)
    assert belief[np.abs(search.GRID - math.log(10)) < 2].sum() > search.NEAR
    assert search.place(search.around(10.0))[0] == pytest.approx(10.0, rel=0.02)
    assert search.place(search.around(10.0))[1] > search.FOUND, "so that a search begins"


@pytest.mark.parametrize("bound", [search.LOWEST, search.HIGHEST, 1e-30, 1e30])
def test_bounds_at_the_ends_and_beyond(bound):
    place, unsure = search.place(search.around(bound))
    assert search.LOWEST <= place <= search.HIGHEST and math.isfinite(unsure)


def test_one_answer_by_hand():
    """Half of the units within C = 1 for gamma = 1/2: nothing at C itself; a place two spreads below would give 1 / (1 + e^-2)."""
    flat = np.zeros_like(search.GRID)
    after = search.heard(flat, 0.5, 1.0, 0.5, 0.2)
    here = int(np.argmin(np.abs(search.GRID)))
    assert after[here] == 0
    for k in (here - 4, here + 2):
        expected = 1 / (1 + math.exp(search.GRID[k] / search.SPREAD))
        assert after[k] == pytest.approx(-((0.5 - expected) ** 2) / (2 * (0.2**2 + search.MISFIT**2)))


@pytest.mark.parametrize("target", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("start", [1e-6, 1e-3, 1.0, 1e3, 1e6])
def test_finds_a_place_through_noise(target, start):
    """Norms at 7 exactly as the model has them; noise of a seventh of all units."""
    draws = np.random.Generator(np.random.PCG64(1))
    belief, bound, rounds = search.around(start), start, 0
    for _ in range(60):
        turn = (math.log(bound) - math.log(7)) / search.SPREAD + math.log(target / (1 - target))
        within = 1 / (1 + math.exp(-min(max(turn, -50), 50))) + 0.15 * draws.standard_normal()
        belief = search.heard(belief, within, bound, target, 0.15)
        bound, unsure = search.place(belief)
        rounds += unsure > search.FOUND
    assert abs(math.log(bound / 7)) < 0.7 and rounds < 40


def test_a_search_survives_the_mean_over_clients():
    """States that ran each for itself are averaged number by number: the product of beliefs, and a search that goes on for one goes on."""
    first, second = search.around(1.0), search.around(100.0)
    merged = base.merge([{"belief": first.tolist(), "searching": 1.0}, {"belief": second.tolist(), "searching": 0.0}])
    np.testing.assert_allclose(merged["belief"], (first + second) / 2)
    assert merged["searching"] == 0.5 and bool(merged["searching"])
