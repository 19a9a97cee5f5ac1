"""What every filter can do."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, TypedDict

from sordino.privacy.events import Event
from sordino.privacy.vocabulary import Relation


class FilterJson(TypedDict, total=False):
    """A filter as a ledger keeps it. `kind` and `granted` are always there, the rest as the kind needs it."""

    kind: str
    epsilon: float
    delta: float
    relation: str
    order: float
    spent: str  # as `exact.pack` writes it
    accountant: str
    schedule: list[tuple[dict[str, object], int]]  # an event and how often
    reason: str
    granted: int


class Filter(ABC):
    """One budget. `request` charges an event or raises `BudgetRefused` and charges nothing."""

    kind: ClassVar[str]
    currency: ClassVar[str]  # what `spent` and `left` are counted in, in words
    epsilon: float  # what holds however far the budget is spent
    delta: float
    relation: Relation | None
    granted: int = 0

    @abstractmethod
    def price(self, event: Event) -> float:
        """What `event` would cost, in the filter's currency; infinite if no budget could cover it."""

    @abstractmethod
    def affords(self, event: Event) -> bool:
        """Whether `request` would grant `event` now."""

    @abstractmethod
    def times(self, event: Event) -> float:
        """How often in a row `request` would grant `event` from now on (infinite if for ever)."""

    @abstractmethod
    def request(self, event: Event) -> None:
        """Charge `event`, or raise `BudgetRefused` and leave everything as it was."""

    @property
    @abstractmethod
    def spent(self) -> float:
        """What was granted so far, in the filter's currency."""

    @property
    @abstractmethod
    def left(self) -> float:
        """What may still be granted, in the same currency; infinite if there is no budget."""

    @property
    def share(self) -> float:
        """The part of the budget that is spent, from 0 to 1; 0 where there is no budget."""
        total = self.spent + self.left
        return min(1.0, self.spent / total) if total > 0 and math.isfinite(total) else 0.0

    @abstractmethod
    def to_json(self) -> FilterJson:
        """The budget and what is spent of it, as the ledger's first line holds it."""

    @classmethod
    @abstractmethod
    def from_json(cls, data: FilterJson) -> Filter:
        """The filter that `to_json` described."""

    def __repr__(self) -> str:
        spent, left = f"{self.spent:.6g}", f"{self.left:.6g}"
        return f"{type(self).__name__}(epsilon={self.epsilon}, delta={self.delta}, spent={spent}, left={left})"
