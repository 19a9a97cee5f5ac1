"""A bound that never changes: DP-FedAvg (McMahan et al. 2018) and plain DP-SGD (Abadi et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sordino.privacy.bounds import L1, Bound, Flat
from sordino.rules.base import NOTHING, Asked, Seen, State
from sordino.rules.query import Answer

if TYPE_CHECKING:
    from sordino.methods import Setting


@dataclass(frozen=True)
class Fixed:
    """Clip everything to `limit`, always."""

    limit: Bound

    def init(self) -> State:
        return {}

    def query(self, state: State) -> Asked:
        return NOTHING

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return self.limit

    def observe(self, state: State, seen: Seen) -> State:
        return state


def certified(setting: Setting) -> Fixed:
    """In the L1 norm for Laplace noise."""
    return Fixed((L1 if setting.plan.mechanism == "laplace" else Flat)(setting.plan.bound))
