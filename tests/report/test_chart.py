"""Axes, thinning, series and the chart itself."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.privacy.in_numbers import most_found, percent_up
from sordino.report.axis import linear, logarithmic, rounds, suits_log
from sordino.report.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, Reference
from sordino.report.downsample import spread, thin
from sordino.report.numbers import at_least, at_most
from sordino.report.reading import Run
from sordino.report.series import figures, noise_to_signal, spending

from .conftest import PLAN, STATEMENT
from .conftest import rounds as metrics

finite = st.floats(-1e99, 1e99).map(lambda v: v if abs(v) > 1e-99 else 0.0)


@given(finite, finite)
def test_linear_axis_holds_its_range_with_few_round_ticks(a, b):
    low, high = min(a, b), max(a, b)
    if 0 < high - low < 1e-6 * max(abs(low), abs(high)):
        return  # beyond what a chart can tell apart
    axis = linear(low, high)
    slack = 1e-6 * (axis.high - axis.low)
    assert axis.low <= low + slack and axis.high >= high - slack
    assert 2 <= len(axis.ticks) <= 8


@given(st.floats(1e-9, 1e9), st.floats(30.0, 1e9))
def test_logarithmic_axis_holds_its_range(low, ratio):
    axis = logarithmic(low, low * ratio)
    assert axis.low <= low * (1 + 1e-6) and axis.high >= low * ratio * (1 - 1e-6) and 2 <= len(axis.ticks) <= 9
    assert axis.at(axis.low) == 0 and axis.at(axis.high) == pytest.approx(1)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_rounds_axis_has_whole_ticks_inside(low, more):
    axis = rounds(low, low + more)
    assert axis.ticks and all(t == int(t) and low <= t <= low + more for t in axis.ticks) and len(axis.ticks) <= 9


def test_logarithmic_only_where_it_fits():
    assert suits_log([1, 100]) and not suits_log([1, 10]) and not suits_log([0, 100]) and not suits_log([])


@settings(max_examples=50)
@given(st.lists(finite, min_size=1, max_size=2000), st.integers(3, 150))
def test_thinning_keeps_the_ends_and_the_extremes(values, limit):
    points = list(enumerate(values, 1))
    kept = thin(points, limit)
    assert len(kept) <= max(limit, 3)
    assert min(s.low for s in kept) == min(values) and max(s.high for s in kept) == max(values)
    assert (kept[0].first, kept[-1].last) == (1, len(values))
    assert kept[0].mean == values[0] and kept[-1].mean == values[-1]
    assert all(a.last + 1 == b.first for a, b in zip(kept, kept[1:]))  # nothing is left out


def test_spread_keeps_first_and_last():
    assert spread(list(range(1000)), 40)[0] == 0 and spread(list(range(1000)), 40)[-1] == 999
    assert len(set(spread(list(range(1000)), 40))) == 40 and spread([1, 2], 40) == [1, 2]


SHAPES = ([1.0], [0.0], [2.0, 2.0], [-1.0, 3.0], [1e-6, 1e6], [1e-99, 1e-98], [1e99, -1e99])


@pytest.mark.parametrize("values", [*SHAPES, [0.1 * t for t in range(5000)]])
def test_everything_is_drawn_inside_the_frame(values):
    chart = Chart("c", "A chart", tuple(enumerate(values, 1)), may_log=True, reference=Reference(1.0, "one"))
    drawn = str(chart.svg())
    corners = " ".join(re.findall(r'points="([^"]*)"', drawn)).split()
    assert corners
    for x, y in (map(float, corner.split(",")) for corner in corners):
        assert LEFT <= x <= WIDTH - RIGHT and TOP - 0.1 <= y <= HEIGHT - BOTTOM + 0.1
    assert "nan" not in drawn


def test_chart_places_points_by_hand():
    drawn = Chart("c", "A chart", ((1, 0.0), (3, 1.0)), span=(0.0, 1.0)).svg()
    assert f'points="{LEFT}.0,{HEIGHT - BOTTOM}.0 {WIDTH - RIGHT}.0,{TOP}.0"' in drawn


def run(rows, statement=STATEMENT, plan=PLAN):
    return Run("run", plan, "", statement, tuple(rows))


def test_noise_to_signal_by_hand():
    rows = [{"round": 1, "noise": 0.5, "moved": 2.0}, {"round": 2, "noise": 0.5, "moved": 0.0}]
    rows.append({"round": 3, "noise": 1})
    assert noise_to_signal(run(rows)) == ((1, 0.25),)


def test_equal_rounds_spend_equally_and_unequal_ones_by_their_noise():
    rows = [{"round": t, "multiplier": 2.0} for t in (1, 2, 3, 4)]
    assert spending(run(rows)) == (((1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)), True)
    assert spending(run(rows, STATEMENT | {"spent": 0.5}))[0][-1] == (4, 0.5)
    rows = [{"round": 1, "multiplier": 2.0}, {"round": 2, "multiplier": 1.0}]
    assert spending(run(rows)) == (((1, 0.2), (2, 1.0)), False)
    assert spending(run([{"round": 1, "multiplier": 0.0}])) == ((), True)


def test_a_round_that_states_its_spending_is_believed():
    rows = [{"round": 1, "multiplier": 1.0, "spent": 0.9}, {"round": 2, "multiplier": 1.0, "spent": 1.0}]
    assert spending(run(rows)) == (((1, 0.9), (2, 1.0)), True)


def test_charts_without_data_are_left_out():
    baseline = metrics(5, every=1, bound=None, multiplier=0.0, noise=0.0)
    titles = [f.chart.title for f in figures(run(baseline, STATEMENT | {"epsilon": "inf"}))]
    assert titles == ["Test accuracy", "Test loss"]
    assert len(figures(run(metrics(20)))) == 4
    assert figures(run([{"round": 1}], None)) == []


@given(st.floats(1e-6, 1e5))
def test_bounds_are_rounded_to_the_safe_side(value):
    assert float(at_most(value)) >= value >= float(at_least(value))
    assert float(at_most(value)) <= value * 1.0011 and float(at_least(value)) >= value * 0.9989


def test_percent_never_understates():
    assert percent_up(0.98201) == "98.21%" and percent_up(1.2) == "100%" and percent_up(0.999999) == "100%"


def test_most_found_by_hand():
    assert most_found(math.log(2), 0.0, 0.1) == pytest.approx(0.2)
    assert most_found(math.log(2), 0.0, 0.6) == pytest.approx(0.8)  # the other side of the curve
    assert most_found(0.0, 0.0, 0.01) == pytest.approx(0.01)
