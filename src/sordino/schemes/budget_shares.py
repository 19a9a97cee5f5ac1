"""What the prelude and the test on held-out records take of a budget, as the multipliers of their noise.

Gaussians add up in 1/z^2: if one release at multiplier z takes a whole budget, one at z / sqrt(s) takes the share s of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sordino.privacy import gdp
from sordino.privacy.vocabulary import Relation

if TYPE_CHECKING:
    from sordino.plan import Plan

TEST_SHARE = 0.05  # of the budget: what a test on held-out records takes in the client unit
MOST = 1e6  # a multiplier beyond which nothing is left of a figure


def prelude_multipliers(plan: Plan, relation: Relation) -> tuple[float, ...]:
    """The noise of each statistic: together they take the preparation's share of the budget, as Gaussians add up in 1/z^2.

    Where a plan gives a multiplier and no epsilon, the share is that of one round without sampling. 0: no noise.
    """
    if plan.preparation is None:
        return ()
    statistics, share = plan.preparation.statistics, plan.preparation.share
    whole = whole_budget(plan, relation)
    return tuple(rounded_up(whole / math.sqrt(share * one.part)) for one in statistics)


def whole_budget(plan: Plan, relation: Relation) -> float:
    """The multiplier of one release without sampling that would take the whole budget; 0: the plan has no noise."""
    if plan.epsilon is not None:
        return multiplier_for(plan.epsilon, plan.delta, relation)
    return plan.multiplier or 0.0


def multiplier_for(epsilon: float, delta: float, relation: Relation) -> float:
    """The multiplier of one release without sampling that costs this epsilon."""
    return (2.0 if relation == Relation.REPLACE_ONE else 1.0) / gdp.mu(epsilon, delta)


def rounded_up(z: float) -> float:
    """z with five digits, rounded up, so that two machines agree on it."""
    if z == 0:
        return 0.0
    digits = 4 - math.floor(math.log10(z))
    return math.ceil(z * 10.0**digits) / 10.0**digits
