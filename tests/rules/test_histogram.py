"""Reading a quantile off a noisy histogram."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stage import build, play, step

from sordino.errors import BadInput
from sordino.privacy.randomness import SERVER, stream
from sordino.rules.histogram import Histogram, crossing, increasing

TAU = {"tau": 0.5}  # the paper's quantile


def lognormal(spread, median=1.0, units=100):
    return lambda source, t: median * np.exp(spread * source.standard_normal(source.binomial(10 * units, 0.1)))


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=12))
def test_the_nearest_increasing_curve(y):
    """Against the slow way: max over starts of min over ends of the means."""
    y = np.array(y)
    n = len(y)
    slow = [max(min(y[a : b + 1].mean() for b in range(i, n)) for a in range(i + 1)) for i in range(n)]
    assert np.allclose(increasing(y), slow, atol=1e-9)


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.floats(0.1, 0.9))
def test_without_noise_it_is_the_quantile_to_within_a_cell(seed, p):
    norms = np.exp(stream(seed, 0, 0, "norms").standard_normal(500))
    edges = np.linspace(-4, 4, 33)
    counts = np.bincount(np.searchsorted(edges, np.log(norms)), minlength=34)
    found, border = crossing(edges, counts, p)
    assert not border and abs(found - math.log(np.quantile(norms, p))) < 0.3


def test_beyond_the_grid_is_told():
    edges = np.array([0.0, 1.0, 2.0])
    assert crossing(edges, np.array([9.0, 1.0, 0.0, 0.0]), 0.5) == (0.0, True)
    assert crossing(edges, np.array([0.0, 0.0, 1.0, 9.0]), 0.5) == (2.0, True)


def test_two_rounds_by_hand():
    """Twelve clients and next to no noise, on a grid of 4 edges at log 0, 2, 4 and 6."""
    rule = Histogram(start=1.0, low=1.0, high=math.exp(6), bins=4, span=1.0)
    state = rule.init()
    pre_clip, with_sum = rule.query(state)
    assert with_sum is None and pre_clip.share == rule.opening
    assert np.allclose(np.log(pre_clip.edges), [0, 2, 4, 6])
    norms = np.exp(np.array([1.0] * 3 + [3.0] * 6 + [5.0] * 3))
    # Below the edges lie 0, 3, 9, 12 of 12; less half of them: -6, -3, 3, 6; zero half way from 2 to 4.
    after, bound = step(rule, state, 1, norms, 1e-9, 12, stream(0, 1, SERVER, "noise"))
    assert bound == pytest.approx(math.exp(3), rel=1e-6)
    # Four cells of width 2 are wider than the first grid, which stays the widest.
    assert after["high"] - after["low"] == pytest.approx(6) and (after["high"] + after["low"]) / 2 == pytest.approx(3)
    assert rule.bound(after, None).size == pytest.approx(bound)


def test_the_grid_closes_in_and_the_share_falls():
    rule = build("adact", options=TAU)
    state = rule.init()
    shares, widths = [], []
    for t in range(1, 6):
        shares.append(rule.query(state).pre_clip.share)
        widths.append(state["high"] - state["low"])
        norms = lognormal(0.5, 30.0)(stream(0, t, SERVER, "norms"), t)
        state, _ = step(rule, state, t, norms, 1.0, 100, stream(0, t, SERVER, "noise"))
    assert widths[0] == pytest.approx(math.log(1e12)) and widths[-1] == pytest.approx(rule.span)
    assert shares[0] == rule.opening and shares[-1] == rule.share
    assert all(a >= b for a, b in zip(widths, widths[1:]))


def test_it_finds_norms_that_leap_away():
    """A thousand times smaller from round 20 on."""
    rule = build("adact", options=TAU)
    norms = lambda source, t: lognormal(0.5, 1.0 if t < 20 else 1e-3)(source, t)  # noqa: E731
    bounds = play(rule, norms, 60)
    assert abs(math.log(np.median(bounds[10:19]))) < 0.15
    assert abs(math.log(np.median(bounds[-20:]) / 1e-3)) < 0.15


def test_it_follows_norms_that_fall_slowly():
    rule = build("adact", options=TAU)
    bounds = play(rule, lambda source, t: lognormal(0.5, 0.97**t)(source, t), 100)
    late = np.log(np.array(bounds[20:]) / 0.97 ** np.arange(21, 101))
    assert abs(late.mean()) < 0.1 and np.abs(late).max() < 0.4


def test_ten_clients_little_noise():
    """It is heard over a window of rounds; from the right start it is never carried off."""
    ends = []
    for seed in range(6):
        rule = build("adact", units=10, options=TAU)
        bounds = np.log(play(rule, lognormal(0.5, units=10), 100, multiplier=1.0, units=10, seed=seed))
        assert np.abs(bounds).max() < 1.2
        far = build("adact", units=10, bound=1e-3, options=TAU)
        ends.append(math.log(play(far, lognormal(0.5, units=10), 100, multiplier=1.0, units=10, seed=seed)[-1]))
    assert abs(np.mean(ends)) < 0.25


def test_ten_clients_drowned_in_noise():
    """At multiplier 5.9 no window could be heard: it asks once, then leaves all privacy to the sum."""
    rule = build("adact", units=10, options=TAU)
    bounds = play(rule, lognormal(0.5, 50.0, units=10), 30, multiplier=5.9, units=10)
    assert bounds == [1.0] * 30
    state, _ = step(rule, rule.init(), 1, np.ones(10), 5.9, 10, stream(0, 1, SERVER, "noise"))
    assert rule.query(state) == (None, None)


def test_an_empty_cohort_changes_little():
    rule = build("adact", options=TAU)
    state = rule.init()
    for t in range(1, 8):
        norms = lognormal(0.5)(stream(0, t, SERVER, "norms"), t) if t != 6 else np.empty(0)
        state, bound = step(rule, state, t, norms, 0.5, 100, stream(0, t, SERVER, "noise"))
        assert math.isfinite(bound) and (t < 3 or 0.3 < bound < 3)


def test_settings_that_make_no_sense():
    for wrong in ({"low": 2.0, "high": 1.0}, {"bins": 3}, {"window": 0}, {"target": 1.0}, {"share": 0.0}):
        with pytest.raises(BadInput):
            Histogram(**wrong)
    with pytest.raises(BadInput, match="bins must be a whole number"):
        build("adact", options={"bins": 7.5, **TAU})
