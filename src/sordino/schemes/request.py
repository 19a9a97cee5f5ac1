"""What the server asks of clients in a round: plain public data, the same in one process, in workers and across machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from sordino.privacy.bounds import Bound
from sordino.privacy.mechanisms import FixedPoint
from sordino.rules.query import Query

QUERY, CONTRIBUTE = "ask", "give"


@dataclass(frozen=True)
class Request:
    """One of the two phases of a round.

    `ask`: answer `query` about your norms, and send nothing else (only rules that need this round's norms).
    `give`: send your clipped contribution under `bound`, and your answer to `query` if there is one.
    Where clients add noise themselves, `multiplier` and `query_std` say how much, divided among `survivors`.
    """

    round: int
    phase: str
    grid: FixedPoint
    bound: Bound | None  # None: nothing is clipped (only for methods that are not private)
    query: Query | None = None
    multiplier: float | None = None  # None: the server adds the noise
    query_std: float | None = None
    survivors: int = 1
    released: bool = False  # clients send only what their own mechanisms let out
    state: dict[str, Any] = field(default_factory=dict)  # of the rule, for clients that run it themselves


class Work(Protocol):
    """What happens where the data is, for one unit; see `whole`, `pooled` and `dpsgd`."""

    def items(self, round: int, cohort: np.ndarray) -> list[Any]:
        """The round's work in pieces that may run anywhere, in any order. Never depends on the number of workers."""

    def weight(self, item: Any) -> int:
        """How much work an item is, to hand out the largest first."""

    def shares(self, items: Sequence[Any]) -> int:
        """How many of the items add a share of the noise, where clients do."""

    def ask(self, request: Request, item: Any) -> np.ndarray:
        """The item's answer to the query."""

    def give(self, request: Request, item: Any, out: np.ndarray) -> Any:
        """Add the item's contribution, as fixed-point codes, to `out`; return its answer, if it was asked for one."""
