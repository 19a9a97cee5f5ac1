"""The bound is an exact quantile of the round's raw norms: what AdaCT-DPFL (equation 11) and Geyer et al. 2017 print.

Not private at any epsilon: see the reasons in `adact` and `geyer`. It is here to be compared with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.errors import between, positive
from sordino.privacy.bounds import Bound, Flat
from sordino.rules.base import Queries, RoundOutput, State
from sordino.rules.quantile import clamp
from sordino.rules.query import Answer, RawNorm


@dataclass(frozen=True)
class ExactQuantile:
    """Ask every unit for its norm, and take the quantile."""

    start: float = 1.0  # while nobody has answered
    target: float = 0.5

    def __post_init__(self) -> None:
        positive(bound=self.start)
        between(0, 1, target=self.target)

    def init(self) -> State:
        return {"bound": self.start}

    def query(self, state: State) -> Queries:
        return Queries(pre_clip=RawNorm())

    def bound(self, state: State, answer: Answer | None) -> Bound:
        norms = finite(answer)
        return Flat(clamp(float(np.quantile(norms, self.target))) if norms.size else state["bound"])

    def observe(self, state: State, seen: RoundOutput) -> State:
        return {"bound": seen.bound.size}


def finite(answer: Answer | None) -> np.ndarray:
    """The norms of an answer in the raw; those that are not finite belong to updates that count as zero."""
    norms = np.empty(0) if answer is None else np.asarray(answer.total, float)
    return norms[np.isfinite(norms)]
