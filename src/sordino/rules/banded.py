"""A bound that never changes, under noise that is correlated over rounds (`schemes.turns`): noise that a later round takes back must have its scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sordino.privacy.bounds import Flat
from sordino.rules.fixed import Fixed

if TYPE_CHECKING:
    from sordino.methods import RuleContext
    from sordino.plan import Plan


def differs(plan: Plan) -> tuple[str, ...]:
    """From Choquette-Choo et al. 2023."""
    return (
        "The bands are those of the square root of the workload (Kalinin and Lampert 2024); the paper searches for better ones.",
    )


def certified(setting: RuleContext, *, bands: float | None = None) -> Fixed:
    """`bands`: in how many groups clients take turns, and over how many rounds noise is correlated; the scheme reads it."""
    return Fixed(Flat(setting.plan.bound))
