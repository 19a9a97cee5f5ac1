"""From a plan to its terms: the multiplier that the budget asks for, or the rounds that the budget allows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sordino.errors import BadInput, BudgetRefused
from sordino.federation.sizes import PublicSizes
from sordino.privacy import calibration
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from sordino.plan import Plan


def settle(plan: Plan, public: PublicSizes) -> Terms:
    """Terms of a plan whose rounds follow a schedule."""
    if plan.claim is not None:
        return Terms(plan, public, _as_published(plan, public), plan.rounds)
    if plan.multiplier is None:
        return _calibrate(plan, public)
    if plan.epsilon is None:
        return Terms(plan, public, plan.multiplier, plan.rounds)
    return _within(plan, public, plan.multiplier, plan.epsilon)


def check_clients(plan: Plan, public: PublicSizes) -> None:
    """Refuse data whose number of clients is not that of the plan."""
    if public.clients != plan.clients:
        raise BadInput(f"the plan is for {plan.clients} clients and the data has {public.clients}; make them agree.")


def _calibrate(plan: Plan, public: PublicSizes) -> Terms:
    """With the least scale of noise at which the whole run stays within epsilon."""
    assert plan.epsilon is not None
    terms = Terms(plan, public, 1.0, plan.rounds)
    return terms.at(calibration.scale_for(lambda z: terms.at(z).total, plan.epsilon, plan.delta, terms.relation))


def _within(plan: Plan, public: PublicSizes, z: float, epsilon: float) -> Terms:
    """As many of the plan's rounds as the budget covers; none at all is a refusal."""
    low, high = 0, plan.rounds
    while low < high:
        middle = (low + high + 1) // 2
        if Terms(plan, public, z, middle).spent.epsilon <= epsilon:
            low = middle
        else:
            high = middle - 1
    if low == 0:
        one = Terms(plan, public, z, 1).spent.epsilon
        raise BudgetRefused(
            f"one round at multiplier {z:g} costs epsilon {one:.3g}, and the budget is {epsilon:g}; "
            "raise multiplier, or leave it out to have it calibrated."
        )
    return Terms(plan, public, z, low)


def _as_published(plan: Plan, public: PublicSizes) -> float:
    """The multiplier at which the paper's own accounting prints the epsilon that was asked for."""
    if plan.multiplier is not None:
        return plan.multiplier
    assert plan.epsilon is not None
    claim, told = plan.claim, Terms(plan, public, 1.0, plan.rounds).claim_inputs
    assert claim is not None
    if claim(plan, 0.5, *told) == claim(plan, 50.0, *told):  # a mere label, that no noise is derived from
        return _calibrate(plan.replace(variant="certified"), public).multiplier
    low, high = 1e-3, 1e4
    for _ in range(60):
        middle = math.sqrt(low * high)
        said = claim(plan, middle, *told)
        if said is None or said <= plan.epsilon:
            high = middle
        else:
            low = middle
    return high
