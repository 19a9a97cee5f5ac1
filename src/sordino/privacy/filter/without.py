"""A filter without a budget."""

from __future__ import annotations

import math

from sordino.errors import BadInput
from sordino.privacy.events import Event
from sordino.privacy.filter.base import Filter, FilterJson


class NoBudget(Filter):
    """Grants everything and counts it. It protects nothing by itself, and says why there is no budget."""

    kind = "none"
    currency = "releases, without a budget"

    def __init__(self, reason: str) -> None:
        if not reason or not reason.strip():
            raise BadInput("A run without a budget must say why; give a reason.")
        self.reason = reason
        self.epsilon, self.delta, self.relation = math.inf, 0.0, None

    def price(self, event: Event) -> float:
        return 0.0

    def affords(self, event: Event) -> bool:
        return True

    def times(self, event: Event) -> float:
        return math.inf

    def request(self, event: Event) -> None:
        self.granted += 1

    @property
    def spent(self) -> float:
        return float(self.granted)

    @property
    def left(self) -> float:
        return math.inf

    def to_json(self) -> FilterJson:
        return {"kind": self.kind, "reason": self.reason, "granted": self.granted}

    @classmethod
    def from_json(cls, data: FilterJson) -> NoBudget:
        made = cls(data["reason"])
        made.granted = int(data["granted"])
        return made

    def __repr__(self) -> str:
        return f"NoBudget({self.reason!r}, granted={self.granted})"
