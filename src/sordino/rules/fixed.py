"""A bound that never changes: DP-FedAvg (McMahan et al. 2018) and plain DP-SGD (Abadi et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sordino.errors import positive
from sordino.privacy.bounds import L1, Bound, Flat
from sordino.rules.base import NOTHING, Asked, Seen, State
from sordino.rules.query import Answer

if TYPE_CHECKING:
    from sordino.methods import Setting


@dataclass(frozen=True)
class Fixed:
    """Clip everything to `start`, always; for Laplace noise in the L1 norm."""

    start: float = 1.0
    laplace: bool = False

    def __post_init__(self) -> None:
        positive(bound=self.start)

    def init(self) -> State:
        return {}

    def query(self, state: State) -> Asked:
        return NOTHING

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return L1(self.start) if self.laplace else Flat(self.start)

    def observe(self, state: State, seen: Seen) -> State:
        return state


def certified(setting: Setting) -> Fixed:
    return Fixed(setting.plan.bound, setting.plan.mechanism == "laplace")
