"""No sequence of requests, however chosen, is granted past the budget; and what fits is granted."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sordino.errors import BadInput, BudgetRefused, SordinoError
from sordino.privacy import events, rdp
from sordino.privacy.exact import largest_mu, no_costlier
from sordino.privacy.filter import Filter, GdpFilter, NoBudget, RdpFilter, ScheduleFilter, from_json
from sordino.privacy.vocabulary import Relation

T = events.types()
ANY_FLOAT = st.one_of(
    st.floats(),
    st.sampled_from([0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 5e-324, 1e-200, 1e-8, 1e8, 1e155, 1e200, 1.7e308]),
    st.floats(0.3, 50),
)
GAUSSIANS = st.builds(T.GaussianDpEvent, ANY_FLOAT)  # straight from the library: nothing checks the number before us
EVENTS = st.recursive(
    st.one_of(GAUSSIANS, GAUSSIANS, st.builds(T.LaplaceDpEvent, ANY_FLOAT), st.just(events.nonprivate("a test"))),
    lambda inner: st.one_of(
        st.builds(T.PoissonSampledDpEvent, st.one_of(ANY_FLOAT, st.floats(0.01, 1)), GAUSSIANS),
        st.builds(T.SelfComposedDpEvent, inner, st.sampled_from([1, 2, 7, 1000, 0, -3])),
        st.builds(T.ComposedDpEvent, st.lists(inner, max_size=3)),
    ),
    max_leaves=4,
)


def fresh(kind: str) -> Filter:
    return RdpFilter(2.0, 1e-5, 8.0) if kind == "rdp" else GdpFilter(2.0, 1e-5)


def exact_budget(budget: Filter) -> Fraction:
    if isinstance(budget, RdpFilter):
        return Fraction(rdp.budget(budget.epsilon, budget.delta, budget.order))
    assert isinstance(budget, GdpFilter)
    return Fraction(budget.mu) ** 2


def exact_cost(budget: Filter, event: object) -> Fraction:
    """Slow and obvious: the cost of a granted event as a fraction."""
    if isinstance(budget, RdpFilter):
        return Fraction(rdp.cost(event, budget.order, budget.relation))
    name = type(event).__name__
    if name == "GaussianDpEvent":
        return 1 / Fraction(event.noise_multiplier) ** 2  # type: ignore[attr-defined]
    if name == "ComposedDpEvent":
        return sum((exact_cost(budget, part) for part in event.events), Fraction(0))  # type: ignore[attr-defined]
    if name == "SelfComposedDpEvent":
        return event.count * exact_cost(budget, event.event)  # type: ignore[attr-defined]
    assert name == "PoissonSampledDpEvent" and event.sampling_probability == 1  # type: ignore[attr-defined]
    return exact_cost(budget, event.event)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["rdp", "gdp"])
@settings(max_examples=150, deadline=None)
@given(asked=st.lists(EVENTS, max_size=12))
@example(asked=[T.GaussianDpEvent(2.5)] * 12)
def test_never_granted_past_the_budget(kind, asked):
    budget, total = fresh(kind), Fraction(0)
    for event in asked:
        before = budget.to_json()
        try:
            budget.request(event)
        except SordinoError as error:
            assert budget.to_json() == before  # refused: nothing charged
            assert isinstance(error, (BudgetRefused, BadInput)) and "\n" not in str(error)
        else:
            total += exact_cost(budget, event)
    assert total <= exact_budget(budget)
    assert Fraction(budget.spent) >= total * (1 - Fraction(1, 10**12))


@pytest.mark.parametrize("kind", ["rdp", "gdp"])
@settings(max_examples=60, deadline=None)
@given(greed=st.lists(st.sampled_from([0.5, 0.9, 0.999999, 1 - 1e-15, 1.0, 1 + 1e-15, 1.001, 2.0]), max_size=25))
def test_an_adversary_that_reads_what_is_left(kind, greed):
    """Each request is aimed at a multiple of what is left, down to the last bit."""
    budget, total = fresh(kind), Fraction(0)
    for share in greed:
        aim = budget.left * share
        if aim <= 0:
            break
        z = math.sqrt(budget.order / (2 * aim)) if isinstance(budget, RdpFilter) else 1 / math.sqrt(aim)
        event = events.gaussian(z)
        if budget.affords(event):
            budget.request(event)
            total += exact_cost(budget, event)
        else:
            with pytest.raises(BudgetRefused):
                budget.request(event)
            assert total + exact_cost(budget, event) > exact_budget(budget) * (1 - Fraction(1, 10**11))
        assert total <= exact_budget(budget)


@pytest.mark.parametrize("kind", ["rdp", "gdp"])
def test_crumbs_add_up(kind):
    """A double would swallow these: adding 1e-18 to 1 for ever stays 1."""
    budget = fresh(kind)
    z = math.sqrt(budget.order / 2 / budget.left) if isinstance(budget, RdpFilter) else 1 / math.sqrt(budget.left)
    nearly_all = events.gaussian(z * (1 + 1e-11))
    budget.request(nearly_all)
    crumb = events.gaussian(3e9)
    assert 0 < budget.price(crumb) < 1e-17 < 1e-13 < budget.left
    assert budget.spent + budget.price(crumb) == budget.spent  # in doubles nothing would happen
    possible = budget.times(crumb)
    for _ in range(1000):
        budget.request(crumb)
    assert budget.times(crumb) == possible - 1000
    for power in range(60, -1, -1):  # spend what is left, in ever smaller pieces
        piece = events.repeated(crumb, 2**power)
        if budget.affords(piece):
            budget.request(piece)
    assert budget.times(crumb) == 0
    with pytest.raises(BudgetRefused):
        budget.request(crumb)


@settings(max_examples=60, deadline=None)
@given(z=st.floats(0.8, 30), rate=st.floats(0.01, 1), epsilon=st.floats(0.5, 10))
def test_times_is_how_often_it_is_granted(z, rate, epsilon):
    event = events.poisson(rate, events.gaussian(z))
    budget = RdpFilter(epsilon, 1e-5, rdp.best_order(event, epsilon, 1e-5))
    promised = budget.times(event)
    granted = 0
    while granted < 300 and budget.affords(event):
        budget.request(event)
        granted += 1
    assert granted == min(300, promised) == budget.granted
    assert rdp.to_epsilon(granted * rdp.cost(event, budget.order), budget.order, 1e-5) <= epsilon


def test_the_refusal_says_what_was_spent_asked_and_left():
    budget = GdpFilter(1.0, 1e-5)
    budget.request(events.gaussian(5.0))
    with pytest.raises(BudgetRefused, match=r"epsilon 1.*costs 0\.25 of 1/z\^2, 0\.04 is spent and .* is left; stop"):
        budget.request(events.gaussian(2.0))
    with pytest.raises(BudgetRefused, match="no budget covers it"):
        budget.request(events.nonprivate("raw norms"))
    with pytest.raises(BadInput, match="use the RDP filter"):
        budget.request(events.poisson(0.5, events.gaussian(100.0)))
    assert budget.granted == 1


def test_relation_doubles_the_sensitivity():
    event = events.gaussian(4.0)
    assert GdpFilter(1, 1e-5, Relation.REPLACE_ONE).price(event) == 4 * GdpFilter(1, 1e-5).price(event)
    ratio = RdpFilter(1, 1e-5, 16, "replace-one").price(event) / RdpFilter(1, 1e-5, 16).price(event)
    assert ratio == pytest.approx(4)


@pytest.mark.parametrize("epsilon, z", [(4, 5.92), (8, 3.29), (12, 2.36), (16, 1.89)])
def test_mu_gives_the_known_multipliers(epsilon, z):
    """Thirty rounds without sampling at delta 1e-5."""
    assert math.sqrt(30) / largest_mu(epsilon, 1e-5) == pytest.approx(z, abs=0.006)
    assert GdpFilter(epsilon, 1e-5).times(events.gaussian(z * 1.004)) == 30


@settings(max_examples=80, deadline=None)
@given(epsilon=st.floats(1e-6, 60), power=st.floats(0.5, 40))
def test_mu_is_on_the_private_side_and_tight(epsilon, power):
    mp = pytest.importorskip("mpmath")
    delta = 10.0**-power
    mu = largest_mu(epsilon, delta)
    with mp.workdps(80):

        def true_delta(m):
            m, e = mp.mpf(m), mp.mpf(epsilon)
            return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)

        assert true_delta(mu) <= mp.mpf(delta)
        assert true_delta(mu * (1 + 1e-6)) > mp.mpf(delta) * (1 - mp.mpf(10) ** -6)


# --- schedules --------------------------------------------------------------------------------------------------------

ROUND = events.poisson(0.1, events.gaussian(1.5))


def test_a_schedule_is_counted_off():
    budget = ScheduleFilter([ROUND] * 3, 2.0, 1e-5)
    assert budget.times(ROUND) == 3 and budget.left == 3
    for _ in range(3):
        budget.request(ROUND)
    assert (budget.spent, budget.left, budget.share) == (3, 0, 1)
    with pytest.raises(BudgetRefused, match="3 of 3 settled releases are spent, 0 are left and all of them are used"):
        budget.request(ROUND)


@pytest.mark.parametrize(
    "asked",
    [
        events.poisson(0.1, events.gaussian(1.4999999)),
        events.poisson(0.1001, events.gaussian(1.5)),
        events.poisson(0.0999, events.gaussian(3.0)),  # another rate was never accounted
        events.gaussian(1.5),
        events.poisson(0.1, events.laplace(1.5)),
        events.repeated(ROUND, 2),
        events.composed([ROUND, events.gaussian(9.0)]),
        events.nonprivate("raw norms"),
        T.PoissonSampledDpEvent(0.1, T.GaussianDpEvent(math.nan)),
        T.PoissonSampledDpEvent(0.1, T.GaussianDpEvent(math.inf)),
        T.PoissonSampledDpEvent(math.nan, T.GaussianDpEvent(1.5)),
    ],
)
def test_what_was_not_settled_is_refused(asked):
    budget = ScheduleFilter([(ROUND, 10)], 2.0, 1e-5)
    assert not budget.affords(asked) and budget.times(asked) == 0
    with pytest.raises(BudgetRefused, match="the next one is Gaussian noise of multiplier 1.5 at Poisson rate 0.1"):
        budget.request(asked)
    assert budget.granted == 0


def test_more_noise_than_settled_is_granted_and_takes_its_place():
    budget = ScheduleFilter([(ROUND, 2), (events.laplace(3.0), 1)], 2.0, 1e-5)
    budget.request(events.poisson(0.1, events.gaussian(1.6)))
    budget.request(ROUND)
    assert not budget.affords(ROUND)
    budget.request(events.laplace(4.0))
    assert budget.left == 0


SCHEDULED = st.builds(
    lambda q, z, n: events.repeated(events.poisson(q, events.gaussian(z)), n),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.sampled_from([0.8, 1.0, 1.0, 2.0, 3.0]),
    st.sampled_from([1, 1, 2]),
)


@settings(max_examples=200, deadline=None)
@given(settled=st.lists(SCHEDULED, min_size=1, max_size=6), asked=st.lists(SCHEDULED, max_size=12))
def test_a_schedule_never_grants_more_than_was_accounted(settled, asked):
    budget, granted = ScheduleFilter(settled, 1.0, 1e-5), []
    for event in asked:
        try:
            budget.request(event)
            granted.append(event)
        except BudgetRefused:
            pass
    assert len(granted) <= len(settled)
    for order in (1.5, 4.0, 32.0):
        costs = [rdp.cost(event, order) for event in granted]
        accounted = [rdp.cost(event, order) for event in settled]
        assert all(cost <= listed * (1 + 1e-9) for cost, listed in zip(costs, accounted))


def test_a_long_schedule_stays_small():
    budget = ScheduleFilter([ROUND] * 60_000 + [(ROUND, 40_000)], 8.0, 1e-5)
    assert len(json.dumps(budget.to_json())) < 400
    assert budget.total == budget.times(ROUND) == 100_000


@pytest.mark.parametrize(
    "schedule, why",
    [
        ([], "empty"),
        ([events.nonprivate("x")], "not private"),
        ([(ROUND, 0)], "at least once"),
        ([(ROUND, 1.5)], "at least once"),
        ([T.GaussianDpEvent(math.nan)], "multiplier must be"),
    ],
)
def test_bad_schedules(schedule, why):
    with pytest.raises(BadInput, match=why):
        ScheduleFilter(schedule, 1.0, 1e-5)


def test_a_larger_multiplier_is_no_costlier_and_nothing_else_is():
    gauss, more = events.gaussian(1.0), events.gaussian(2.0)
    assert no_costlier(more, gauss) and not no_costlier(gauss, more)
    assert no_costlier(events.composed([more, events.laplace(2.0)]), events.composed([gauss, events.laplace(1.0)]))
    assert not no_costlier(events.composed([more, gauss]), events.composed([gauss, more]))
    assert no_costlier(events.without_replacement(9, 3, more), events.without_replacement(9, 3, gauss))
    assert not no_costlier(events.without_replacement(9, 2, more), events.without_replacement(9, 3, gauss))
    assert no_costlier(events.zcdp(0.1), events.zcdp(0.1)) and not no_costlier(events.zcdp(0.05), events.zcdp(0.1))


# --- all of them ------------------------------------------------------------------------------------------------------

MAKERS = [
    lambda: RdpFilter(2.0, 1e-5, 8.0, Relation.ZERO_OUT),
    lambda: GdpFilter(2.0, 1e-5, "replace-one"),
    lambda: ScheduleFilter([(events.gaussian(z), n) for z, n in ((9.0, 4), (7.0, 3), (8.0, 1))], 2.0, 1e-5),
    lambda: NoBudget("the paper's own variant"),
]


@pytest.mark.parametrize("maker", MAKERS)
@settings(max_examples=40, deadline=None)
@given(before=st.lists(st.floats(7, 40), max_size=9), after=st.lists(st.floats(5, 40), max_size=9))
def test_json_brings_back_the_very_state(maker, before, after):
    budget = maker()

    def ask(which: Filter, z: float) -> bool:
        try:
            which.request(events.gaussian(z))
            return True
        except BudgetRefused:
            return False

    for z in before:
        ask(budget, z)
    copy = from_json(json.loads(json.dumps(budget.to_json(), allow_nan=False)))
    assert type(copy) is type(budget) and copy.to_json() == budget.to_json()
    assert (copy.spent, copy.left, copy.share) == (budget.spent, budget.left, budget.share)
    assert copy.relation == budget.relation
    for z in after:
        assert ask(copy, z) == ask(budget, z)
    assert copy.to_json() == budget.to_json()


def test_no_budget_says_so_and_grants_everything():
    budget = NoBudget("no epsilon was given")
    budget.request(events.nonprivate("raw norms"))
    budget.request(T.GaussianDpEvent(0.0))
    assert budget.epsilon == math.inf == budget.left and budget.spent == 2 and budget.share == 0
    assert "no epsilon was given" in repr(budget)
    with pytest.raises(BadInput, match="must say why"):
        NoBudget(" ")


@pytest.mark.parametrize(
    "make",
    [
        lambda: RdpFilter(0, 1e-5, 8),
        lambda: RdpFilter(1, 1.0, 8),
        lambda: RdpFilter(1, 1e-5, 1),
        lambda: RdpFilter(1, 1e-5, math.nan),
        lambda: RdpFilter(0.1, 1e-5, 8),  # the order leaves nothing
        lambda: GdpFilter(math.nan, 1e-5),
        lambda: GdpFilter(1, 0),
        lambda: ScheduleFilter([ROUND], math.inf, 1e-5),
        lambda: ScheduleFilter([ROUND], 1, 1.0),
        lambda: from_json({"kind": "pld"}),
        lambda: from_json({"kind": "rdp"}),
        lambda: from_json(RdpFilter(1, 1e-5, 32).to_json() | {"spent": "fffp10"}),
        lambda: from_json(RdpFilter(1, 1e-5, 32).to_json() | {"spent": "-1p-3"}),
        lambda: from_json(RdpFilter(1, 1e-5, 32).to_json() | {"spent": "1p-2000"}),
        lambda: from_json(ScheduleFilter([ROUND], 1, 1e-5).to_json() | {"granted": 2}),
    ],
)
def test_bad_input_is_one_sentence(make):
    with pytest.raises(BadInput) as caught:
        make()
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
