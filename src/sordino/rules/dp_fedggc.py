"""DP-FedGGC: clipping in groups of coordinates, each with its own bound (Liu et al., ACM Multimedia Asia; we know the
idea, not its rule for the groups).

A group is a parameter tensor here, and the plan's bound C is shared equally: C_g = C / sqrt(G) for G groups, as
McMahan et al. 2018 do for layers. The joint sensitivity is sqrt(sum C_g^2) = C. (Noise of z C_g in each group would
be a multiplier of z/sqrt(G) only: the usual mistake.)

Published: noise of the same standard deviation z C in every coordinate. Certified: the split over groups that spends
the same privacy, sum_g (C_g / sigma_g)^2 = z^-2, with the least noise energy, sigma_g^2 in proportion to C_g /
sqrt(d_g).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sordino.privacy.bounds import EvenlyNoised, Grouped
from sordino.rules.fixed import Fixed

if TYPE_CHECKING:
    from sordino.methods import RuleContext

GUESS = "Liu et al. 2022 was not read; DP-FedACN says only that groups have bounds of their own: groups, bounds and noise are our guess."


def certified(setting: RuleContext) -> Fixed:
    return Fixed(Grouped(setting.sizes, _equal(setting)))


def published(setting: RuleContext) -> Fixed:
    return Fixed(EvenlyNoised(setting.sizes, _equal(setting)))


def _equal(setting: RuleContext) -> tuple[float, ...]:
    groups = len(setting.sizes)
    return (setting.plan.bound / math.sqrt(groups),) * groups
