"""A bound that never changes: DP-FedAvg (McMahan et al. 2018) and plain DP-SGD (Abadi et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass

from sordino.errors import positive
from sordino.privacy.bounds import Bound, Flat
from sordino.rules.base import Seen, State
from sordino.rules.query import Answer


@dataclass(frozen=True)
class Fixed:
    """Clip everything to `start`, always."""

    start: float = 1.0
    before = None
    beside = None

    def __post_init__(self) -> None:
        positive(bound=self.start)

    def init(self) -> State:
        return {}

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return Flat(self.start)

    def observe(self, state: State, seen: Seen) -> State:
        return state
