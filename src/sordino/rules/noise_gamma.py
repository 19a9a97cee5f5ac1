"""noise_gamma: the bound, and with it the noise, shrinks by a constant factor after every local epoch (Sartaj et al.
2025, Federated learning with differential privacy: decreasing noise mechanism, section 4.2).

    C <- gamma C after each local epoch, so C = C_0 gamma^e in local epoch e = 0, 1, ...
    Gaussian noise of std z C, z = sqrt(2 ln(1.25/delta))/epsilon (equation 2), or Laplace of scale C/epsilon (3)

The schedule is public and the multiplier constant, so that the shrinking costs no privacy; it shrinks the signal as
much as the noise. Published: each client clips and noises after every local epoch (`schemes.epochs`), epsilon is that of
one release, and Laplace noise follows L2 clipping. Certified: every release is composed, and for Laplace noise clipping
is in the L1 norm. Where the noise is not the clients' own (observers `public` and `secagg-server`) a sum exists once a
round only, and is released once a round; E local epochs then shrink the bound by gamma^E.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sordino.errors import positive, rate
from sordino.privacy.bounds import L1, Bound, Flat
from sordino.privacy.vocabulary import Observer, Unit
from sordino.rules import claims
from sordino.rules.base import RoundOutput, State
from sordino.rules.quantile import clamp
from sordino.rules.query import Answer
from sordino.rules.schedule import Scheduled

if TYPE_CHECKING:
    from sordino.methods import RuleContext
    from sordino.plan import Plan

REASONS = (
    "Nothing is composed: epsilon is that of a single release, while every local epoch of every round makes one.",
    "Laplace noise is paired with L2 clipping: the L1 norm may be sqrt(d) times larger, and the true epsilon with it.",
    "The classical formula for Gaussian noise holds for epsilon below 1 only, and is used up to 5.",
    "The paper's epsilon is for one record that is replaced by another, which moves what is clipped by twice the bound; the noise is for "
    "once the bound.",
)


def reasons_of(plan: Plan) -> tuple[str, ...]:
    """True of this run: of its noise, and of how often it releases."""
    releases, laplace, _, replaced = REASONS
    by_epoch = plan.unit == Unit.CLIENT and plan.observer == Observer.SERVER
    if not by_epoch:
        releases = "Nothing is composed: epsilon is that of a single release, while every round makes one at least."
    told = [releases] if plan.rounds * (plan.local_epochs if by_epoch else 1) > 1 else []
    if plan.mechanism == "laplace":
        told.append(laplace)
    elif (said := _claimed(plan)) >= 1:
        told.append(
            f"The classical formula for Gaussian noise holds for epsilon below 1 only, and is used for {said:.4g}."
        )
    return (*told, replaced)


def _claimed(plan: Plan) -> float:
    return claims.classical(plan.multiplier, plan.delta) if plan.multiplier is not None else plan.epsilon or 0.0


@dataclass(frozen=True)
class Shrinking(Scheduled):
    """`start` times gamma to the number of local epochs so far."""

    start: float
    gamma: float = 0.9995
    kind: type[Flat] | type[L1] = Flat

    def __post_init__(self) -> None:
        positive(bound=self.start)
        rate(gamma=self.gamma)

    def init(self) -> State:
        return {"epoch": 0}

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return self.kind(clamp(self.start * self.gamma ** max(0, state["epoch"])))

    def observe(self, state: State, seen: RoundOutput) -> State:
        return {"epoch": state["epoch"] + seen.epochs}

    def skip(self, state: State, round: int, epochs: int) -> State:
        return {"epoch": state["epoch"] + epochs}


@dataclass(frozen=True)
class L2ForLaplace(Flat):
    """Clips the L2 norm, and passes for a bound on the L1 norm, which Laplace noise needs: as the paper has it."""

    kind: ClassVar[str] = "l2-for-laplace"
    norm_kind: ClassVar[str] = "l1"
    honest: ClassVar[bool] = False

    def scale(self, multiplier: float) -> float:
        return multiplier * self.bound

    def std(self, multiplier: float) -> float:
        return math.sqrt(2.0) * self.scale(multiplier)

    def to_json(self) -> dict[str, object]:
        return {"kind": self.kind, "bound": self.bound}


def certified(setting: RuleContext, *, gamma: float = 0.9995) -> Shrinking:
    plan = setting.plan
    return Shrinking(plan.bound, gamma, L1 if plan.mechanism == "laplace" else Flat)


def published(setting: RuleContext, *, gamma: float = 0.9995) -> Shrinking:
    plan = setting.plan
    return Shrinking(plan.bound, gamma, L2ForLaplace if plan.mechanism == "laplace" else Flat)


def claim(plan: Plan, multiplier: float, rate: float | None = None, releases: int | None = None) -> float:
    """The epsilon of one release, as equations 2 and 3 have it."""
    return 1 / multiplier if plan.mechanism == "laplace" else claims.classical(multiplier, plan.delta)
