"""Budgets of the clients' own: the committed order, the even multiplier, what a plan must give."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.errors import BadInput
from sordino.federation.sampling import public_cohort as draw
from sordino.federation.sizes import PublicSizes
from sordino.plan import Plan
from sordino.privacy import rdp
from sordino.schemes import settle as settle_any
from sordino.schemes.fedmap.budgets import Budgets, PublishedTerms, settle, step_costs

SIZES = np.array([40, 200, 80, 500, 120, 60, 64, 300])
PUBLIC = PublicSizes(8, SIZES)


def plan(**changes):
    base = {"clients": 8, "cohort": 3, "method": "fedmap", "observer": "server", "epsilon": 2.0, "rounds": 12}
    return Plan(**(base | {"batch_size": 32} | changes))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.0, 5.0, 20.0])
def test_the_even_multiplier_spends_the_whole_budget_of_the_client_that_is_charged_most(epsilon):
    terms = settle(plan(epsilon=epsilon), PUBLIC)
    assert isinstance(terms, Budgets) and isinstance(terms.order, int) and terms.order >= 2
    assert terms.spent.epsilon == epsilon and terms.spent.accountant == "rdp-filter"
    counts = np.bincount(np.concatenate([draw(terms.plan, t) for t in range(1, 13)]), minlength=8)
    assert np.array_equal(terms.turns, counts)
    room = rdp.budget(epsilon, 1e-5, terms.order)
    costs = []
    for n, turns in zip(SIZES, counts):
        steps = -(-n // 32)
        exact = rdp.poisson_gaussian(terms.order, min(1, 32 / n), terms.multiplier)
        costs.append(turns * steps * exact)
    assert max(costs) <= room
    assert max(costs) > 0.9 * room


def test_the_order_is_a_good_one():
    """No other whole order would let the typical client take less noise, by more than a hair."""
    terms = settle(plan(), PUBLIC)
    load = terms.turns * terms.steps
    typical = np.flatnonzero(load)[np.argsort(load[load > 0], kind="stable")[(load > 0).sum() // 2]]
    rate, count = terms.scheme.rate(int(SIZES[typical])), int(load[typical])

    def needed(order):
        room = rdp.budget(2.0, 1e-5, order)
        return step_costs(rate, order).multiplier(room / count)[0] if room > 0 else np.inf

    best = min(needed(order) for order in range(2, 129))
    assert needed(terms.order) <= 1.02 * best


def test_settling_goes_through_the_terms():
    assert isinstance(settle_any(plan(), PUBLIC), Budgets)
    printed = settle_any(plan(variant="published"), PUBLIC)
    assert isinstance(printed, PublishedTerms) and printed.claimed is None and not printed.proven
    assert len(printed.reasons) == 11


def test_one_size_for_all():
    terms = settle(plan(), PublicSizes(8, 100))
    assert terms.sizes.tolist() == [100] * 8 and terms.steps.tolist() == [4] * 8


def test_full_batches_have_no_amplification():
    terms = settle(plan(sampling="none", cohort=8), PUBLIC)
    assert terms.scheme.rate(500) == 1.0 and terms.multiplier > settle(plan(cohort=8), PUBLIC).multiplier


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"multiplier": 1.0}, "leave multiplier out"),
        ({"epsilon": None, "multiplier": 1.0}, "give epsilon"),
        ({"relation": "replace-one"}, "add-remove"),
        ({"epsilon": 1e-4}, "too small for a filter"),
    ],
)
def test_what_cannot_be_settled_is_refused(changes, said):
    with pytest.raises(BadInput, match=said):
        settle(plan(**changes), PUBLIC)


def test_only_local_clients_can_run_it():
    for changes in ({"observer": "public", "cohort": 8}, {"unit": "client", "sampling": "fixed"}):
        with pytest.raises(BadInput, match="fedmap does not run"):
            plan(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": 0.01, "rounds": 4000, "sampling": "none", "cohort": None, "batch_size": 8}, "nothing is learned"),
        ({"bound": 1e-14}, "bound 1e-14 lies outside 1e-08 to 1e.08"),
        ({"bound": 1e13}, "rescale"),
        ({"bound": 1e13, "variant": "published"}, "rescale"),
    ],
)
def test_what_no_step_could_be_run_with_is_refused_beforehand(changes, said):
    with pytest.raises(BadInput, match=said):
        settle(plan(**changes), PUBLIC)
