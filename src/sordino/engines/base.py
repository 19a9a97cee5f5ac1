"""Where clients run. An engine takes the round's items, has them worked on somewhere, and adds up what comes back.

What an engine gathers is `Private`. Sums are fixed-point integers and answers are put in item order, so the result does not
depend on the engine, the number of workers or who finished first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sordino.privacy.mechanisms import Sum
from sordino.privacy.release import Private, Released
from sordino.schemes.request import QUERY, Request, Work


@dataclass(frozen=True)
class Aggregate:
    """A round's harvest: the sum of contributions, stamped with their bound, and the answers in item order."""

    total: (
        Private[Sum] | Released[Sum]
    )  # released only where clients send nothing but what their own mechanisms let out
    answers: Private[tuple[Any, ...]] | Released[tuple[Any, ...]]
    shares: int  # how many shares of noise went in


class Engine(Protocol):
    """Runs requests on items; see `inprocess` and `workers`."""

    theta: np.ndarray  # float32, the model that clients start from; written by the round, read by the clients

    def run(self, request: Request, items: Sequence[Any]) -> Aggregate:
        """Have every item worked on."""

    def evaluate(self) -> tuple[float, float] | None:
        """Accuracy and mean loss of `theta` on the public test set, if there is one."""

    def close(self) -> None:
        """Let go of processes and memory."""


def work_on(work: Work, request: Request, item: Any, out: np.ndarray) -> Any:
    """One item; its answer, if it was asked for one."""
    return work.ask(request, item) if request.phase == QUERY else work.give(request, item, out)


def gathered(request: Request, codes: np.ndarray, answers: list[tuple[int, Any]], shares: int) -> Aggregate:
    noise = 0.0 if request.multiplier is None else shares * request.multiplier**2 / request.survivors
    ordered = tuple(answer for _, answer in sorted(answers, key=lambda pair: pair[0]))
    total = Sum(codes, request.grid, noise)
    if request.released:
        how = "noise of each client's own, in full"
        return Aggregate(Released(total, how), Released(ordered, how), shares)
    return Aggregate(Private(total, bound=request.bound), Private(ordered), shares)
