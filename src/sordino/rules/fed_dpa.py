"""Fed-DPA (Yang, Huang and Ye, NeurIPS 2023): a fixed bound, record accounting, and the options of the local training.

What clients do is in `schemes.fed_dpa`. The public code accounts for records: a rate of B / sum(n) times the share of clients, and
T E sum(n) / B steps. What it releases is one sum of whole updates in each round. So the epsilon that it prints belongs to
another mechanism: in the CIFAR-10 setting of AdaCT-DPFL (10 clients, 30 rounds, 4 epochs, batch 64) a printed 4 is about 55.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sordino.errors import at_least, between
from sordino.privacy.bounds import Flat
from sordino.rules.fixed import Fixed

if TYPE_CHECKING:
    from sordino.methods import RuleContext
    from sordino.plan import Plan

REASONS = (
    "The accountant is told of single records (their rate and the local steps), and what is released is the sum of whole updates.",
    "Noise is divided among all clients also where fewer take part, so that the sum has less than the bound asks for.",
    "Updates are weighted by the clients' sizes after clipping, so that a large client moves the mean by more than the noise is for.",
    "Delta is 0.1 by default, which allows a mechanism that shows one client in ten in full.",
)
LARGE_DELTA = 0.1


# The defaults of the public code.
PUBLIC_CODE: dict[str, tuple[object, ...]] = {
    "rounds": (15,),
    "local_epochs": (2,),
    "batch_size": (16,),
    "optimizer": ("adam",),
    "lr": (1e-3,),
    "bound": (0.5,),
}


def reasons_of(plan: Plan) -> tuple[str, ...]:
    """True of this run, which weighs before it clips, and whose delta is its own."""
    records, noise, _, delta = REASONS
    told = (records,) if plan.cohort_size == plan.clients else (records, noise)
    return (*told, delta) if plan.delta >= LARGE_DELTA else told


def differs(plan: Plan) -> tuple[str, ...]:
    """From the public code."""
    weighted = "alike" if plan.weights == "uniform" else "by their sizes before clipping"
    return (
        "Personal coordinates are not sent, as the paper has it; its public code sends them.",
        f"Updates are weighted {weighted}; the public code weighs them by their sizes after clipping.",
    )


def certified(setting: RuleContext, *, tau: float = 0.4, lambda1: float = 0.1, lambda2: float = 0.05) -> Fixed:
    """`tau`: how large a normalised Fisher entry makes a coordinate personal; the lambdas weigh the two constraints."""
    between(0, 1, tau=tau)
    at_least(0, lambda1=lambda1, lambda2=lambda2)
    return Fixed(Flat(setting.plan.bound))


def schedule(plan: Plan) -> list[float]:
    """As published the noise of each client is cut for all clients: m of K give sqrt(m / K) of it."""
    return [math.sqrt(plan.cohort_size / plan.clients) if plan.published else 1.0] * plan.rounds
