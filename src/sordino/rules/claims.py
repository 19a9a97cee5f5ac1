"""What the papers' own accounting prints. None of it is a guarantee; it is shown beside what is proven."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sordino.plan import Plan

MOMENTS = range(2, 34)  # the orders of the moments accountant: lambda = 1 .. 32


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
    from dp_accounting import rdp as renyi

    q, count = taking_part(plan, rate), releases or plan.rounds
    return float(_accountant(renyi, None, q, multiplier, count).get_epsilon(plan.delta))


def moments(plan: Plan, multiplier: float, rate: float | None = None, releases: int | None = None) -> float:
    """The moments accountant of Abadi et al. 2016: whole orders, and epsilon = min (rdp + ln(1/delta)/(order - 1))."""
    from dp_accounting import rdp as renyi

    q, count = taking_part(plan, rate), releases or plan.rounds
    curve = _accountant(renyi, list(MOMENTS), q, multiplier, count)._rdp
    return float(min(r + math.log(1 / plan.delta) / (order - 1) for r, order in zip(curve, MOMENTS)))


def _accountant(renyi, orders, q: float, multiplier: float, count: int):
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    return renyi.RdpAccountant(orders).compose(PoissonSampledDpEvent(q, GaussianDpEvent(multiplier)), count)


def classical(this: float, delta: float) -> float:
    """sqrt(2 ln(1.25/delta)) / this: from a multiplier to epsilon, or back. Valid for epsilon below 1."""
    return math.sqrt(2 * math.log(1.25 / delta)) / this


def clt(mus: Sequence[float], q: float, delta: float) -> float:
    """Du et al. 2021: the rounds taken together as one Gaussian of mu = q sqrt(sum (exp(mu_t^2) - 1)).

    >>> round(clt([0.5] * 100, 0.1, 1e-5), 2)
    2.49
    """
    if max(mus) > 20:  # exp(400) and beyond: no epsilon that anyone would print
        return math.inf
    return gaussian_epsilon(q * math.sqrt(sum(math.expm1(mu**2) for mu in mus)), delta)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon of a mu-GDP mechanism: delta = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2)."""
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    def excess(epsilon: float) -> float:
        first, second = log_ndtr(-epsilon / mu + mu / 2), epsilon + log_ndtr(-epsilon / mu - mu / 2)
        return math.exp(first) - math.exp(min(second, 0.0)) - delta

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-10))

