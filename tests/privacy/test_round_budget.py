"""A budget grants steps while it lasts, and nothing makes it go below zero."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import BadInput, BudgetRefused
from sordino.privacy.round_budget import RoundBudget


def test_it_grants_until_it_is_empty():
    budget = RoundBudget(0.75)
    budget.request(0.5)
    with pytest.raises(BudgetRefused, match="0.5 of Renyi divergence and 0.25 is left"):
        budget.request(0.5)
    budget.request(0.25)
    assert budget.left == 0 and budget.spent == 0.75
    budget.request(0.0)


@pytest.mark.parametrize("cost", [math.nan, math.inf, -math.inf, -1e-300])
def test_what_is_no_cost_is_refused(cost):
    budget = RoundBudget(1e300)
    with pytest.raises(BudgetRefused):
        budget.request(cost)
    assert budget.left == 1e300


@pytest.mark.parametrize("granted", [math.nan, math.inf, -1.0, None])
def test_a_round_budget_holds_a_number(granted):
    with pytest.raises(BadInput, match="a round's budget is a number"):
        RoundBudget(granted)


@given(st.floats(0, 10), st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=50))
def test_the_exact_sum_of_what_is_granted_never_passes_the_budget(granted, asked):
    budget, total = RoundBudget(granted), Fraction(0)
    for cost in asked:
        before = budget.left
        try:
            budget.request(cost)
            total += Fraction(cost)
        except BudgetRefused:
            assert budget.left == before
    assert total <= Fraction(granted)
    assert Fraction(budget.left) <= Fraction(granted) - total <= Fraction(granted)
    assert Fraction(budget.spent) >= total


def test_it_does_not_tell_what_is_left():
    assert repr(RoundBudget(0.123)) == "RoundBudget(...)"
