"""A bound that never changes: DP-FedAvg (McMahan et al. 2018) and plain DP-SGD (Abadi et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sordino.privacy.bounds import L1, Bound, Flat
from sordino.privacy.vocabulary import Unit
from sordino.rules.base import NOTHING, Queries, RoundOutput, State
from sordino.rules.query import Answer

if TYPE_CHECKING:
    from sordino.methods import RuleContext
    from sordino.plan import Plan


@dataclass(frozen=True)
class Fixed:
    """Clip everything to `limit`, always."""

    limit: Bound

    def init(self) -> State:
        return {}

    def query(self, state: State) -> Queries:
        return NOTHING

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return self.limit

    def observe(self, state: State, seen: RoundOutput) -> State:
        return state


def differs(plan: Plan) -> tuple[str, ...]:
    """From McMahan et al. 2018, in the client unit."""
    if plan.unit != Unit.CLIENT:
        return ()
    return ("An update is clipped once, at the end of local training; the paper also clips it after every local step.",)


def certified(setting: RuleContext) -> Fixed:
    """In the L1 norm for Laplace noise."""
    return Fixed((L1 if setting.plan.mechanism == "laplace" else Flat)(setting.plan.bound))
