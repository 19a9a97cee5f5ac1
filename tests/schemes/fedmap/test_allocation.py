"""What clients may spend in a round: the public charge covers every course that their spending can take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

from sordino.privacy.mechanisms import FixedPoint  # noqa: E402
from sordino.schemes.fedmap import allocation  # noqa: E402
from sordino.schemes.fedmap.client import ClientState, Report, SummedReport, within_reach  # noqa: E402
from sordino.schemes.fedmap.scheme import REPORT_LENGTH  # noqa: E402

GRID = FixedPoint(2.0**32)
BUDGET = 3.0


def courses(turns):
    return st.lists(st.tuples(st.sampled_from(["takes part", "absent", "lost"]), st.floats(0, 1)),
                    min_size=turns, max_size=turns)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 12).flatmap(courses))
def test_no_course_is_granted_more_than_is_charged(course):
    own, turns = ClientState.blank(), len(course)
    for i, (fate, share) in enumerate(course):
        charged = BUDGET * float(allocation.most_granted(np.array([i + 1]), np.array([turns]))[0])
        if fate == "absent":
            own = replace(own, turns=own.turns + 1)
        elif fate == "lost":
            own = allocation.lost(own, allocation.round_budget_and_grant(own, BUDGET, turns)[1])
        else:
            errand = allocation.next_task(0, own, BUDGET, turns)
            assert errand.round_budget <= errand.own.unspent + errand.grant + 1e-12 and errand.own.turns == i + 1
            used = share * errand.round_budget
            own = replace(errand.own, unspent=errand.round_budget - used, spent=errand.own.spent + used)
        assert own.turns == i + 1
        assert own.granted <= charged * (1 + 1e-9) and charged <= BUDGET * (1 + 1e-12)
        assert own.spent + own.unspent == pytest.approx(own.granted)


@pytest.mark.parametrize("turns", [1, 2, 3, 7, 40])
def test_the_charge_is_that_of_spending_every_round_budget_in_full(turns):
    own = ClientState.blank()
    for i in range(1, turns + 1):
        errand = allocation.next_task(0, own, BUDGET, turns)
        own = replace(errand.own, unspent=0.0, spent=errand.own.spent + errand.round_budget)
        charged = float(allocation.most_granted(np.array([i]), np.array([turns]))[0])
        assert own.spent / BUDGET == pytest.approx(charged, rel=1e-9)
    assert own.spent == pytest.approx(BUDGET)


def test_nothing_is_charged_before_the_first_turn():
    assert allocation.most_granted(np.array([0, 0]), np.array([0, 5])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("clients", [1, 3, 1000, 1_000_000])
def test_no_update_makes_a_sum_overflow(clients):
    wild = np.array([1e300, -1e300, np.inf, -np.inf, np.nan, 1.0, -0.25])
    codes = GRID.round(within_reach(wild, GRID, clients))
    assert np.abs(codes.astype(object) * clients).max() < 2**62
    assert codes[5] == 2**32 and codes[6] == -(2**30) and codes[4] == 0, "what fits is left alone"
    assert GRID.decode(codes[:1])[0] > 500


def test_reports_add_up_as_integers():
    bounds, multipliers = ((0.5, 0.25), (), (2.0,)), ((1.0, 4.0), (), (2.0,))
    owns = [ClientState(np.zeros(0, np.float32), np.zeros((0, 7), np.float32), b[-1] if b else 9.0) for b in bounds]
    reports = [Report(k, owns[k], bounds[k], multipliers[k], 0.125) for k in range(3)]
    codes = sum(report.tally(GRID, 3) for report in reports)
    assert codes.dtype == np.int64 and codes.size == REPORT_LENGTH
    tally = SummedReport.of(codes, GRID)
    assert (tally.began, tally.steps, tally.spent) == (2.0, 3.0, 0.375)
    assert tally.log_bound == pytest.approx(np.log(0.5), abs=1e-9)  # of a quarter and two
    assert tally.log_multiplier == pytest.approx(np.log(8.0), abs=1e-9)
