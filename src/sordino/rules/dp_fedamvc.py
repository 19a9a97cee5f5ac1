"""DP-FedAMVC: the bound falls linearly over the rounds (after Yu et al. 2018, of which only "linear decay" is known
to us).

    C_t = C_0 - (C_0 - C_end) (t - 1)/(T - 1)

The schedule is public, so that it costs no privacy. Where it ends is our choice: a fifth of where it began. Whether the original is
private as published nobody here can tell: its text was not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sordino.errors import positive, rate, whole
from sordino.privacy.bounds import L1, Bound, Flat
from sordino.rules.schedule import Scheduled

if TYPE_CHECKING:
    from sordino.methods import RuleContext

GUESS = (
    "Yu et al. 2018 was not read; DP-FedACN says only that the bound decays linearly, and where it ends is our guess."
)


@dataclass(frozen=True)
class Linear(Scheduled):
    """From `start` to `end` times it."""

    start: float
    rounds: int
    end: float = 0.2
    laplace: bool = False

    def __post_init__(self) -> None:
        positive(bound=self.start)
        whole(rounds=self.rounds)
        rate(end=self.end)

    def at(self, round: int) -> Bound:
        passed = min(1.0, (round - 1) / max(1, self.rounds - 1))
        bound = self.start * (1 - (1 - self.end) * passed)
        return L1(bound) if self.laplace else Flat(bound)


def certified(setting: RuleContext, *, end: float = 0.2) -> Linear:
    return Linear(setting.plan.bound, setting.plan.rounds, end, setting.plan.mechanism == "laplace")
