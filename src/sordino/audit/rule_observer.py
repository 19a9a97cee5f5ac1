"""A rule with someone who takes notes: the plan's own rule, and a look at everything that it is shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from sordino.privacy.bounds import Bound
from sordino.rules.base import Queries, RoundOutput, Rule, State
from sordino.rules.query import Answer
from sordino.rules.schedule import skipped


class RuleObserver(ABC):
    """Behaves as `rule` does; `note` sees what every round released, before the rule does."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rule, name)  # settings of its own that clients read

    def init(self) -> State:
        return self.rule.init()

    def query(self, state: State) -> Queries:
        return self.rule.query(state)

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return self.rule.bound(state, answer)

    def observe(self, state: State, seen: RoundOutput) -> State:
        self.note(state, seen)
        return self.rule.observe(state, seen)

    def skip(self, state: State, t: int, epochs: int) -> State:
        return skipped(self.rule, state, t, epochs)

    @abstractmethod
    def note(self, state: State, seen: RoundOutput) -> None:
        """Called once for every round."""
