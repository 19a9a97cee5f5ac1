"""The table of costs: never below the exact value, close to it, and quick in vectors."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.errors import BadInput
from sordino.privacy import lookup, rdp, renyi
from sordino.privacy.client_budgets import ClientBudgets
from sordino.privacy.lookup import Table

PAPER = Table([0.01, 0.1, 0.3])  # as large as the paper's: 100 bins, every order from 2 to 64


def test_every_point_of_the_paper_sized_table_is_an_upper_bound():
    rng = np.random.default_rng(0)
    z = np.exp(rng.uniform(np.log(0.3), np.log(100), 60))
    for place, rate in enumerate((0.01, 0.1, 0.3)):
        curve = PAPER.curve(z, np.full(z.size, place))
        assert curve.shape == (60, 63)
        exact = np.stack([renyi.poisson_gaussian(np.arange(2, 65), rate, m) for m in z])
        assert (curve >= exact).all()
        assert np.median(curve / exact) < 1.01


@settings(max_examples=60, deadline=None)
@given(
    order=st.integers(2, 512),
    rate=st.floats(1e-4, 1.0),
    multiplier=st.floats(0.3, 1e4),
    bins=st.sampled_from([1, 7, 100, 400]),
)
def test_no_point_is_ever_below_the_exact_value(order, rate, multiplier, bins):
    exact = rdp.poisson_gaussian(order, rate, multiplier)
    assert Table([rate], [order], bins).cost(multiplier)[0] >= exact


def test_the_papers_formula_is_not_a_bound():
    """Equation 6 without its O(q^3): a third of the true cost and less, where the noise is small."""
    order, rate, sigma = 8, 0.1, 1.0
    printed = order * rate**2 / (2 * sigma**2)
    assert printed < rdp.poisson_gaussian(order, rate, sigma) / 30
    assert Table([rate], [order]).cost(sigma)[0] >= rdp.poisson_gaussian(order, rate, sigma)


def test_more_bins_are_closer_and_nodes_are_exact():
    z = np.linspace(0.35, 5, 200)
    exact = rdp.poisson_gaussian(20, 0.05, z)
    gaps = [np.max(Table([0.05], [20], bins).cost(z) / exact) for bins in (50, 200, 1600)]
    assert gaps[0] > gaps[1] > gaps[2] and gaps[2] < 1.05
    nodes = 0.3 * 100 / np.arange(1, 100)
    assert np.allclose(Table([0.05], [20]).cost(nodes), rdp.poisson_gaussian(20, 0.05, nodes), rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, 0.0, -1.0, -np.inf, 0.29, 1e-300, -0.0])
def test_what_is_no_multiplier_costs_infinitely_much(bad):
    assert np.isinf(Table([0.1], [8]).cost(bad)[0])


def test_endless_noise_costs_nothing():
    assert Table([0.1], [8]).cost(np.inf)[0] == 0.0
    assert 0 < Table([0.1], [8]).cost(1e6)[0] < 1e-12


def test_the_inverse_fits_and_hardly_wastes():
    table = Table([0.02, 0.5], [12], bins=400)
    allowed = np.exp(np.random.default_rng(1).uniform(-18, 1, 500))
    for place in (0, 1):
        z = table.multiplier(allowed, np.full(500, place))
        paid = table.cost(z, np.full(500, place))
        assert (paid <= allowed).all()
        inside = z > table.least
        assert inside.any() and (allowed[inside] / paid[inside] < 1 + 1e-6).all()
    assert np.isinf(table.multiplier(0.0, [0])[0])
    assert table.multiplier(1e9, [0])[0] == table.least


def test_clients_keep_their_own_rates_in_any_order():
    rates = [0.3, 0.01, 0.3, 0.1]
    table = Table(rates, [8], bins=400)
    one_by_one = [Table([q], [8], bins=400).cost(1.5)[0] for q in rates]
    assert np.array_equal(table.cost(np.full(4, 1.5)), one_by_one)
    assert np.array_equal(table.cost([1.5, 1.5], [1, 3]), [one_by_one[1], one_by_one[3]])


def test_too_many_rates_are_rounded_up(monkeypatch):
    monkeypatch.setattr(lookup, "_MOST", 16)
    rates = np.linspace(0.01, 0.2, 100)
    table = Table(rates, [8])
    assert table.rates.size == 16 and (table.rates[table.rows] >= rates).all()
    assert (table.cost(np.full(100, 2.0)) >= rdp.poisson_gaussian(8, rates, 2.0)).all()


def test_bad_settings_are_refused():
    with pytest.raises(BadInput, match="rates"):
        Table([0.0, 0.1])
    with pytest.raises(BadInput, match="order"):
        Table([0.1], [1])
    with pytest.raises(BadInput, match="order"):
        Table([0.1], [2.5])
    with pytest.raises(BadInput, match="64"):
        PAPER.cost([1.0] * 3, order=65)
    with pytest.raises(BadInput, match="one each"):
        PAPER.cost([1.0] * 2, order=8)
    with pytest.raises(BadInput, match="numbers"):
        PAPER.multiplier([np.nan] * 3, order=8)


@pytest.mark.parametrize(("clients", "limit"), [(1_000, 0.02), (1_000_000, 0.5)])
def test_a_round_of_heterogeneous_spending_takes_milliseconds(clients, limit):
    """Every client its own rate and multiplier: look up, see who can pay, charge. The limits are lenient."""
    rng = np.random.default_rng(2)
    table = Table(np.minimum(1, 64 / rng.integers(50, 2000, clients)), [16])
    spending, ids = ClientBudgets(clients, 8.0, 1e-6, 16.0), np.arange(clients)
    multipliers = np.exp(rng.normal(0.7, 0.3, clients))
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        costs = table.cost(multipliers)
        able = spending.affordable(ids, costs)
        spending.charge(ids[able], costs[able])
        taken.append(time.perf_counter() - start)
    assert able.any() and spending.largest() > 0
    assert min(taken) < limit
