"""Who takes part in a round, and which records: drawn before any data is touched.

A cohort that the observer sees is public: it follows from the plan's seed, so everybody can count beforehand how often
each client takes part. A draw that amplification rests on must be secret. In a rehearsal it follows from the seed too,
and the statement says so; with secure noise it is drawn under a key from the operating system that is never written
down (a data holder keeps its own, see `engines.flower.holder_run`).

Poisson: every unit flips its own coin. Fixed: a fixed number of clients, without replacement. None: all of them.
A Poisson draw over a million clients costs one binomial and one choice, not a million coins.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from sordino.privacy.randomness import SERVER, stream
from sordino.privacy.vocabulary import Sampling

if TYPE_CHECKING:
    from sordino.plan import Plan


class Draws:
    """All draws of one run, or of one attempt at a data holder."""

    def __init__(self, plan: Plan, secret: int | None = None) -> None:
        """`secret` is the key of a secure plan's draws; None: a new one from the operating system."""
        self.plan = plan
        self._key = plan.seed
        if plan.secure:
            self._key = int.from_bytes(os.urandom(32), "little") if secret is None else secret

    def cohort(self, t: int) -> np.ndarray:
        """The clients of this round, in increasing order."""
        return _cohort(self.plan, self._key if self.plan.scheme.secret_cohort else self.plan.seed, t)

    def records(self, t: int, client: int, count: int, rate: float, purpose: str = "records") -> np.ndarray:
        """Which of a client's `count` records take part, each by its own coin of this rate."""
        return np.flatnonzero(stream(self._key, t, client, purpose).random(count) < rate)

    def secret(self, t: int, client: int, purpose: str) -> np.random.Generator:
        """Other draws of a client that must stay its own, such as the directions of a defence."""
        return stream(self._key, t, client, purpose)


def public_cohort(plan: Plan, t: int) -> np.ndarray:
    """The cohort that the plan's seed gives. Everyone can work it out, so no amplification may rest on it."""
    return _cohort(plan, plan.seed, t)


def _cohort(plan: Plan, key: int, t: int) -> np.ndarray:
    if plan.cohort_size == plan.clients:
        return np.arange(plan.clients)
    coins = stream(key, t, SERVER, "cohort")
    turn = plan.scheme.turn(t)
    if turn is not None:
        return turn[coins.random(len(turn)) < plan.scheme.turn_rate]
    count = plan.cohort_size if plan.sampling == Sampling.FIXED else int(coins.binomial(plan.clients, rate(plan)))
    drawn = np.sort(coins.choice(plan.clients, count, replace=False, shuffle=False))
    # A sum over fewer clients than this would be one client's own message: nobody is asked.
    return drawn if len(drawn) >= plan.scheme.min_cohort else drawn[:0]


def rate(plan: Plan) -> float:
    """The probability with which each client takes part."""
    return plan.cohort_size / plan.clients


def participations(plan: Plan, rounds: int) -> int:
    """The largest number of rounds that any one client takes part in, where the cohorts are public."""
    if plan.cohort_size == plan.clients:
        return rounds
    return max(1, int(turns(plan, rounds).max()))


def turns(plan: Plan, rounds: int) -> np.ndarray:
    """How many of the first `rounds` rounds each client is drawn for, where the cohorts are public."""
    counts = np.zeros(plan.clients, np.int64)
    for t in range(1, rounds + 1):
        counts[public_cohort(plan, t)] += 1
    return counts
