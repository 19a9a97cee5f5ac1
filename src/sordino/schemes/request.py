"""What the server asks of clients in a round, and what comes back: plain data, the same in one process and across machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np

from sordino.privacy.bounds import Bound
from sordino.privacy.mechanisms import FixedPoint
from sordino.rules.base import State
from sordino.rules.query import Query

QUERY, CONTRIBUTE, PRELUDE, HELD_OUT = "query", "contribute", "prelude", "held-out"


@dataclass(frozen=True)
class Request:
    """One of the two phases of a round, a statistic of the prelude, or the test on held-out records (round 0).

    `query`: answer `query` about your norms, and send nothing else (only rules that need this round's norms ask).
    `contribute`: send your clipped contribution under `bound`, and your answer to `query` if there is one.
    Where clients add noise themselves, the two multipliers say how much, divided among `survivors`.
    """

    round: int
    phase: str
    grid: FixedPoint  # of the sum
    bound: Bound | None  # None: nothing is clipped here (no privacy, or clients that clip step by step)
    query: Query | None = None
    query_grid: FixedPoint | None = None
    multiplier: float | None = None  # noise on the sum in bounds; None: the server adds it
    query_multiplier: float | None = None  # noise on the answer, in norms of one unit's answer
    survivors: int = 1
    released: bool = False  # clients send only what their own mechanisms released
    state: State = field(default_factory=dict)  # of the rule, for clients that run it themselves
    step: int = 0  # which statistic, in the prelude


@dataclass(frozen=True)
class Reply:
    """What one item's work gives, besides the codes that it adds to the sum.

    `noise` and `answer_noise` are evidence: the variance of the noise that this item really added, in squared bounds
    and in squared norms. A sum is opened only if the evidence in it suffices.
    """

    answer: np.ndarray | None = None  # codes on the query's grid; exact values if the query is raw
    noise: float = 0.0
    answer_noise: float = 0.0
    report: object = None  # what a client that runs its own rule says; released


Item = TypeVar("Item")


class Work(Protocol, Generic[Item]):
    """What happens where the data is. One class for each scheme."""

    def items(self, t: int, cohort: np.ndarray) -> list[Item]:
        """The round's work in pieces that may run anywhere, in any order. Never depends on the number of workers."""

    def weight(self, item: Item) -> int:
        """How much work an item is, to hand out the largest first."""

    def query(self, request: Request, item: Item) -> Reply:
        """The item's answer to the query."""

    def assumptions(self) -> tuple[str, ...]:
        """What the bound on a contribution rests on and no proof covers, for the statement."""

    def contribute(self, request: Request, item: Item, out: np.ndarray) -> Reply:
        """Add the item's contribution, as fixed-point codes, to `out`."""


def work_on(work: Work[Item], request: Request, item: Item, out: np.ndarray) -> Reply:
    """One item in one phase."""
    return work.query(request, item) if request.phase == QUERY else work.contribute(request, item, out)
