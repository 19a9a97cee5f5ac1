"""Bounds that follow a public schedule: known before training, so that they cost no privacy.

A schedule moves once a round, however many releases a client makes in it, and also where nobody took part.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from sordino.privacy.bounds import Bound
from sordino.rules.base import NOTHING, Queries, RoundOutput, Rule, State
from sordino.rules.query import Answer


class Scheduled:
    """A rule whose bound depends on the round alone; subclasses are frozen dataclasses and say which it is."""

    def at(self, round: int) -> Bound:
        """The bound of this round, counted from 1."""
        raise AssertionError("a schedule says what its bounds are")

    def init(self) -> State:
        return {"round": 1}

    def query(self, state: State) -> Queries:
        return NOTHING

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return self.at(state["round"])

    def observe(self, state: State, seen: RoundOutput) -> State:
        return {"round": seen.round + 1} if seen.ends_round else state

    def skip(self, state: State, round: int, epochs: int) -> State:
        """The state after a round of so many local epochs that released nothing."""
        return {"round": round + 1}


@runtime_checkable
class Skips(Protocol):
    """A rule that a round without a release moves too."""

    def skip(self, state: State, round: int, epochs: int) -> State:
        """The state after a round of so many local epochs that released nothing."""


def skipped(rule: Rule, state: State, round: int, epochs: int) -> State:
    """A rule's state after a round that released nothing; rules that only learn from releases stay as they are."""
    return rule.skip(state, round, epochs) if isinstance(rule, Skips) else state
