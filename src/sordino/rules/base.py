"""The interface of a rule: how a method sets the bound from what has been released.

A rule is a frozen dataclass of public settings with pure functions. Its state is plain data (a dict of numbers and
lists), so that a checkpoint holds it. The same rule serves whole client updates and per-example gradients: it only
ever sees released answers about abstract units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from sordino.plain import Json
from sordino.privacy.bounds import Bound
from sordino.rules.query import Answer, Query

State = Json


@dataclass(frozen=True)
class RoundOutput:
    """What a round released, as a rule may use it."""

    round: int  # counted from 1
    bound: Bound  # under which this round clipped
    answer: Answer | None  # to the query beside the sum, if the rule has one
    mean: np.ndarray  # the noisy mean, decoded
    noise: float | np.ndarray  # std of the noise in that mean before decoding: public
    pre_clip: Answer | None = None  # to the query before the sum, if the rule has one
    epochs: int = 1  # local epochs that ended with this release; 0 in the middle of one
    ends_round: bool = True  # False where a client releases several times in a round, and this was not the last


class Queries(NamedTuple):
    """What a rule asks in a round; ``pre_clip, with_sum = rule.query(state)``."""

    pre_clip: Query | None = None  # of this round's units, before they are clipped
    with_sum: Query | None = None  # together with the clipped sum, for the rounds to come


NOTHING = Queries()


class Rule(Protocol):
    """How the bound is set."""

    def init(self) -> State:
        """The state before round 1; public."""

    def query(self, state: State) -> Queries:
        """What this round's units are asked. It may follow from the state, which is released; that changes no cost."""

    def bound(self, state: State, answer: Answer | None) -> Bound:
        """The bound of this round, from the state and the answer to `before`; without an answer, the last one known."""

    def observe(self, state: State, seen: RoundOutput) -> State:
        """The state after the round."""


def trust(noise: float, tolerance: float = 0.25) -> float:
    """How far to follow an answer whose noise has this standard deviation: all the way at 0, half way at `tolerance`.

    The noise is public, so this is post-processing. In a small cohort, where noise drowns the answer, the bound stays
    near where it is instead of walking at random.

    >>> trust(0.0), trust(0.25), round(trust(2.5), 2)
    (1.0, 0.5, 0.01)
    """
    return 1 / (1 + (noise / tolerance) ** 2)


def merge(states: Sequence[State]) -> State:
    """One state from several released ones (clients that ran the rule each for itself): the mean of every number.

    >>> merge([{"bound": 1.0, "round": 3}, {"bound": 2.0, "round": 3}])
    {'bound': 1.5, 'round': 3}
    """
    first = states[0]
    return {key: _mean([s[key] for s in states]) for key in first}


def _mean(values: list[object]) -> object:
    if all(v == values[0] for v in values):
        return values[0]
    return np.mean(np.asarray(values, float), axis=0).tolist()
