"""DP-FedDDC: the bound falls and the privacy spent per round grows, both by public schedules (Du et al. 2021, Dynamic
differential-privacy preserving SGD, arXiv 2111.00173), with rounds for steps and client updates for gradients:

    C_t = C_0 rho_C^(-t/T),   mu_t = mu_0 rho_mu^(t/T),   z_t = 1/mu_t,   t = 1 .. T

The two rates are given by their end ratios, as in the authors' code: `clip_end` = C_T/C_0 and `mu_start` = mu_0/mu_T.

Published: mu_0 is solved from mu_tot = q sqrt(sum_t (exp(mu_t^2) - 1)), the central limit theorem for subsampled
Gaussians. That is an approximation and no upper bound: the true epsilon is larger by a tenth or so. Certified: the
same schedules, composed exactly by the accountant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sordino.errors import positive, whole
from sordino.errors import rate as fraction
from sordino.privacy.bounds import Bound, Flat
from sordino.rules import claims
from sordino.rules.schedule import Scheduled

if TYPE_CHECKING:
    from sordino.methods import RuleContext
    from sordino.plan import Plan

REASONS = (
    "The paper's epsilon comes from a central limit theorem, which approximates it from below and does not bound it.",
)
MU_START = 0.8


@dataclass(frozen=True)
class Dynamic(Scheduled):
    """The schedule of the bound."""

    start: float
    rounds: int
    clip_end: float = 0.3

    def __post_init__(self) -> None:
        positive(bound=self.start)
        whole(rounds=self.rounds)
        fraction(clip_end=self.clip_end)

    def at(self, round: int) -> Bound:
        return Flat(self.start * self.clip_end ** (min(round, self.rounds) / self.rounds))


def certified(setting: RuleContext, *, clip_end: float = 0.3, mu_start: float = MU_START) -> Dynamic:
    fraction(mu_start=mu_start)
    return Dynamic(setting.plan.bound, setting.plan.rounds, clip_end)


def schedule(plan: Plan) -> list[float]:
    """The multiplier of each round as a multiple of z_0 = 1/mu_0: rho_mu^(-t/T)."""
    mu_start = plan.options.get("mu_start", MU_START)
    fraction(mu_start=mu_start)
    return [mu_start ** (t / plan.rounds) for t in range(1, plan.rounds + 1)]


def claim(plan: Plan, multiplier: float, rate: float | None = None, releases: int | None = None) -> float:
    """The epsilon of the central limit theorem, when z_0 is `multiplier`."""
    mus = [1 / (multiplier * r) for r in schedule(plan)]
    return claims.clt(mus, claims.taking_part(plan, rate), plan.delta)
