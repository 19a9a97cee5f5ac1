"""Each client its own DP-SGD: steps, rates and who is charged most, by hand."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from populations import toy  # noqa: E402
from sordino import Plan  # noqa: E402
from sordino.clients.site import Site  # noqa: E402
from sordino.federation.sizes import PublicSizes  # noqa: E402
from sordino.methods import RuleContext  # noqa: E402
from sordino.privacy import accounting, events  # noqa: E402
from sordino.schemes import settle  # noqa: E402
from sordino.schemes.local import GRID, LocalSteps, released_request  # noqa: E402


def plan(**settings) -> Plan:
    base = {
        "data": "toy",
        "clients": 12,
        "method": "dp-fedavg",
        "observer": "server",
        "multiplier": 1.5,
        "rounds": 3,
        "batch_size": 10,
    }
    return Plan(**(base | settings))


def test_steps_and_rates_follow_the_declared_size():
    scheme = plan(local_epochs=2).scheme
    assert [scheme.local_steps(n) for n in (5, 10, 11, 25)] == [2, 2, 4, 6]
    assert [scheme.rate(n) for n in (5, 10, 40)] == [1.0, 1.0, 0.25]
    assert scheme.client_round(2.0, 40) == events.repeated(events.poisson(0.25, events.gaussian(2.0)), 8)
    assert scheme.relation == "zero-out"  # the number of records decides the steps: it is public


def test_the_client_that_is_charged_most_over_the_whole_run_is_found():
    sizes = PublicSizes(3, np.array([10, 40, 41]))
    terms = settle(plan(clients=3), sizes)
    each = {
        n: accounting.epsilon(events.repeated(terms.scheme.client_round(1.5, n), 3), 1e-5, terms.relation).epsilon
        for n in (10, 40, 41)
    }
    assert terms.spent.epsilon == pytest.approx(max(each.values()))
    assert terms.scheme.most_charged(terms.exposed_multipliers, sizes) == max(each, key=each.get)


def work(linear, **settings):
    federation, wanted = toy(), plan(**settings)
    terms = settle(wanted, PublicSizes.of(federation))
    site = Site(linear(), federation, wanted)
    rule = wanted.method_spec.build(RuleContext(wanted, (15, 3), terms.units, terms.multiplier))
    return LocalSteps(site, site.flat.vector().numpy(), rule, terms), terms


def test_a_round_is_the_sum_of_its_steps(linear):
    """With a bound of 1, z = 1.5 and 10 records a batch, one coordinate of a step's mean has noise of 0.15."""
    steps, terms = work(linear, lr=1.0, bound=1.0)
    request = released_request(terms, 1, {})
    out = np.zeros(steps.theta.size, np.int64)
    reply = steps.contribute(request, 0, out)
    assert reply.report == steps.rule.init() and reply.noise == 0.0  # a fixed bound has no state to tell
    moved = GRID.decode(out)
    expected = 0.15 * np.sqrt(terms.scheme.local_steps(20) * moved.size)
    assert 0.4 * expected < np.linalg.norm(moved) < 3 * expected + 2


def test_one_step_has_the_noise_that_is_charged(linear):
    steps, _ = work(linear, bound=1e-6, sampling="none")  # the same 20 records every time: what varies is noise
    means = np.array([steps._step(t, 0, 0, {"round": 1}, 1.5)[0] for t in range(1, 400)])
    assert (means - means.mean(0)).std() == pytest.approx(1.5e-6 / 20, rel=0.03)


def test_draws_are_by_the_rate_that_is_charged(linear):
    steps, terms = work(linear)
    drawn = [len(steps.site.draws.records(t, 0, 20, terms.scheme.rate(20), "records-step-0")) for t in range(500)]
    assert np.mean(drawn) == pytest.approx(10, abs=0.5)
