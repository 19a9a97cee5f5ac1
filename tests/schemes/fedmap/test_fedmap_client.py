"""FedMAP's clients: the budget holds whatever MetaNet says, noise is z C, and only released values steer."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.usefixtures("one_thread")
torch = pytest.importorskip("torch")

from sordino.clients.site import Site  # noqa: E402
from sordino.errors import BadInput  # noqa: E402
from sordino.federation.population import Federation  # noqa: E402
from sordino.federation.sizes import PublicSizes  # noqa: E402
from sordino.methods import RuleContext  # noqa: E402
from sordino.plan import Plan  # noqa: E402
from sordino.privacy import rdp  # noqa: E402
from sordino.privacy.mechanisms import FixedPoint  # noqa: E402
from sordino.rules.query import Answer  # noqa: E402
from sordino.schemes import certified, settle  # noqa: E402
from sordino.schemes.fedmap.client import ClientState, ClientTask, ControlledSteps, Report  # noqa: E402
from sordino.schemes.fedmap.metanet import features  # noqa: E402
from sordino.schemes.fedmap.published import PublishedSteps  # noqa: E402
from sordino.schemes.request import CONTRIBUTE, Request  # noqa: E402
from sordino.schemes.step_door import StepDoor  # noqa: E402

ORDER = 8
WILD = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 1e-308]),
)


def population(size: int = 60) -> Federation:
    rng = np.random.Generator(np.random.PCG64(0))
    x = rng.normal(size=(size, 4)).astype(np.float32)
    return Federation.from_arrays(
        [(x, (x[:, 0] > 0).astype(np.int64))] * 2, test=(x, x[:, 0] > 0), classes=2, name="two"
    )


def work(kind=ControlledSteps, federation=None, **changes):
    federation = federation or population()
    base = {
        "clients": 2,
        "method": "fedmap",
        "observer": "server",
        "epsilon": 2.0,
        "rounds": 4,
        "batch_size": 20,
        "lr": 0.5,
    }
    plan = Plan(**(base | changes))
    model = torch.nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.copy_(torch.linspace(-0.3, 0.3, 8).view(2, 4))
        model.bias.zero_()
    site = Site(model, federation, plan)
    rule = plan.method_spec.build(RuleContext(plan, (8, 2), 20))
    theta = site.flat.vector().numpy().copy()
    return kind(site, theta, rule, settle(plan, PublicSizes.of(federation)))


def give(steps, budget=0.05, later=0.1, turns=3, own=None, round=1):
    errand = ClientTask(0, budget, later, turns, own or replace(ClientState.blank(), turns=1))
    state = {"bound": 1.0, "moved": 0.0, "order": ORDER, "eps_global": 0.0}
    request = Request(round=round, phase=CONTRIBUTE, grid=FixedPoint(2.0**32), bound=None, state=state, released=True)
    out = np.zeros(steps.theta.size, np.int64)
    return steps.contribute(request, errand, out).report, out


def cost(multipliers, rate=1 / 3):
    """What the steps truly cost, by another formula than the table."""
    return math.fsum(float(rdp.poisson_gaussian(ORDER, rate, z)) for z in multipliers)


WORK = work()
PRINTED = work(PublishedSteps, variant="published")


def test_a_round_of_steps_is_paid_for():
    report, out = give(work())
    assert len(report.multipliers) == len(report.bounds) == 3  # 60 records in batches of 20
    assert cost(report.multipliers) <= report.own.spent <= 0.05 * (1 + 1e-12)
    assert report.own.unspent + report.own.spent == pytest.approx(0.05)
    assert out.any() and len(report.own.rows) == 3 and report.own.net.size == 642


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    outputs=st.lists(st.tuples(WILD, WILD), min_size=3, max_size=3),
    budget=st.sampled_from([0.0, 1e-9, 2e-8, 5e-8, 0.05, 3.0]),
    later=st.sampled_from([0.0, 0.1]),
)
@example(outputs=[(0.0, 1.0)] * 3, budget=2e-8, later=0.0)
def test_whatever_the_network_puts_out_the_budget_holds_or_the_error_is_clear(outputs, budget, later):
    answers = iter(outputs)
    WORK._controller(ClientState.blank())
    net, kept = WORK.net, WORK.net.decide
    net.decide = lambda steps, valid: np.array([next(answers)])
    try:
        report, _ = give(WORK, budget, later, turns=3 if later else 1)
    except BadInput as error:
        assert "MetaNet proposed" in str(error) and any(math.isnan(v) for pair in outputs for v in pair)
        return
    finally:
        net.decide = kept
    assert cost(report.multipliers) <= budget and report.own.spent <= budget * (1 + 1e-12)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    proposals=st.lists(st.tuples(WILD, WILD), min_size=3, max_size=3), budget=st.sampled_from([0.0, 1e-9, 0.05, 3.0])
)
def test_whatever_is_proposed_the_budget_holds_or_the_error_is_clear(proposals, budget):
    """Here (C, z) itself is anything, as if nothing stood between the network and the step."""
    answers = iter(proposals)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "read", lambda *_: next(answers))
        try:
            report, _ = give(WORK, budget)
        except BadInput as error:
            assert "MetaNet proposed" in str(error) or "fixed-point grid" in str(error)
            assert "\n" not in str(error)
            return
    assert cost(report.multipliers) <= budget and report.own.spent <= budget * (1 + 1e-12)
    assert all(z >= 0.3 for z in report.multipliers)


@pytest.mark.parametrize("way", [-9.0, 9.0])
def test_a_bound_that_is_driven_one_way_for_ever_stays_within_reach(way):
    """Gradients that vanish (a client whose only class is learnt) leave no bound small enough; the run must go on."""
    WORK._controller(ClientState.blank())
    net, kept = WORK.net, WORK.net.decide
    net.decide = lambda steps, valid: np.array([(way, 0.0)])
    try:
        own, bounds = replace(ClientState.blank(), turns=1), []
        for _ in range(5):
            report, _ = give(WORK, 3.0, own=own)
            bounds += report.bounds
            own = replace(report.own, unspent=0.0)
    finally:
        net.decide = kept
    assert bounds[-1] == pytest.approx(WORK.plan.bound * features.ASTRAY ** math.copysign(1, way))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0, -2.0, 1e9])
def test_an_unusable_multiplier_stops_before_any_record_is_drawn(monkeypatch, bad):
    steps = work()
    monkeypatch.setattr(features, "read", lambda *_: (1.0, bad))
    monkeypatch.setattr(steps, "_step", lambda *_: pytest.fail("data was touched"))
    with pytest.raises(BadInput, match="proposed a multiplier"):
        give(steps)


def test_each_step_is_paid_before_any_record_is_drawn(monkeypatch):
    """The budget goes down before the mechanism runs, and a refused proposal is asked again at the even multiplier."""
    from sordino.privacy.round_budget import RoundBudget

    steps, order = work(), []
    request, real = RoundBudget.request, steps._step
    monkeypatch.setattr(RoundBudget, "request", lambda self, cost: (order.append("pay"), request(self, cost))[1])
    monkeypatch.setattr(steps, "_step", lambda *a: (order.append("step"), real(*a))[1])
    monkeypatch.setattr(features, "read", lambda kind, outputs, bound, even: (bound, 0.4))  # far too little noise
    report, _ = give(steps, budget=0.05, later=0.0, turns=1)
    assert order == ["pay", "step"] * 3
    assert all(z > 1 for z in report.multipliers) and cost(report.multipliers) > 0.95 * 0.05


def test_a_client_out_of_budget_sits_out(monkeypatch):
    steps = work()
    monkeypatch.setattr(steps, "_step", lambda *_: pytest.fail("data was touched"))
    report, out = give(steps, budget=0.0, later=0.0, turns=1)
    assert report.multipliers == () and not out.any() and report.own.spent == 0.0


def test_the_noise_is_z_times_c(monkeypatch):
    """Gradients of zero, so that what is released is noise alone; the right size is accepted, two thirds and 3/2 are not."""
    steps = work(batch_size=60, lr=1.0)  # one step; nothing sampled
    steps.per_example.clipped_sum = lambda x, y, bound, seed=None: (np.zeros(10), np.zeros(len(y)))
    for bound, z in ((0.5, 2.0), (7.0, 0.9)):
        monkeypatch.setattr(features, "read", lambda *_, pair=(bound, z): pair)
        seen = []
        real = steps._step
        monkeypatch.setattr(steps, "_step", lambda *a, real=real, seen=seen: (seen.append(r := real(*a)), r)[1])
        for t in range(1, 121):
            give(steps, budget=50.0, later=50.0, round=t)
        monkeypatch.setattr(steps, "_step", real)
        drawn = np.concatenate([gradient / steps.plan.bound * bound for gradient, _ in seen]) * 60
        right = z * bound / math.sqrt(1 - steps.rule.share)  # the count takes its share of the step

        def plausible(std, drawn=drawn):
            ratio = float(np.mean(np.square(drawn / std)))
            return abs(ratio - 1) < 5 * math.sqrt(2 / drawn.size)

        assert plausible(right) and not plausible(right * 2 / 3) and not plausible(right * 3 / 2)


def test_only_released_values_steer(monkeypatch):
    """Two data sets, but the same releases: the controller does the very same."""

    def run(flip):
        federation = population()
        steps = work(federation=federation)
        steps.per_example.clipped_sum = lambda x, y, bound, seed=None: (
            np.zeros(10),
            np.full(len(y), 0.1 if flip else 100.0),
        )
        # What the door lets out is scripted; all that lies before it differs between the two.
        monkeypatch.setattr(StepDoor, "answer", lambda self, *asked: Answer(np.array([-3.0]), self.units, 1.0))
        monkeypatch.setattr(certified, "check_released", lambda *said: None)
        return give(steps)

    (one, out), (other, again) = run(False), run(True)
    assert one.bounds == other.bounds and one.multipliers == other.multipliers
    assert np.array_equal(one.own.net, other.own.net) and np.array_equal(one.own.rows, other.own.rows)
    assert np.array_equal(out, again)


def test_the_feedback_has_a_gradient():
    """Larger beta, more of the budget spent: the tuned network asks for more noise. As printed it would change nothing."""

    def asked(beta, spent):
        steps = work(options={"beta": beta, "lam": 0.0, "utility": 0.0, "tune": 0.05})
        own = replace(ClientState.blank(), turns=2, spent=spent)
        for t in range(1, 6):
            report, _ = give(steps, own=own, round=t)
            own = replace(report.own, spent=spent, rows=own.rows, bound=0.0)
        steps.net.take(own.net)
        rows = [features.Look(0.2, 0.0, 0.05, 0.05, 4.0, 0.5, 0.5).row()] * 5
        return features.read("certified", steps.net.decide(*features.stack([rows], 7))[0].tolist())[1]

    assert asked(1.0, 0.9) > asked(0.1, 0.9) > asked(0.0, 0.9)
    assert asked(1.0, 0.9) > asked(1.0, 0.05)


def test_tuning_that_goes_wrong_changes_nothing():
    steps = work()
    net = steps._controller(ClientState.blank())
    before = net.personal
    steps._descend(net, net(torch.full((1, 5, 7), math.nan), torch.ones(1, 5, dtype=torch.bool)).sum())
    assert np.array_equal(net.personal, before)


def test_held_controllers_keep_bound_and_even_multiplier():
    report, _ = give(work(options={"hold": 1}, bound=3.0), budget=0.05, later=0.1, turns=3)
    assert report.bounds == (3.0,) * 3 and report.own.net.size == 0
    assert max(report.multipliers) == pytest.approx(min(report.multipliers), rel=1e-3)


def test_the_same_errand_gives_the_same_bits():
    (one, out), (two, again) = give(work()), give(work())
    assert np.array_equal(out, again) and one.bounds == two.bounds and np.array_equal(one.own.net, two.own.net)
    assert isinstance(one, Report)


# --- as published -----------------------------------------------------------------------------------------------------


def test_published_statistics_are_those_of_equation_4():
    steps = work(PublishedSteps, variant="published")
    x, y = steps.site.client(0)
    row = steps._statistics(steps.per_example.clipper(x[:20], y[:20]), drift=0.3)
    gradients = steps.per_example.rows(x[:20], y[:20]).astype(float)
    mean = gradients.mean(0)
    trace = np.trace(np.cov(gradients.T))
    variance = np.mean([np.sum((g - mean) ** 2) for g in gradients])
    largest = max(np.linalg.norm(g) for g in gradients)
    assert row == pytest.approx(np.log10([trace, largest, 0.3, variance]), abs=1e-5)


@pytest.mark.parametrize(("reading", "std"), [({"on_sum": 0}, 0.7), ({"on_sum": 1}, 0.7 / 20), ({}, 0.7 / 20)])
def test_published_noise_is_sigma_on_the_mean_or_on_the_sum_of_a_batch(reading, std):
    steps = work(PublishedSteps, variant="published", options=reading)
    rng = np.random.Generator(np.random.PCG64(1))
    drawn = np.concatenate(
        [steps._noisy(lambda bound: (np.zeros(10), np.zeros(20)), 3.0, 0.7, rng) for _ in range(200)]
    )
    assert abs(np.mean(np.square(drawn / std)) - 1) < 5 * math.sqrt(2 / drawn.size)


def test_published_regulariser_draws_the_proxy_to_the_target():
    """Equation 12 update_cosines C/sigma sqrt(2 ln(1.25/delta)) towards epsilon; beta, as printed, does nothing at all."""

    def after(beta):
        steps = work(PublishedSteps, variant="published", options={"beta": beta, "tune": 0.05})
        own, ratios = ClientState.blank("published"), []
        for t in range(1, 30):
            report, _ = give(steps, own=own, round=t)
            own = report.own
            ratios.append(report.bound / report.sigma * math.sqrt(2 * math.log(1.25e5)))
        return own.net, ratios

    net, ratios = after(0.1)
    assert abs(math.log(ratios[-1] / 2.0)) < abs(math.log(ratios[0] / 2.0)) / 2
    assert np.array_equal(net, after(1.0)[0])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(outputs=st.lists(st.tuples(WILD, WILD), min_size=3, max_size=3))
@example(outputs=[(math.log(1e-9), 0.0)] * 3)  # noise far larger than the bound
@example(outputs=[(math.log(1e-12), math.log(1e4))] * 3)
@example(outputs=[(math.log(1e-11), math.log(1e11))] * 3)
@example(outputs=[(math.log(1e11), math.log(1e-11))] * 3)
def test_published_steps_take_any_output_or_say_what_is_wrong(outputs):
    answers = iter(outputs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PRINTED.net, "decide", lambda steps, valid: np.array([next(answers)]))
        try:
            report, _ = give(PRINTED, own=ClientState.blank("published"))
        except BadInput as error:
            assert "MetaNet proposed" in str(error) and "\n" not in str(error)
            return
    assert 1e-12 <= report.sigma <= 1.001e12 and math.isfinite(report.bound)
