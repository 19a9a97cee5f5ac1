"""Automatic clipping: every contribution is scaled to nearly the same length, C v / (|v| + gamma) (Bu et al. 2023,
Automatic clipping: differentially private deep learning made easier and stronger). Nothing adapts, and nothing needs
to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sordino.privacy.bounds import Automatic
from sordino.rules.fixed import Fixed

if TYPE_CHECKING:
    from sordino.methods import RuleContext


def certified(setting: RuleContext, *, gamma: float = 0.01) -> Fixed:
    return Fixed(Automatic(setting.plan.bound, gamma))
