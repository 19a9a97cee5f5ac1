"""Renyi costs: always an upper bound, the same as dp-accounting's where that is exact, and the right order."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from sordino.errors import BadInput
from sordino.privacy import dp_accounting_check as library
from sordino.privacy import events, rdp, renyi
from sordino.privacy.vocabulary import Relation

GRID = [(0.1, 1.0), (0.01, 0.7), (0.004, 1.0), (0.5, 3.0), (0.1, 20.0), (0.9, 0.5), (0.3, 0.3), (0.001, 5.0)]
WHOLE = rdp.ORDERS == np.floor(rdp.ORDERS)


def theirs(event, relation=Relation.ADD_REMOVE):
    """dp-accounting's curve on its own orders."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    names = {Relation.ADD_REMOVE: "ADD_OR_REMOVE_ONE", Relation.REPLACE_ONE: "REPLACE_ONE"}
    relation = getattr(dp_accounting.NeighboringRelation, names[relation])
    with library.quiet():
        accountant = RdpAccountant(neighboring_relation=relation).compose(event)
    assert np.allclose(accountant.orders, rdp.ORDERS)
    return accountant.rdp


def add(a, b):
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


def slow(order, log_p, log_q, low, high):
    """The definition, by adaptive quadrature: log E_Q[(P/Q)^a] / (a - 1)."""

    def integrand(x):
        return math.exp(order * log_p(x) + (1 - order) * log_q(x))

    points = np.linspace(low, high, 12)
    value = sum(integrate.quad(integrand, a, b, epsabs=0, epsrel=1e-12)[0] for a, b in zip(points, points[1:]))
    return math.log(value) / (order - 1)


@pytest.mark.parametrize("rate, multiplier", GRID)
def test_poisson_gaussian_against_dp_accounting(rate, multiplier):
    ours = rdp.curve(events.poisson(rate, events.gaussian(multiplier)))
    reference = theirs(events.poisson(rate, events.gaussian(multiplier)))
    assert np.allclose(ours[WHOLE], reference[WHOLE], rtol=1e-9, atol=0)
    # Between whole orders the library drops the signs of a series: safe and loose, or infinite. Ours is never above it.
    assert np.all(ours <= reference * (1 + 1e-9))
    assert np.all(np.isfinite(ours)) and np.all(ours > 0)


@pytest.mark.parametrize("rate, multiplier", GRID)
@pytest.mark.parametrize("order", [1.1, 4.3])
def test_poisson_gaussian_between_whole_orders_is_the_definition(rate, multiplier, order):
    def normal(x):
        return -((x / multiplier) ** 2) / 2 - math.log(multiplier * math.sqrt(2 * math.pi))

    def mixed(x):
        return add(math.log1p(-rate) + normal(x), math.log(rate) + normal(x - 1))

    def other(x):
        return add(math.log1p(-rate) + normal(x), math.log(rate) + normal(x + 1))

    span = -12 * multiplier - 2, 2 * order + 12 * multiplier + 2
    expected = slow(order, mixed, normal, *span)
    ours = renyi.poisson_gaussian(order, rate, multiplier)
    assert expected * (1 - 1e-6) - 1e-11 <= ours <= expected * (1 + 1e-6) + 1e-11
    replaced = slow(order, mixed, other, *span)
    ours = renyi.poisson_gaussian_replaced(order, rate, multiplier)
    assert replaced * (1 - 1e-6) - 1e-11 <= ours <= replaced * (1 + 1e-6) + 1e-11


@given(st.floats(1e-5, 0.999), st.floats(0.3, 100.0), st.floats(1.02, 100.0), st.floats(1.0, 1.5))
@settings(max_examples=150, deadline=None)
def test_poisson_gaussian_is_monotone(rate, multiplier, order, factor):
    cost = renyi.poisson_gaussian(order, rate, multiplier)
    slack = 1 + 1e-9
    assert 0 < cost <= renyi.gaussian(order, multiplier) * slack
    assert cost <= renyi.poisson_gaussian(order * factor, rate, multiplier) * slack
    assert cost <= renyi.poisson_gaussian(order, min(1.0, rate * factor), multiplier) * slack
    assert cost <= renyi.poisson_gaussian(order, rate, multiplier / factor) * slack
    assert cost <= renyi.poisson_gaussian_replaced(order, rate, multiplier) * slack


def test_poisson_gaussian_broadcasts():
    orders, rates = np.array([1.5, 2.0, 32.0])[:, None], np.array([0.01, 0.1, 0.01, 1.0])
    table = rdp.poisson_gaussian(orders, rates, 1.3)
    assert table.shape == (3, 4)
    for i, order in enumerate(orders[:, 0]):
        for j, rate in enumerate(rates):
            assert table[i, j] == rdp.poisson_gaussian(order, rate, 1.3)
    assert isinstance(rdp.poisson_gaussian(2, 0.1, 1.0), float)
    for bad in [(1.0, 0.1, 1.0), (2, 0.0, 1.0), (2, 1.1, 1.0), (2, 0.1, 0.0), (2, math.nan, 1.0)]:
        with pytest.raises(BadInput):
            rdp.poisson_gaussian(*bad)


@pytest.mark.parametrize(
    "population, cohort, multiplier", [(100, 10, 2.0), (1000, 10, 1.0), (100, 50, 5.0), (50, 5, 0.5)]
)
def test_fixed_size_samples_against_dp_accounting(population, cohort, multiplier):
    # The library's RDP accountant has to be told noise over 2C; ours is told noise over C.
    ours = rdp.curve(events.without_replacement(population, cohort, events.gaussian(multiplier)), Relation.REPLACE_ONE)
    halved = events.without_replacement(population, cohort, events.gaussian(multiplier / 2))
    reference = np.minimum(theirs(halved, Relation.REPLACE_ONE), rdp.ORDERS / (2 * (multiplier / 2) ** 2))
    assert np.allclose(ours, reference, rtol=1e-9, atol=0)


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 10.0, 100.0])
def test_laplace_against_dp_accounting(multiplier):
    assert np.allclose(rdp.curve(events.laplace(multiplier)), theirs(events.laplace(multiplier)), rtol=1e-9, atol=0)


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("multiplier", [0.4, 1.0, 8.0])
@pytest.mark.parametrize("order", [1.5, 2.0, 7.3])
def test_poisson_laplace_is_the_definition(rate, multiplier, order):
    def base(x):
        return -abs(x) / multiplier - math.log(2 * multiplier)

    def mixed(x):
        return add(math.log1p(-rate) + base(x), math.log(rate) + base(x - 1))

    def both(log_p, log_q):
        # Split where the densities have kinks.
        def integrand(x):
            return math.exp(order * log_p(x) + (1 - order) * log_q(x))

        edges = [-60 * multiplier, -5 * multiplier, 0, 0.5, 1, 1 + 5 * multiplier, 1 + 60 * multiplier]
        total = sum(integrate.quad(integrand, a, b, epsabs=0, epsrel=1e-11)[0] for a, b in zip(edges, edges[1:]))
        return math.log(total) / (order - 1)

    expected = max(both(mixed, base), both(base, mixed))
    assert renyi.poisson_laplace(order, rate, multiplier) == pytest.approx(expected, rel=1e-6, abs=1e-11)


def test_pure_epsilon_is_randomised_response():
    for epsilon in (1e-3, 0.5, 3.0):
        p = 1 / (1 + math.exp(-epsilon))
        for order in (1.5, 2.0, 30.0):
            total = p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)
            assert renyi.pure(order, epsilon) == pytest.approx(math.log(total) / (order - 1), rel=1e-7)
    assert renyi.pure(1e4, 3.0) <= 3.0


# --- events and relations ---------------------------------------------------------------------------------------------


def test_replace_one_doubles_the_sensitivity_once():
    order = 5.0
    gaussian, laplace = events.gaussian(2.0), events.laplace(2.0)
    assert rdp.cost(gaussian, order) == pytest.approx(order / 8)
    assert rdp.cost(gaussian, order, Relation.ZERO_OUT) == rdp.cost(gaussian, order)
    assert rdp.cost(gaussian, order, Relation.REPLACE_ONE) == pytest.approx(order / 2)
    assert rdp.cost(laplace, order, Relation.REPLACE_ONE) == pytest.approx(rdp.cost(events.laplace(1.0), order))
    assert rdp.cost(events.zcdp(0.1, 0.2), order) == pytest.approx(0.2 + 0.1 * order)
    assert rdp.cost(events.zcdp(0.1, 0.2), order, Relation.REPLACE_ONE) == pytest.approx(4 * (0.2 + 0.1 * order))
    # Poisson under replace-one lies between its add-remove and the unsampled cost.
    poisson = events.poisson(0.2, gaussian)
    assert rdp.cost(poisson, order) < rdp.cost(poisson, order, Relation.REPLACE_ONE) < order / 2
    poisson = events.poisson(0.2, laplace)
    assert rdp.cost(poisson, order) < rdp.cost(poisson, order, Relation.REPLACE_ONE)
    assert rdp.cost(poisson, order, Relation.REPLACE_ONE) < rdp.cost(laplace, order, Relation.REPLACE_ONE)


def test_fixed_size_samples_need_replace_one():
    fixed = events.without_replacement(100, 10, events.gaussian(2.0))
    with pytest.raises(BadInput, match="add-remove"):
        rdp.cost(fixed, 2.0, Relation.ADD_REMOVE)
    assert rdp.cost(fixed, 2.0, Relation.ZERO_OUT) == rdp.cost(fixed, 2.0, Relation.REPLACE_ONE)
    # Everyone, every time: nothing is sampled, whatever it is called.
    everyone = events.without_replacement(100, 100, events.gaussian(2.0))
    for relation in Relation:
        assert rdp.cost(everyone, 2.0, relation) == rdp.cost(events.gaussian(2.0), 2.0, relation)


def test_joint_queries_inside_a_sampling_are_amplified_as_one():
    parts = events.composed([events.gaussian(3.0), events.gaussian(4.0)])
    assert rdp.cost(events.poisson(0.1, parts), 4.0) == rdp.cost(events.poisson(0.1, events.joint(3.0, 4.0)), 4.0)
    apart = 2 * rdp.cost(events.poisson(0.1, events.gaussian(2.0)), 4.0)
    twice = rdp.cost(events.poisson(0.1, events.repeated(events.gaussian(2.0), 2)), 4.0)
    assert twice > 1.02 * apart  # amplifying each part by itself would be too little


def test_sampling_of_anything_else_is_not_amplified():
    mixed = events.composed([events.gaussian(3.0), events.laplace(4.0)])
    assert rdp.cost(events.poisson(0.1, mixed), 4.0) == rdp.cost(mixed, 4.0)
    assert rdp.cost(events.poisson(0.1, events.zcdp(0.1)), 4.0) == rdp.cost(events.zcdp(0.1), 4.0)


def test_not_private_costs_infinity_and_nothing_costs_nothing():
    raw = events.nonprivate("raw")
    for event in (raw, events.composed([events.gaussian(1.0), raw]), events.poisson(0.1, raw), events.repeated(raw, 2)):
        assert rdp.cost(event, 2.0) == math.inf
    assert rdp.cost(events.types().GaussianDpEvent(0.0), 2.0) == math.inf
    assert rdp.cost(events.poisson(0.1, events.types().GaussianDpEvent(0.0)), 2.0) == math.inf
    assert rdp.cost(events.nothing(), 2.0) == 0.0
    with pytest.raises(BadInput, match="RandomizedResponse"):
        rdp.cost(events.types().RandomizedResponseDpEvent(0.5, 2), 2.0)
    for order in (1.0, 0.5, math.nan, math.inf):
        with pytest.raises(BadInput):
            rdp.cost(events.gaussian(1.0), order)


def test_counts_count():
    once = events.poisson(0.1, events.gaussian(1.0))
    assert rdp.cost(events.repeated(once, 50), 3.0) == pytest.approx(50 * rdp.cost(once, 3.0))
    both = events.repeated(events.composed([once, events.gaussian(9.0)]), 7)
    assert rdp.cost(both, 3.0) == pytest.approx(7 * (rdp.cost(once, 3.0) + 3 / 162))


# --- epsilon ----------------------------------------------------------------------------------------------------------


@given(st.floats(0.05, 20), st.floats(1e-12, 0.5), st.floats(1.05, 1000))
def test_budget_is_to_epsilon_turned_round(epsilon, delta, order):
    room = rdp.budget(epsilon, delta, order)
    if room > 0:
        assert rdp.to_epsilon(room, order, delta) == pytest.approx(epsilon, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("rate, rounds, multiplier, delta", [(0.1, 150, 1.37, 1e-5), (0.01, 1000, 0.8, 1e-6)])
def test_epsilon_against_dp_accounting(rate, rounds, multiplier, delta):
    event = events.repeated(events.poisson(rate, events.gaussian(multiplier)), rounds)
    ours = rdp.epsilon_of(rdp.curve(event), delta)
    assert ours == pytest.approx(library.epsilon(event, delta, Relation.ADD_REMOVE, "rdp"), rel=5e-3)
    assert ours <= library.epsilon(event, delta, Relation.ADD_REMOVE, "rdp") * (1 + 1e-9)
    assert rdp.delta_of(rdp.curve(event), ours) <= delta * (1 + 1e-9)
    assert rdp.delta_of(rdp.curve(event), 0.9 * ours) > delta


def test_next_to_nothing_is_epsilon_zero():
    assert rdp.epsilon_of(rdp.curve(events.gaussian(1e6)), 1e-5) == 0.0
    assert rdp.epsilon_of(rdp.curve(events.nonprivate("raw")), 1e-5) == math.inf
    assert rdp.delta_of(rdp.curve(events.nonprivate("raw")), 3.0) == 1.0


@pytest.mark.parametrize(
    "event, epsilon, delta, relation",
    [
        (events.poisson(0.1, events.gaussian(1.37)), 5.0, 1e-5, Relation.ADD_REMOVE),
        (events.gaussian(5.92), 4.0, 1e-5, Relation.ADD_REMOVE),
        (events.gaussian(500.0), 0.05, 1e-6, Relation.ADD_REMOVE),
        (events.without_replacement(100, 10, events.gaussian(4.0)), 8.0, 1e-5, Relation.REPLACE_ONE),
        (events.poisson(0.02, events.laplace(3.0)), 2.0, 1e-5, Relation.ADD_REMOVE),
    ],
)
def test_best_order_is_the_best(event, epsilon, delta, relation):
    order = rdp.best_order(event, epsilon, delta, relation)

    def copies(order):
        return rdp.budget(epsilon, delta, order) / rdp.cost(event, order, relation)

    rivals = [order_ for order_ in 1 + np.geomspace(0.02, 2000, 150) if rdp.budget(epsilon, delta, order_) > 0]
    assert copies(order) >= 0.999 * max(map(copies, rivals))
    assert order == float(f"{order:.4g}") or order >= 64


def test_best_order_refuses_what_never_fits():
    with pytest.raises(BadInput, match="not private"):
        rdp.best_order(events.nonprivate("raw"), 4.0, 1e-5)
    for epsilon, delta in [(0.0, 1e-5), (4.0, 0.0), (4.0, 1.0), (math.nan, 1e-5)]:
        with pytest.raises(BadInput):
            rdp.best_order(events.gaussian(1.0), epsilon, delta)


def test_costs_do_not_need_the_library():
    code = (
        "import sys; from sordino.privacy import events, rdp; rdp.cost(events.poisson(0.1, events.gaussian(1.0)), 4.5);"
        "print([m for m in ('dp_accounting', 'scipy.stats', 'scipy.signal', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_against_opacus():
    opacus = pytest.importorskip("opacus.accountants.analysis.rdp", reason="SECOND OPINION MISSING: install opacus")
    for rate, multiplier in GRID:
        orders = [2, 3, 8, 32, 63]
        ours = renyi.poisson_gaussian(orders, rate, multiplier)
        assert np.allclose(
            ours, opacus.compute_rdp(q=rate, noise_multiplier=multiplier, steps=1, orders=orders), rtol=1e-6
        )
