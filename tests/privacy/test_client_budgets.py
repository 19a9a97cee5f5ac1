"""Per-client budgets against a slow and obvious account in fractions."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.errors import BadInput, BudgetRefused
from sordino.privacy import events, rdp
from sordino.privacy.client_budgets import ClientBudgets

ROUND = events.poisson(0.1, events.gaussian(2.0))
COSTS = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 5e-324, 1e-17, 1e-9, 0.1, 0.3, 1e300, math.inf]))


def account(clients: int = 8) -> ClientBudgets:
    return ClientBudgets(clients, 2.0, 1e-5, 12.0)


@settings(max_examples=200, deadline=None)
@given(
    rounds=st.lists(
        st.lists(st.tuples(st.integers(0, 7), COSTS), max_size=8, unique_by=lambda pair: pair[0]), max_size=25
    )
)
def test_no_client_passes_its_budget(rounds):
    spending, slow = account(), {client: Fraction(0) for client in range(8)}
    budget = Fraction(rdp.budget(2.0, 1e-5, 12.0))
    for cohort in rounds:
        ids = np.array([client for client, _ in cohort], dtype=int)
        costs = np.array([cost for _, cost in cohort])
        able = spending.affordable(ids, costs)
        for (client, cost), can in zip(cohort, able):
            fits = math.isfinite(cost) and slow[client] + Fraction(cost) <= budget
            assert not can or fits
            assert can or not fits or slow[client] + Fraction(cost) > budget * (1 - Fraction(1, 10**11))
        before = spending.to_arrays()["spent"]
        if not able.all():
            with pytest.raises(BudgetRefused, match="leave out"):
                spending.charge(ids, costs)
            assert np.array_equal(spending.to_arrays()["spent"], before)  # all or nothing
        spending.charge(ids[able], costs[able])
        for client, cost in zip(ids[able], costs[able]):
            slow[int(client)] += Fraction(float(cost))
    spent = spending.to_arrays()["spent"]
    for client, exact in slow.items():
        assert exact <= Fraction(spent[client]) <= budget
        assert spent[client] <= float(exact) * (1 + 1e-11) + 1e-300
    assert spending.largest() == spent.max()


def test_crumbs_add_up():
    """In plain doubles 1 + 1e-17 is 1 for ever; rounded up, every crumb counts."""
    spending = ClientBudgets(2, 2.0, 1e-5, 64.0)
    spending.charge([0], 1.0)
    start = spending.to_arrays()["spent"][0]
    assert start + 1e-17 == start
    for _ in range(1000):
        spending.charge([0], 1e-17)
    assert spending.to_arrays()["spent"][0] >= start + 1e-14


def test_the_price_is_that_of_the_filter():
    from sordino.privacy.filter import RdpFilter

    spending, one = account(), RdpFilter(2.0, 1e-5, 12.0)
    price = spending.price(ROUND)
    assert price == pytest.approx(one.price(ROUND), rel=1e-11)
    granted = 0
    while spending.affordable([3], price)[0]:
        spending.charge([3], price)
        granted += 1
    assert granted == one.times(ROUND) > 10
    assert spending.of([3, 4]) == pytest.approx([1, 0], abs=0.05)


@pytest.mark.parametrize(
    "clients, costs",
    [
        ([1, 1], 0.1),
        ([-1], 0.1),
        ([8], 0.1),
        ([0.5], 0.1),
        ([True], 0.1),
        ([[1]], 0.1),
        ([1, 2], [0.1]),
        ([1], [[0.1]]),
        ([1], math.nan),
        ([1], -1e-9),
        ([1, 2], [0.1, math.nan]),
    ],
)
def test_bad_charges_change_nothing(clients, costs):
    spending = account()
    for ask in (spending.charge, spending.affordable):
        with pytest.raises(BadInput):
            ask(clients, costs)
    assert spending.largest() == 0


@pytest.mark.parametrize(
    "arguments",
    [(0, 1, 1e-5, 12), (5, 0, 1e-5, 12), (5, 1, 1, 12), (5, 1, 1e-5, 1), (5, 0.01, 1e-5, 12), (1.5, 1, 1e-5, 12)],
)
def test_bad_settings(arguments):
    with pytest.raises(BadInput):
        ClientBudgets(*arguments)


def test_an_empty_cohort_costs_nothing():
    spending = account()
    spending.charge([], 0.5)
    assert spending.affordable([], 9.0).shape == (0,) and spending.largest() == 0


def test_arrays_bring_back_the_very_state():
    spending = ClientBudgets(50, 2.0, 1e-5, 12.0, "replace-one")
    spending.charge([1, 2, 3], [0.1, 0.2, 1 / 3])
    spending.seq = 7
    arrays = spending.to_arrays()
    again = ClientBudgets.from_arrays(arrays)
    assert again.to_json() == spending.to_json() and again.seq == 7 and again.relation == "replace-one"
    again.charge([1], 0.1)  # a copy, not a view
    assert np.array_equal(spending.to_arrays()["spent"], arrays["spent"])
    assert ClientBudgets.from_json(spending.to_json()).largest() == 0
    for harm in ({"spent": np.array([-1.0])}, {"spent": np.array([9.0])}, {"spent": np.array([np.nan])}):
        with pytest.raises(BadInput, match="outside"):
            ClientBudgets.from_arrays(arrays | harm)
    with pytest.raises(BadInput, match="incomplete"):
        ClientBudgets.from_arrays({"spent": arrays["spent"]})


def test_no_clients_spending_is_ever_printed():
    spending = account()
    spending.charge([2], 0.123456789)
    for text in (repr(spending), str(spending), f"{spending}", str(spending.to_json())):
        assert "0.12345" not in text
    with pytest.raises(BudgetRefused) as caught:
        spending.charge([2, 3], spending.budget - 0.1)
    assert "0.1" not in str(caught.value) and "[" not in str(caught.value)


def test_a_million_clients():
    """A smoke alarm, with much room: benchmarks/ledger.py measures."""
    spending = ClientBudgets(1_000_000, 8.0, 1e-6, 4.0)
    rng = np.random.default_rng(0)
    everyone, some = np.arange(1_000_000), rng.choice(1_000_000, 1000, replace=False)
    costs = rng.random(1_000_000) * 1e-3

    def best(cohort, paid) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            spending.charge(cohort, paid)
            times.append(time.perf_counter() - start)
        return min(times)

    assert best(some, costs[:1000]) < 0.02
    assert best(everyone, costs) < 0.5
