"""Automatic clipping: every contribution is scaled to nearly the same length, C v / (|v| + gamma) (Bu et al. 2023,
Automatic clipping: differentially private deep learning made easier and stronger). Nothing adapts, and nothing needs
to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sordino.privacy.bounds import Automatic, Bound
from sordino.rules.base import NOTHING, Asked, Seen, State
from sordino.rules.query import Answer

if TYPE_CHECKING:
    from sordino.methods import Setting


@dataclass(frozen=True)
class AutomaticClipping:
    """Always the same scaling."""

    limit: Automatic

    def init(self) -> State:
        return {}

    def query(self, state: State) -> Asked:
        return NOTHING

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return self.limit

    def observe(self, state: State, seen: Seen) -> State:
        return state


def certified(setting: Setting, *, gamma: float = 0.01) -> AutomaticClipping:
    return AutomaticClipping(Automatic(setting.plan.bound, gamma))
