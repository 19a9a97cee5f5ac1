"""Who takes part in a round: a pure function of (seed, round), drawn before any data is touched.

Poisson: every client flips its own coin; the cohort's size varies and may be 0. Fixed: so many, without replacement. None:
everyone. Where a sum is to hide single messages that need no other protection, a cohort too small for that is nobody. A Poisson draw over a million clients costs a binomial and a choice, not a million coins.
"""

from __future__ import annotations

import numpy as np

from sordino.plan import Plan
from sordino.privacy.randomness import SERVER, stream
from sordino.privacy.vocabulary import Sampling, Unit


def draw(plan: Plan, round: int) -> np.ndarray:
    """The clients of this round, in increasing order."""
    drawn = _draw(plan, round)
    return drawn if len(drawn) >= plan.min_cohort else drawn[:0]


def _draw(plan: Plan, round: int) -> np.ndarray:
    if (
        plan.pooled
        or plan.cohort_size == plan.clients
        and plan.sampling != Sampling.POISSON
        or plan.sampling == Sampling.NONE
    ):
        return np.arange(plan.clients)
    if plan.unit == Unit.EXAMPLE and plan.cohort_size == plan.clients:
        return np.arange(plan.clients)
    coins = stream(plan.seed, round, SERVER, "cohort")
    count = plan.cohort_size if plan.sampling == Sampling.FIXED else int(coins.binomial(plan.clients, rate(plan)))
    return np.sort(coins.choice(plan.clients, count, replace=False, shuffle=False))


def rate(plan: Plan) -> float:
    """The probability with which each client takes part."""
    return plan.cohort_size / plan.clients


def participations(plan: Plan) -> int:
    """The largest number of rounds that any one client takes part in; known beforehand, since draws ignore the data."""
    if plan.sampling == Sampling.NONE or plan.cohort_size == plan.clients:
        return plan.rounds
    return max(1, int(turns(plan).max()))


def turns(plan: Plan) -> np.ndarray:
    """How many rounds each client is drawn for."""
    counts = np.zeros(plan.clients, np.int64)
    for t in range(1, plan.rounds + 1):
        counts[draw(plan, t)] += 1
    return counts
