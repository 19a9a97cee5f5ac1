"""Bounds that follow a public schedule: known before training, so that they cost no privacy."""

from __future__ import annotations

from sordino.privacy.bounds import Bound
from sordino.rules.base import NOTHING, Queries, RoundOutput, State
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
        return {"round": seen.round + 1}
