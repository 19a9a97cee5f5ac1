"""The bound that minimises the expected error of the mean, from a noisy histogram of norms (variant E of DC-SGD, Wei et al.
2025, arXiv 2503.22988).

A small bound distorts the mean, a large one brings noise. With m units in a round, d coordinates and multiplier z the squared
error of the noisy mean under the bound C is about

    (z C sqrt(d) / m)^2  +  (a E[max(norm - C, 0)])^2

The first term is public. The second is the length that clipping takes away, if what is cut off pointed one way (a = 1, as in the
paper). It does not: contributions of single units partly cancel. The `alignment` a is 0.3 here, a constant for all data: in
trials on digits and watch it was never the worst and mostly among the best of 1, 0.3 and an estimate from the
length of the released mean (docs/regret.md).

Units name the bin that their norm falls in *together with* the clipped sum, so a round needs one pass over the data, and its
bound follows from the rounds before. The first grid of bins is twelve decades wide; once norms were heard the grid is laid
around them. Counts are added up over a window of rounds, as long as their noise asks for. Counts that noise explains are taken
as zero: a false count far out would count with its large norm. So a count must be sure by itself, or stand beside one that is.

A median collapses when most units are learnt, and so does the mean of all norms, more slowly. Units that are learnt need no
direction any more; a bound as short as their norms would give each of them the weight of one that is not learnt. So the bound never
falls below `floor` times the largest mean that was heard.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import between, positive, whole
from sordino.privacy.bounds import Bound, Flat
from sordino.rules import bins
from sordino.rules.base import NOTHING, Queries, RoundOutput, State
from sordino.rules.bins import reach
from sordino.rules.query import Answer

if TYPE_CHECKING:
    from sordino.methods import RuleContext

SPAN = math.log(1000)  # width of the narrow grid
TOLERANCE = 0.05  # noise in a fraction of units that is fully acceptable
LOUD = 0.4  # noise in a fraction of units that cannot be heard through
WINDOW = 20.0  # rounds that are added up at most
SURE = 3.5  # standard deviations, from which on a count is no noise: below 1 in 200 over all bins
BESIDE = 2.0  # the same beside a bin that counts
RISE = 1.1  # by which the largest mean grows in a round at most: one false count must not lift the floor for good
CANDIDATES = 64


@dataclass(frozen=True)
class ExpectedError:
    """Least noise plus clipping error."""

    start: float = 1.0
    low: float = 1e-6
    high: float = 1e6
    bins: int = 16  # edges of the grid; counts are one more
    share: float = 0.05
    opening: float = 0.3  # share while the grid is wide
    floor: float = 0.1
    alignment: float = 0.3

    def __post_init__(self) -> None:
        positive(bound=self.start, low=self.low, high=self.high, alignment=self.alignment)
        between(0, 1, share=self.share, opening=self.opening, floor=self.floor)
        whole(4, bins=self.bins)
        self.init()  # low lies below high

    def init(self) -> State:
        return {
            "log_bound": math.log(self.start),
            "widest": 0.0,
            "asks": 1,
            **bins.first(self.low, self.high, self.bins),
        }

    def query(self, state: State) -> Queries:
        if not state["asks"]:
            return NOTHING
        share = self.opening if bins.is_wide(state, SPAN) else self.share
        return Queries(with_sum=bins.question(state, self.bins, share))

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return Flat(math.exp(state["log_bound"]))

    def observe(self, state: State, seen: RoundOutput) -> State:
        if seen.answer is None:
            return state
        state, loud = self._add(state, seen.answer)
        if loud:
            return {**state, "asks": int(loud <= math.sqrt(2 * WINDOW - 1) * LOUD)}
        norms, parts = self._norms(state)
        if not parts.any():
            return state
        if bins.is_wide(state, SPAN):
            return self._around(state, math.log(float(np.average(norms, weights=parts))))
        noise = float(np.sqrt(np.square(np.broadcast_to(seen.noise, seen.mean.shape)).sum()))
        mean = float(norms @ parts)
        widest = max(state["widest"], min(mean, RISE * state["widest"])) or mean
        best = math.log(self._best(norms, parts, noise / seen.bound.size, widest))
        state = {**state, "widest": widest, "log_bound": (state["log_bound"] + best) / 2}
        off = abs(best - (state["low"] + state["high"]) / 2)
        return self._around(state, best) if off > SPAN / 4 else state

    # ---- the histogram -----------------------------------------------------------------------------------------------

    def _add(self, state: State, answer: Answer) -> tuple[State, float]:
        """The window with these counts; and how loud the noise is, 0 if it can be heard through."""
        noise = answer.std * math.sqrt(self.bins + 1) / answer.units
        state = bins.added(state, answer, bins.faded(noise, TOLERANCE, WINDOW))
        pooled = math.sqrt(state["variance"] * (self.bins + 1)) / state["units"]
        return state, 0.0 if pooled < LOUD else noise

    def _norms(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """A norm for each bin (its middle), and the part of the units in it."""
        grid = bins.edges(state, self.bins)
        half = (grid[1] - grid[0]) / 2
        middles = np.exp(np.append(grid - half, grid[-1] + half))
        counts = np.asarray(state["counts"])
        counts = np.where(_heard(counts / math.sqrt(state["variance"])), counts, 0.0)
        return middles, counts / max(counts.sum(), 1e-12)

    # ---- the best bound ----------------------------------------------------------------------------------------------

    def _best(self, norms: np.ndarray, parts: np.ndarray, noise: float, widest: float) -> float:
        """`noise`: the length of the noise in the mean, in bounds."""
        least = self.floor * widest
        bounds = np.geomspace(least, max(least, norms[-1]), CANDIDATES)
        excess = np.maximum(norms - bounds[:, None], 0) @ parts
        return float(bounds[np.argmin((noise * bounds) ** 2 + (self.alignment * excess) ** 2)])

    # ---- the grid ----------------------------------------------------------------------------------------------------

    def _around(self, state: State, middle: float) -> State:
        """The narrow grid around a bound; a search also moves the bound there."""
        found = {"log_bound": middle} if bins.is_wide(state, SPAN) else {}
        return {**state, **found, **bins.laid(middle, SPAN, self.low, self.high, self.bins)}


def _heard(deviations: np.ndarray) -> np.ndarray:
    """Which bins count: those that are sure, and from there on their neighbours that noise hardly explains."""
    heard = deviations > SURE
    for _ in deviations:
        beside = np.convolve(heard, np.ones(3), "same") > 0
        heard = heard | beside & (deviations > BESIDE)
    return heard


def certified(
    setting: RuleContext,
    *,
    low: float | None = None,
    high: float | None = None,
    bins: float = 16,
    share: float = 0.05,
    opening: float = 0.3,
    floor: float = 0.1,
    alignment: float = 0.3,
) -> ExpectedError:
    start = setting.plan.bound
    return ExpectedError(start, *reach(start, low, high, bins), share, opening, floor, alignment)
