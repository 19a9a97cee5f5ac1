"""noise_gamma: the bound, and with it the noise, shrinks by a constant factor after every local epoch (Sartaj et al.
2025, Federated learning with differential privacy: decreasing noise mechanism, section 4.2).

    C <- gamma C after each local epoch, so C_t = C_0 gamma^(E (t-1))
    Gaussian noise of std z C_t, z = sqrt(2 ln(1.25/delta))/epsilon (equation 2), or Laplace of scale C_t/epsilon (3)

The schedule is public and the multiplier constant, so that the shrinking costs no privacy; it shrinks the signal as
much as the noise. Published: epsilon is that of one release, and Laplace noise follows L2 clipping. Certified: every
release is composed, and for Laplace noise clipping is in the L1 norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sordino.errors import positive, rate, whole
from sordino.privacy.bounds import L1, Bound, Flat
from sordino.rules import claims
from sordino.rules.quantile import clamp
from sordino.rules.schedule import Scheduled

if TYPE_CHECKING:
    from sordino.methods import RuleContext
    from sordino.plan import Plan

REASONS = (
    "Nothing is composed: epsilon is that of a single release, while every local epoch of every round makes one.",
    "Laplace noise is paired with L2 clipping: the L1 norm may be sqrt(d) times larger, and the true epsilon with it.",
    "The classical formula for Gaussian noise holds for epsilon below 1 only, and is used up to 5.",
    "One record is replaced by another, which moves a clipped sum by twice the bound; the noise is for once the bound.",
)


@dataclass(frozen=True)
class Shrinking(Scheduled):
    """`start` times gamma to the number of local epochs so far."""

    start: float
    gamma: float = 0.9995
    epochs: int = 1
    kind: type[Flat] | type[L1] = Flat

    def __post_init__(self) -> None:
        positive(bound=self.start)
        rate(gamma=self.gamma)
        whole(epochs=self.epochs)

    def at(self, round: int) -> Bound:
        return self.kind(clamp(self.start * self.gamma ** (self.epochs * (round - 1))))


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
    return Shrinking(plan.bound, gamma, plan.local_epochs, L1 if plan.mechanism == "laplace" else Flat)


def published(setting: RuleContext, *, gamma: float = 0.9995) -> Shrinking:
    plan = setting.plan
    return Shrinking(plan.bound, gamma, plan.local_epochs, L2ForLaplace if plan.mechanism == "laplace" else Flat)


def claim(plan: Plan, multiplier: float, rate: float | None = None, releases: int | None = None) -> float:
    """The epsilon of one release, as equations 2 and 3 have it."""
    return 1 / multiplier if plan.mechanism == "laplace" else claims.classical(multiplier, plan.delta)
