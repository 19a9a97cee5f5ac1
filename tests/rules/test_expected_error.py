"""The bound of least expected error: by hand, from far off, and where a median collapses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from stage import build, play, step

from sordino.errors import BadInput
from sordino.privacy.randomness import SERVER, stream
from sordino.rules.expected_error import ExpectedError

RULE = ExpectedError(alignment=1.0)


def test_two_norms_by_hand():
    """Half the units have norm 1, half norm 5, and the noise is as long as the bound: C^2 + ((5 - C) / 2)^2 between 1 and 5.

    Its slope 2 C - (5 - C) / 2 is zero at C = 1. Without noise nothing is clipped; with noise without end the floor holds.
    """
    norms, parts = np.array([1.0, 5.0]), np.array([0.5, 0.5])
    assert RULE._best(norms, parts, 1.0, 3.0) == pytest.approx(1.0, rel=0.11)  # candidates lie a tenth apart
    assert RULE._best(norms, parts, 0.0, 3.0) == pytest.approx(5.0, rel=1e-6)
    assert RULE._best(norms, parts, 1e6, 3.0) == pytest.approx(0.1 * 3.0)
    assert RULE._best(norms, parts, 1e6, 80.0) == pytest.approx(8.0)  # a mean of 80 was heard before
    # What cancels is not lost: with an alignment of 0.1 the same noise asks for a smaller bound.
    assert ExpectedError(alignment=0.1, floor=0.01)._best(norms, parts, 1.0, 3.0) < 0.1


def lognormal(median=1.0, units=100):
    return lambda source, t: median * np.exp(0.5 * source.standard_normal(units))


@pytest.mark.parametrize("off", [1e-3, 1e3])
def test_a_first_bound_a_thousand_times_off_is_made_good(off):
    right = np.log(play(build("adact", bound=7.0), lognormal(7.0), 60)[20:]).mean()
    for seed in range(4):
        bounds = np.log(play(build("adact", bound=7.0 * off), lognormal(7.0), 60, seed=seed))
        assert abs(bounds[20:].mean() - right) < 0.3 and abs(bounds[5] - right) < 1.5


def test_it_does_not_collapse_with_the_median():
    """Nine in ten units are learnt and have norms of a millionth; one in ten still has norm 1."""

    def learnt(source, t):
        return np.where(source.random(200) < 0.9, 1e-6, 1.0)

    median = play(build("adact", units=200, options={"tau": 0.5}), learnt, 60, units=200)[-1]
    assert median < 1e-4
    assert play(build("adact", units=200), learnt, 60, units=200)[-1] > 0.02


def test_it_stays_within_a_part_of_the_largest_mean_when_all_units_are_learnt():
    """Norms fall from 1 to a thousandth in thirty rounds; a bound that followed them would end near a ten-thousandth."""
    bounds = play(build("adact", units=500), lambda source, t: np.full(500, max(1e-3, 0.8**t)), 60, units=500)
    assert 0.05 < bounds[-1] < 0.3


def test_ten_clients_are_not_carried_off_by_decades():
    """On the wide grid a false count moves the bound by decades: once 27,000 from 0.5, with ten clients at epsilon 50."""
    for seed in range(20):
        norms = lambda source, t: 3 * np.exp(0.3 * source.standard_normal(10))  # noqa: E731
        bounds = play(build("adact", bound=0.5, units=10), norms, 5, multiplier=0.335, units=10, seed=seed)
        assert max(bounds) < 30


def test_false_counts_far_out_do_not_carry_it_off():
    """Norms of one; noise alone fills the other bins."""
    for seed in range(6):
        bounds = play(build("adact", bound=1.0), lambda source, t: np.ones(100), 60, multiplier=2.0, seed=seed)
        assert np.abs(np.log(np.array(bounds[10:]) / np.median(bounds))).max() < 2.3


def test_a_cohort_that_cannot_be_heard_keeps_its_bound_and_asks_no_more():
    rule = build("adact", units=10)
    assert play(rule, lambda source, t: 50 * np.ones(10), 30, multiplier=5.9, units=10) == [1.0] * 30
    state, _ = step(rule, rule.init(), 1, np.ones(10), 5.9, 10, stream(0, 1, SERVER, "noise"))
    assert rule.query(state) == (None, None)


def test_one_question_beside_the_sum_and_a_smaller_share_once_found():
    rule = build("adact")
    state = rule.init()
    assert rule.query(state).pre_clip is None and rule.query(state).with_sum.share == 0.3
    state, _ = step(rule, state, 1, lognormal()(stream(0, 1, SERVER, "norms"), 1), 1.0, 100, stream(0, 1, SERVER, "n"))
    assert rule.query(state).with_sum.share == 0.05 and state["high"] - state["low"] == pytest.approx(math.log(1000))


def test_an_empty_cohort_and_norms_that_are_not_finite_leave_a_bound():
    rule = build("adact")
    state = rule.init()
    for t, norms in enumerate((np.ones(100), np.empty(0), np.full(100, np.inf), np.full(100, np.nan)), 1):
        state, bound = step(rule, state, t, norms, 0.5, 100, stream(0, t, SERVER, "noise"))
        assert math.isfinite(bound) and bound > 0


def test_settings_that_make_no_sense():
    for wrong in ({"low": 2.0, "high": 1.0}, {"bins": 3}, {"alignment": 0.0}, {"share": 1.0}, {"floor": 0.0}):
        with pytest.raises(BadInput):
            ExpectedError(**wrong)
