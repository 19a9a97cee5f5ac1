"""Releases after every local epoch: what is drawn is what is charged, and a server cannot ask for less."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from populations import toy
from sordino.clients.site import Site
from sordino.errors import BadInput, NotPrivate
from sordino.federation.sizes import PublicSizes
from sordino.methods import RuleContext
from sordino.plan import Plan
from sordino.privacy import accounting, events
from sordino.privacy.vocabulary import Relation
from sordino.schemes import settle
from sordino.schemes.epochs import EpochRelease, EpochUpdates
from sordino.schemes.local import GRID, released_request

BASE = {
    "data": "toy", "clients": 2, "method": "noise-gamma", "unit": "client", "observer": "server", "sampling": "fixed",
    "rounds": 3, "local_epochs": 2, "multiplier": 1.5, "bound": 0.5, "options": {"gamma": 0.5},
}  # fmt: skip


def plan(**changes):
    return Plan(**(BASE | changes))


def work(linear, **changes):
    wanted, federation = plan(**changes), toy(2)
    terms = settle(wanted, PublicSizes.of(federation))
    site = Site(linear(), federation, wanted)
    rule = wanted.method_spec.build(RuleContext(wanted, (15, 3), terms.units, terms.multiplier))
    return EpochUpdates(site, site.flat.vector().numpy(), rule, terms), terms


def test_every_epoch_is_charged():
    terms = settle(plan(), PublicSizes.of(toy(2)))
    assert isinstance(terms.scheme, EpochRelease) and terms.scheme.steps(terms.public) == 2
    six = accounting.epsilon(events.repeated(events.gaussian(1.5), 6), 1e-5, Relation.ZERO_OUT)
    assert terms.spent.epsilon == pytest.approx(six.epsilon)
    laplace = settle(plan(mechanism="laplace", multiplier=2.0), PublicSizes.of(toy(2)))
    assert laplace.spent.epsilon <= 3.0 + 1e-9  # six releases of 1/2 each, or less
    # A budget buys more noise for more epochs.
    one, two = (settle(plan(local_epochs=e, multiplier=None, epsilon=4.0), PublicSizes.of(toy(2))) for e in (1, 2))
    assert two.multiplier > one.multiplier and type(one.scheme) is not EpochRelease


@pytest.mark.parametrize(("mechanism", "spread"), [("gaussian", 1.0), ("laplace", math.sqrt(2))])
def test_the_noise_of_each_epoch_is_that_of_its_bound(linear, mechanism, spread):
    """Gaussian: z C. Laplace of scale z C: sqrt(2) z C. Two thirds and three halves of it would be noticed."""
    steps, _ = work(linear, mechanism=mechanism)
    for bound, epoch in ((0.5, 0), (0.25, 1)):
        clip = steps.rule.bound({"epoch": epoch}, None)
        assert clip.size == bound
        drawn = np.concatenate([steps._release(np.zeros(18), clip, 1.5, t, 0, epoch) for t in range(300)])
        found = drawn.std() / (spread * 1.5 * bound)
        assert abs(found - 1) < 0.05


def test_a_huge_update_moves_the_client_by_the_bound_only(linear):
    steps, terms = work(linear, multiplier=1e-6)
    steps.update = lambda start, item, bound, batches: np.full(18, 1e6)
    out = np.zeros(18, np.int64)
    reply = steps.contribute(released_request(terms, 1, {"epoch": 0}), 0, out)
    assert np.linalg.norm(GRID.decode(out)) == pytest.approx(0.5 + 0.25, rel=1e-4)
    assert reply.report == {"epoch": 2}
    steps.update = lambda start, item, bound, batches: np.full(18, np.nan)
    out[:] = 0
    steps.contribute(released_request(terms, 1, {"epoch": 0}), 0, out)
    assert np.abs(GRID.decode(out)).max() < 1e-4  # counts as nothing


def test_a_lying_server_gets_no_less_noise(linear):
    steps, terms = work(linear)
    honest = released_request(terms, 1, {"epoch": 0})
    assert terms.scheme.expected(terms, steps.rule, honest, 0.0) == honest
    for lie in ({"multiplier": 0.1}, {"multiplier": None}, {"released": False}):
        with pytest.raises(NotPrivate):
            terms.scheme.expected(terms, steps.rule, dataclasses.replace(honest, **lie), 0.0)
    # The state only names an epoch: before the first there is none, and noise follows the bound at any.
    assert steps.rule.bound({"epoch": -(10**9)}, None).size == 0.5
    far = steps.rule.bound({"epoch": 10**6}, None)
    assert 0 < far.size < 1e-9 and far.std(1.5) == pytest.approx(1.5 * far.size)


def test_what_does_not_fit_is_refused():
    for changes, said in (
        ({"weights": "size", "weight_cap": 10}, "use uniform"),
        ({"canaries": 10}, "every local epoch makes one"),
        ({"defence": "soteria"}, "every local epoch makes one"),
    ):
        with pytest.raises(BadInput, match=said):
            plan(**changes)
