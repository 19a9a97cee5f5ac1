"""Accounts of whole schedules: known numbers, two libraries as second opinions, and the traps between them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.errors import BadInput
from sordino.privacy import accounting, events, rdp
from sordino.privacy import dp_accounting_check as library
from sordino.privacy.vocabulary import Relation, Sampling

# rate, rounds, delta, epsilon, multiplier (two decimals, rounded): add-remove, by dp-accounting's PLD
TABLE = [
    (1.0, 30, 1e-5, 4, 5.92),
    (1.0, 30, 1e-5, 8, 3.29),
    (1.0, 30, 1e-5, 12, 2.36),
    (1.0, 30, 1e-5, 16, 1.89),
    (1.0, 40, 1e-5, 4, 6.84),
    (1.0, 40, 1e-5, 16, 2.18),
    (0.1, 150, 1e-5, 1, 4.75),
    (0.1, 150, 1e-5, 2, 2.65),
    (0.1, 150, 1e-5, 5, 1.37),
    (0.1, 200, 1e-5, 1, 5.43),
    (0.1, 200, 1e-5, 8, 1.13),
    (0.1, 200, 1e-3, 1, 3.77),
    (0.1, 200, 1e-3, 4, 1.39),
    (0.1, 500, 1e-3, 1, 5.85),
    (0.1, 500, 1e-3, 4, 1.99),
    (0.05, 500, 1e-6, 1, 4.87),
    (0.05, 500, 1e-6, 8, 1.03),
]


def poisson(rate, multiplier, rounds):
    return events.repeated(accounting.round_event(Sampling.POISSON, rate, multiplier), rounds)


@pytest.mark.parametrize("rate, rounds, delta, target, multiplier", TABLE)
def test_known_numbers(rate, rounds, delta, target, multiplier):
    # The multiplier is known to 0.01: epsilon must pass the target between its neighbours.
    assert accounting.epsilon(poisson(rate, multiplier + 0.01, rounds), delta).epsilon < target
    assert accounting.epsilon(poisson(rate, multiplier - 0.02, rounds), delta).epsilon > target
    assert accounting.epsilon(poisson(rate, multiplier, rounds), delta).accountant == ("gdp" if rate == 1 else "pld")


def test_relations_and_their_traps():
    ten_of_hundred = events.repeated(events.without_replacement(100, 10, events.gaussian(2.0)), 50)
    sampled = poisson(0.1, 2.0, 50)
    spent = accounting.epsilon(ten_of_hundred, 1e-5, Relation.REPLACE_ONE)
    assert spent.epsilon == pytest.approx(9.43, abs=0.005) and spent.accountant == "rdp"
    assert spent.epsilon == spent.epsilon_rdp
    spent = accounting.epsilon(sampled, 1e-5)
    assert spent.epsilon == pytest.approx(1.65, abs=0.005) and spent.epsilon_rdp == pytest.approx(1.84, abs=0.005)
    assert accounting.epsilon(sampled, 1e-5, Relation.ZERO_OUT).epsilon == spent.epsilon
    spent = accounting.epsilon(sampled, 1e-5, Relation.REPLACE_ONE)
    assert spent.epsilon == pytest.approx(2.96, abs=0.005) and spent.accountant == "pld"
    # Five plain Gaussians of multiplier 2: 11.5 under replace-one, and not the 5.4 of an account that forgot to double.
    five = events.repeated(events.gaussian(2.0), 5)
    spent = accounting.epsilon(five, 1e-5, Relation.REPLACE_ONE)
    assert spent.epsilon == pytest.approx(11.48, abs=0.005) and spent.accountant == "gdp"
    assert accounting.epsilon(five, 1e-5).epsilon == pytest.approx(4.97, abs=0.05)
    assert spent.epsilon == accounting.epsilon(events.repeated(events.gaussian(1.0), 5), 1e-5).epsilon


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("kind", ["pld", "rdp"])
def test_the_library_needs_different_words_for_the_same_event(relation, kind):
    # Were the doubling forgotten, or done twice, one of these would be off by a factor.
    event = events.repeated(events.gaussian(2.0), 5)
    ours = accounting.epsilon(event, 1e-5, relation)
    theirs = library.epsilon(event, 1e-5, relation, kind)
    assert (ours.epsilon if kind == "pld" else ours.epsilon_rdp) == pytest.approx(theirs, rel=1e-6)


def test_ignored_counts_are_spelled_out():
    # Told "fifty times", the library's PLD accountant charges randomised response once.
    import dp_accounting

    response = dp_accounting.RandomizedResponseDpEvent(2 / 3, 2)  # epsilon log 2
    fifty = dp_accounting.SelfComposedDpEvent(response, 50)
    one = library.epsilon(response, 1e-5, Relation.REPLACE_ONE, "pld")
    trap = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE).compose(fifty)
    assert trap.get_epsilon(1e-5) == pytest.approx(one), "the library counts now: the detour can go"
    assert one == pytest.approx(math.log(2), rel=1e-3)
    pld, rdp_ = (library.epsilon(fifty, 1e-5, Relation.REPLACE_ONE, kind) for kind in ("pld", "rdp"))
    assert 20 * one < pld <= rdp_ < 50 * one
    with pytest.raises(BadInput):
        accounting.epsilon(fifty, 1e-5, Relation.REPLACE_ONE)


@pytest.mark.parametrize(
    "event", [events.gaussian(9.0), events.laplace(9.0), events.poisson(0.1, events.gaussian(1.0))]
)
@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.REPLACE_ONE])
def test_counts_count(event, relation):
    spelled = events.types().ComposedDpEvent([event] * 50)
    counted = accounting.epsilon(events.repeated(event, 50), 1e-5, relation)
    assert counted == accounting.epsilon(spelled, 1e-5, relation)
    assert counted.epsilon > 3 * accounting.epsilon(event, 1e-5, relation).epsilon


def test_library_is_quiet(caplog, capfd):
    with caplog.at_level("WARNING"):
        library.epsilon(poisson(0.5, 0.6, 10), 1e-5, Relation.ADD_REMOVE, "rdp")
    out, err = capfd.readouterr()
    assert not caplog.records and not out and not err
    # ... and there was something to hold back.
    from dp_accounting.rdp import RdpAccountant

    with caplog.at_level("WARNING"):
        RdpAccountant().compose(poisson(0.5, 0.6, 10))
    assert "failed to converge" in caplog.text + capfd.readouterr().err


# --- random settings against second opinions --------------------------------------------------------------------------


def some(n: int, seed: int):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        rate = float(np.exp(rng.uniform(np.log(2e-3), np.log(0.5))))
        multiplier = float(np.exp(rng.uniform(np.log(0.6), np.log(6))))
        yield rate, multiplier, int(np.exp(rng.uniform(0, np.log(1000)))), float(10 ** rng.uniform(-8, -3))


@pytest.mark.parametrize("rate, multiplier, rounds, delta", some(6, seed=1))
def test_random_settings_against_dp_accounting(rate, multiplier, rounds, delta):
    for event, relation in [
        (poisson(rate, multiplier, rounds), Relation.ADD_REMOVE),
        (poisson(rate, multiplier, rounds), Relation.REPLACE_ONE),
        (events.repeated(events.poisson(rate, events.laplace(multiplier)), rounds), Relation.ADD_REMOVE),
    ]:
        ours = accounting.epsilon(event, delta, relation)
        assert library.agrees(ours.epsilon, library.epsilon(event, delta, relation, "pld")), (event, relation)
        assert ours.epsilon <= ours.epsilon_rdp
    event = poisson(rate, multiplier, rounds)
    theirs = library.epsilon(event, delta, Relation.ADD_REMOVE, "rdp")
    ours = accounting.epsilon(event, delta).epsilon_rdp
    assert theirs * 0.97 <= ours <= theirs * (1 + 1e-9)  # below where the library's fractional orders are loose


@pytest.mark.parametrize("rate, multiplier, rounds, delta", some(3, seed=2))
def test_schedules_against_dp_accounting(rate, multiplier, rounds, delta):
    # Multipliers and rates that change, plain Gaussians and Laplace noise in between.
    parts = [
        events.repeated(events.poisson(rate, events.gaussian(multiplier)), rounds),
        events.repeated(events.poisson(rate / 2, events.gaussian(multiplier * 0.8)), max(1, rounds // 2)),
        events.repeated(events.gaussian(20 * multiplier), 3),
        events.gaussian(30 * multiplier),
        events.laplace(20.0),
    ]
    event = events.composed(parts)
    ours = accounting.epsilon(event, delta)
    assert ours.accountant == "pld"
    assert library.agrees(ours.epsilon, library.epsilon(event, delta, Relation.ADD_REMOVE, "pld"))


def test_replace_one_doubles_every_part_of_a_schedule():
    event = events.composed([poisson(0.1, 2.0, 20), events.gaussian(8.0)])
    ours = accounting.epsilon(event, 1e-5, Relation.REPLACE_ONE)
    assert ours.accountant == "pld"
    assert library.agrees(ours.epsilon, library.epsilon(event, 1e-5, Relation.REPLACE_ONE, "pld"))
    # The library has no Laplace under replace-one; it is Laplace of half the multiplier.
    laplace = accounting.epsilon(events.repeated(events.laplace(8.0), 5), 1e-5, Relation.REPLACE_ONE)
    assert laplace.epsilon == accounting.epsilon(events.repeated(events.laplace(4.0), 5), 1e-5).epsilon


def test_many_different_rounds_are_grouped_on_the_private_side():
    # 300 multipliers that fall by a fifth: composed one by one (slow), and as the accountant does it.
    shape = 2.0 * 1.25 ** (-np.arange(300) / 300)
    event = events.composed(events.poisson(0.05, events.gaussian(float(z))) for z in shape)
    ours = accounting.epsilon(event, 1e-5).epsilon
    accounting_kinds = accounting._MANY_KINDS
    try:
        accounting._MANY_KINDS = 10**9
        exact = accounting.epsilon(event, 1e-5).epsilon
    finally:
        accounting._MANY_KINDS = accounting_kinds
    assert exact <= ours <= 1.004 * exact


@pytest.mark.parametrize("rate, multiplier, rounds, delta", some(5, seed=3))
def test_random_settings_against_opacus(rate, multiplier, rounds, delta):
    accountants = pytest.importorskip("opacus.accountants", reason="SECOND OPINION MISSING: install opacus")
    ours = accounting.epsilon(poisson(rate, multiplier, rounds), delta)
    theirs = accountants.RDPAccountant()
    theirs.history = [(multiplier, rate, rounds)]
    orders = [*rdp.ORDERS.tolist(), *accounting._HIGH_ORDERS[:5].tolist()]
    # Opacus sums the exact series between whole orders, as we integrate.
    assert ours.epsilon_rdp == pytest.approx(theirs.get_epsilon(delta, orders), rel=1e-6)
    prv = accountants.PRVAccountant()
    prv.history = theirs.history
    if rounds < 300 and delta > 1e-7:  # its cost grows, and its error bound does not shrink
        # PRV is two-sided within 0.01 at its own estimate; ours is an upper bound and at most 1% above.
        value = prv.get_epsilon(delta)
        assert value - 0.011 <= ours.epsilon <= 1.01 * value + 0.011


# --- shapes of events -------------------------------------------------------------------------------------------------


def test_plain_gaussians_collapse_however_they_are_nested():
    a, b = events.gaussian(3.0), events.gaussian(5.0)
    nest = events.repeated(events.composed([events.repeated(a, 4), events.poisson(1.0, b), events.joint(3.0, 5.0)]), 2)
    alone = events.gaussian((2 * (5 / 9 + 2 / 25)) ** -0.5)
    spent, expected = accounting.epsilon(nest, 1e-6), accounting.epsilon(alone, 1e-6)
    assert spent.accountant == "gdp" and spent.epsilon == pytest.approx(expected.epsilon, rel=1e-12)


def test_joint_queries_inside_a_sampling():
    parts = events.composed([events.gaussian(3.0), events.gaussian(4.0)])
    once = accounting.epsilon(events.repeated(events.poisson(0.1, parts), 100), 1e-5)
    alone = accounting.epsilon(poisson(0.1, events.joint(3.0, 4.0).noise_multiplier, 100), 1e-5)
    assert once.epsilon == pytest.approx(alone.epsilon, rel=1e-9)
    # Amplifying the parts one by one would be too little.
    apart = events.composed([poisson(0.1, 3.0, 100), poisson(0.1, 4.0, 100)])
    assert accounting.epsilon(apart, 1e-5).epsilon < 0.999 * once.epsilon


def test_sampled_nests_of_unlike_noise_are_charged_in_full():
    mixed = events.composed([events.gaussian(3.0), events.laplace(4.0)])
    event = events.repeated(events.poisson(0.1, mixed), 3)
    spent = accounting.epsilon(event, 1e-5)
    assert spent.accountant == "rdp"
    assert spent.epsilon == pytest.approx(accounting.epsilon(events.repeated(mixed, 3), 1e-5).epsilon_rdp)


def test_what_is_not_private_has_no_epsilon():
    raw = events.nonprivate("raw norms")
    for event in (raw, events.composed([events.gaussian(1.0), raw]), events.repeated(events.poisson(0.1, raw), 3)):
        spent = accounting.epsilon(event, 1e-5)
        assert (spent.epsilon, spent.accountant, spent.epsilon_rdp) == (math.inf, "none", math.inf)
        assert accounting.delta_for(event, 100.0) == 1.0
        assert accounting.epsilon_only(event, 1e-5, Relation.ADD_REMOVE) == math.inf
    assert accounting.epsilon(events.types().GaussianDpEvent(0.0), 1e-5).epsilon == math.inf


def test_nothing_costs_nothing():
    for event in (events.nothing(), events.composed([]), events.poisson(0.5, events.nothing())):
        assert accounting.epsilon(event, 1e-5).epsilon == 0.0
        assert accounting.delta_for(event, 0.0) == 0.0


@pytest.mark.parametrize(
    "event, relation",
    [
        (poisson(0.1, 1.0, 100), Relation.ADD_REMOVE),
        (poisson(0.1, 2.0, 100), Relation.REPLACE_ONE),
        (poisson(1.0, 5.0, 30), Relation.ADD_REMOVE),
        (events.repeated(events.laplace(8.0), 20), Relation.REPLACE_ONE),
        (events.repeated(events.without_replacement(100, 5, events.gaussian(3.0)), 20), Relation.REPLACE_ONE),
        (events.repeated(events.without_replacement(100, 5, events.laplace(3.0)), 20), Relation.ZERO_OUT),
        (events.zcdp(0.1, 0.01), Relation.ZERO_OUT),
    ],
)
def test_delta_for_is_epsilon_turned_round(event, relation):
    epsilon = accounting.epsilon(event, 1e-5, relation).epsilon
    assert epsilon > 0
    assert accounting.delta_for(event, epsilon, relation) == pytest.approx(1e-5, rel=1e-2)
    assert (
        accounting.delta_for(event, 1.1 * epsilon, relation)
        < 1e-5
        < accounting.delta_for(event, 0.9 * epsilon, relation)
    )


def test_fixed_size_laplace_is_amplified_as_pure_dp():
    # exp(eps') = 1 + q (exp(2/b) - 1) bounds each round; a single round at a tiny delta costs just that.
    event = events.without_replacement(100, 5, events.laplace(3.0))
    exact = math.log1p(0.05 * math.expm1(2 / 3))
    assert accounting.epsilon(event, 1e-9, Relation.REPLACE_ONE).epsilon == pytest.approx(exact, rel=1e-6)


def test_rounds_are_described_once():
    gaussian = events.gaussian(2.0)
    assert accounting.round_event(Sampling.NONE, 1.0, 2.0) == gaussian
    assert accounting.round_event(Sampling.POISSON, 1.0, 2.0) == gaussian
    assert accounting.round_event(Sampling.POISSON, 0.25, 2.0) == events.poisson(0.25, gaussian)
    assert accounting.round_event(Sampling.POISSON, (100, 25), 2.0) == events.poisson(0.25, gaussian)
    assert accounting.round_event(Sampling.FIXED, (100, 25), 2.0) == events.without_replacement(100, 25, gaussian)
    assert accounting.round_event(Sampling.FIXED, (100, 100), 2.0) == gaussian
    assert accounting.round_event(Sampling.NONE, 1.0, 2.0, laplace=True) == events.laplace(2.0)
    for rate in (0.1, 1 / 3, 256 / 60000, 1e-9, math.pi / 4):
        fixed = accounting.round_event(Sampling.FIXED, rate, 2.0)
        assert fixed.sample_size / fixed.source_dataset_size >= rate
    for bad in (0.0, 1.5, math.nan):
        for sampling in (Sampling.POISSON, Sampling.FIXED):
            with pytest.raises(BadInput):
                accounting.round_event(sampling, bad, 2.0)
    with pytest.raises(BadInput):
        accounting.round_event(Sampling.FIXED, (10, 11), 2.0)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, 2.0])
def test_bad_deltas(delta):
    with pytest.raises(BadInput, match="delta"):
        accounting.epsilon(events.gaussian(1.0), delta)


# --- properties -------------------------------------------------------------------------------------------------------

rates = st.floats(1e-4, 1.0)
noise = st.floats(0.3, 50.0)
rounds = st.integers(1, 2000)
deltas = st.sampled_from([1e-8, 1e-5, 1e-2])
relations = st.sampled_from([Relation.ADD_REMOVE, Relation.REPLACE_ONE])


@given(rates, noise, rounds, deltas, relations, st.floats(1.001, 2.0))
@settings(max_examples=30, deadline=None)
def test_epsilon_is_monotone(rate, multiplier, count, delta, relation, factor):
    here = accounting.epsilon(poisson(rate, multiplier, count), delta, relation)
    slack = 1e-3  # grids differ
    for more in (
        accounting.epsilon(poisson(rate, multiplier / factor, count), delta, relation),
        accounting.epsilon(poisson(min(1.0, rate * factor), multiplier, count), delta, relation),
        accounting.epsilon(poisson(rate, multiplier, math.ceil(count * factor)), delta, relation),
        accounting.epsilon(poisson(rate, multiplier, count), delta / factor, relation),
    ):
        assert here.epsilon <= more.epsilon * (1 + slack) + 1e-9
        assert here.epsilon_rdp <= more.epsilon_rdp * (1 + 1e-9) + 1e-12


@given(rates, noise, rounds, deltas)
@settings(max_examples=25, deadline=None)
def test_relations_are_ordered(rate, multiplier, count, delta):
    event = poisson(rate, multiplier, count)
    removed = accounting.epsilon(event, delta, Relation.ADD_REMOVE).epsilon
    replaced = accounting.epsilon(event, delta, Relation.REPLACE_ONE).epsilon
    plain = accounting.epsilon(poisson(1.0, multiplier, count), delta, Relation.REPLACE_ONE).epsilon
    assert removed <= replaced * (1 + 1e-3) + 1e-9 <= plain * (1 + 3e-3) + 2e-9
