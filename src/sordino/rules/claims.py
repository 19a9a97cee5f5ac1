"""What the papers' own accounting prints. None of it is a guarantee; it is shown beside what is proven."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sordino.privacy import events, gdp
from sordino.privacy import rdp as renyi
from sordino.privacy.vocabulary import Relation

if TYPE_CHECKING:
    from sordino.plan import Plan

# Whole orders. The moments accountant used the first 32, with which it cannot print an epsilon below 0.3.
MOMENTS = np.array([*range(2, 34), 64, 128, 256, 512, 1024], float)


def taking_part(plan: Plan, rate: float | None = None) -> float:
    """The sampling rate that an accountant is told: as given, else that of clients."""
    if rate is not None:
        return rate
    return 1.0 if plan.cohort is None else plan.cohort / plan.clients


def label(plan: Plan, multiplier: float, rate: float | None = None, releases: int | None = None) -> float | None:
    """Epsilon as a label: no formula links it to the noise."""
    return plan.epsilon


def rdp(plan: Plan, multiplier: float, rate: float | None = None, releases: int | None = None) -> float:
    """The usual accountant in Renyi DP (as in Opacus), told the rate, the multiplier and the rounds, and no more."""
    curve = (releases or plan.rounds) * renyi.curve(_round(plan, multiplier, rate), Relation.ADD_REMOVE)
    return renyi.epsilon_of(curve, plan.delta)


def moments(plan: Plan, multiplier: float, rate: float | None = None, releases: int | None = None) -> float:
    """The moments accountant of Abadi et al. 2016: whole orders, and epsilon = min (rdp + ln(1/delta)/(order - 1))."""
    curve = (releases or plan.rounds) * renyi.curve(_round(plan, multiplier, rate), Relation.ADD_REMOVE, MOMENTS)
    return float(np.min(curve + math.log(1 / plan.delta) / (MOMENTS - 1)))


def _round(plan: Plan, multiplier: float, rate: float | None) -> events.Event:
    q = taking_part(plan, rate)
    return events.gaussian(multiplier) if q == 1 else events.poisson(q, events.gaussian(multiplier))


def classical(this: float, delta: float) -> float:
    """sqrt(2 ln(1.25/delta)) / this: from a multiplier to epsilon, or back. Valid for epsilon below 1."""
    return math.sqrt(2 * math.log(1.25 / delta)) / this


def clt(mus: Sequence[float], q: float, delta: float) -> float:
    """Du et al. 2021: the rounds taken together as one Gaussian of mu = q sqrt(sum (exp(mu_t^2) - 1)).

    >>> round(clt([1.25 ** (t / 4680) for t in range(1, 4681)], 256 / 60000, 1e-5), 2)
    1.85
    """
    if max(mus) > 20:  # exp(400) and beyond: no epsilon that anyone would print
        return math.inf
    return gdp.epsilon(delta, q * math.sqrt(sum(math.expm1(mu**2) for mu in mus)))
