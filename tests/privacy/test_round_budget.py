"""A purse grants steps while it lasts, and nothing makes it go below zero."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import BadInput, BudgetRefused
from sordino.privacy.round_budget import RoundBudget


def test_it_grants_until_it_is_empty():
    purse = RoundBudget(0.75)
    purse.request(0.5)
    with pytest.raises(BudgetRefused, match="0.5 of Renyi divergence and 0.25 is left"):
        purse.request(0.5)
    purse.request(0.25)
    assert purse.left == 0 and purse.spent == 0.75
    purse.request(0.0)


@pytest.mark.parametrize("cost", [math.nan, math.inf, -math.inf, -1e-300])
def test_what_is_no_cost_is_refused(cost):
    purse = RoundBudget(1e300)
    with pytest.raises(BudgetRefused):
        purse.request(cost)
    assert purse.left == 1e300


@pytest.mark.parametrize("granted", [math.nan, math.inf, -1.0, None])
def test_a_purse_holds_a_number(granted):
    with pytest.raises(BadInput, match="purse"):
        RoundBudget(granted)


@given(st.floats(0, 10), st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=50))
def test_the_exact_sum_of_what_is_granted_never_passes_the_purse(granted, asked):
    purse, total = RoundBudget(granted), Fraction(0)
    for cost in asked:
        before = purse.left
        try:
            purse.request(cost)
            total += Fraction(cost)
        except BudgetRefused:
            assert purse.left == before
    assert total <= Fraction(granted)
    assert Fraction(purse.left) <= Fraction(granted) - total <= Fraction(granted)
    assert Fraction(purse.spent) >= total


def test_it_does_not_tell_what_is_left():
    assert repr(RoundBudget(0.123)) == "RoundBudget(...)"
