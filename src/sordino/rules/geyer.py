"""Geyer, Klein and Nabi 2017, Differentially private federated learning: a client level perspective (algorithm 1).

Published: the bound of a round is the median of the raw norms of its updates. This follows the paper; the code that
was published with it divides where it should multiply, so that large updates pass and small ones grow, and is not
followed.

Certified: the median from a noisy histogram of the round's norms (`histogram`), or with ``previous=1`` from noisy
bits (`quantile`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sordino.privacy.vocabulary import Sampling, Unit
from sordino.rules import adact
from sordino.rules.base import Rule
from sordino.rules.exact import ExactQuantile

if TYPE_CHECKING:
    from sordino.methods import RuleContext
    from sordino.plan import Plan

REASONS = (
    "The bound, and with it the noise, is the exact median of the cohort's raw norms: changing one client moves both.",
    "A cohort of fixed size is accounted for as if each client had flipped its own coin.",
)


def reasons_of(plan: Plan) -> tuple[str, ...]:
    """True of this run: of its unit, and of its cohorts."""
    raw, sampled = REASONS
    if plan.unit == Unit.EXAMPLE:
        raw = "The bound, and with it the noise, is the exact median of raw gradient norms: changing one record moves both."
    return (raw, sampled) if plan.sampling == Sampling.FIXED and plan.cohort != plan.clients else (raw,)


def differs(plan: Plan) -> tuple[str, ...]:
    return (
        "Cohorts and noise stay the same in all rounds; in the paper an agent may change both from round to round.",
    )


def certified(
    setting: RuleContext,
    *,
    previous: float = 0,
    low: float | None = None,
    high: float | None = None,
    bins: float = 16,
    share: float | None = None,
    opening: float = 0.5,
) -> Rule:
    grid = {"low": low, "high": high, "bins": bins, "share": share, "opening": opening}
    return adact.certified(setting, tau=0.5, previous=previous, **grid)  # type: ignore[arg-type]


def published(setting: RuleContext) -> Rule:
    return ExactQuantile(setting.plan.bound, 0.5)
