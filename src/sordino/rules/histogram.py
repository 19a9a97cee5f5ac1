"""The bound is a quantile of this very round's norms, from a noisy histogram of them.

Each unit names the public, log-spaced bin that its norm falls in; the counts get Gaussian noise, and the bound is
read off them before anything is clipped. Counts and clipped sum are one joint Gaussian event of the round's
multiplier. The idea of a private histogram of norms is that of DC-SGD (2025); reading it is ours, and is
post-processing of released counts:

  the quantile  With L units below an edge and U above it, (1-p) L - p U grows with the edge and is 0 at the quantile
                p. Its noise is the same at every edge for p = 1/2, and the number of units need not be known. Noise
                makes the curve jagged: the non-decreasing curve nearest to it is taken, and its zero, linear between
                edges in log scale.
  the grid      It begins twelve decades wide. Once a quantile was heard the next grid is laid closely around it; when
                the quantile runs to a border the grid widens again. Released values alone decide where the bins lie.
  the noise     Where one round's counts are too noisy (small cohorts), counts are added up over a window of rounds, and
                the bound moves only part of the way. While the grid is wide the rule spends a larger share, `opening`,
                and moves no further than two standard deviations of the noise make certain. If
                even a full window could not be heard it asks no more, keeps its bound, and leaves all to the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sordino.errors import BadInput, between, positive, whole
from sordino.privacy.bounds import Bound, Flat
from sordino.rules import bins
from sordino.rules.base import NOTHING, Queries, RoundOutput, State
from sordino.rules.bins import reach
from sordino.rules.query import Answer

if TYPE_CHECKING:
    from sordino.methods import RuleContext


LOUD = 4.0  # noise that cannot be heard through, in tolerances
SURE = 2.0  # standard deviations


class Reading(NamedTuple):
    """What a histogram said."""

    log_bound: float
    log_quantile: float
    doubt: float  # width of the interval that the quantile lies in
    window: State  # the state with the counts of the window
    heard: bool
    border: bool  # the quantile lies at the border of the grid, or beyond
    hopeless: bool  # no window could be heard


@dataclass(frozen=True)
class Histogram:
    """The `target` quantile of the norms of the round."""

    start: float = 1.0
    target: float = 0.5
    low: float = 1e-6
    high: float = 1e6
    bins: int = 16  # edges of the grid; counts are one more
    share: float = 0.1
    opening: float = 0.5  # share while the grid is wide
    tolerance: float = 0.05  # noise in a fraction of units that is fully acceptable; LOUD times as much is not heard
    window: float = 20.0  # rounds that are added up at most
    span: float = 2.0  # width of the narrow grid, in natural logarithms: a factor e on either side

    def __post_init__(self) -> None:
        positive(bound=self.start, low=self.low, high=self.high, tolerance=self.tolerance, span=self.span)
        between(0, 1, target=self.target, share=self.share, opening=self.opening)
        whole(4, bins=self.bins)
        if self.window < 1:
            raise BadInput(f"window must be at least 1 round, not {self.window!r}.")
        self.init()  # low lies below high

    def init(self) -> State:
        return {"log_bound": math.log(self.start), "asks": 1, **bins.first(self.low, self.high, self.bins)}

    def query(self, state: State) -> Queries:
        if not state["asks"]:
            return NOTHING
        share = self.opening if self._searches(state) else self.share
        return Queries(pre_clip=bins.question(state, self.bins, share))

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return Flat(math.exp(state["log_bound"] if answer is None else self._read(state, answer).log_bound))

    def observe(self, state: State, seen: RoundOutput) -> State:
        if seen.pre_clip is None:
            return state
        said = self._read(state, seen.pre_clip)
        after = {**said.window, "log_bound": said.log_bound, "asks": int(not said.hopeless)}
        return {**after, **self._next_grid(state, said)}

    # ---- reading -----------------------------------------------------------------------------------------------------

    def _read(self, state: State, answer: Answer) -> Reading:
        noise = self._noise(answer.std**2, answer.units)
        window = bins.added(state, answer, bins.faded(noise, self.tolerance, self.window))
        counts, units = np.asarray(window["counts"]), window["units"]
        pooled = self._noise(window["variance"], units)
        believed = max(0.0, 1 - (pooled / (LOUD * self.tolerance)) ** 2)
        last, grid = state["log_bound"], bins.edges(state, self.bins)
        quantile, border = crossing(grid, counts, self.target)
        width = 0.0
        if self._searches(state):  # a wrong leap would be a long one: no further than is certain
            low, high = (crossing(grid, counts, self.target, side * SURE * pooled * units)[0] for side in (1, -1))
            quantile, width = min(max(last, low), high), high - low
        bound = last + (believed if not self._searches(state) else believed > 0) * (quantile - last)
        hopeless = noise / math.sqrt(2 * self.window - 1) > LOUD * self.tolerance
        return Reading(bound, quantile, width, window, believed > 0, border, hopeless)

    def _noise(self, variance: float, units: float) -> float:
        """The std of the noise in (1-p) L - p U as a fraction of the units, on average over the edges."""
        p = self.target
        return math.sqrt(variance * (self.bins + 1) * ((1 - p) ** 2 + p**2) / 2) / units

    # ---- the grid ----------------------------------------------------------------------------------------------------

    def _searches(self, state: State) -> bool:
        return bins.is_wide(state, self.span)

    def _next_grid(self, state: State, said: Reading) -> State:
        width = state["high"] - state["low"]
        middle = (state["high"] + state["low"]) / 2
        widest = math.log(self.high / self.low)
        if not said.heard:
            return {}
        if said.border:
            width = min(2 * width, widest)
        elif self._searches(state):
            width = max(4 * width / (self.bins - 1), said.doubt, self.span)
        elif abs(said.log_quantile - middle) < width / 4:
            return {}
        width = min(width, widest)
        return bins.laid(said.log_quantile, width, self.low, self.high, self.bins)


def crossing(edges: np.ndarray, counts: np.ndarray, p: float, raised: float = 0.0) -> tuple[float, bool]:
    """Where the units below make up the fraction p, between log edges; and whether that is at the border.

    With `raised` so many units more are taken to lie below.

    >>> crossing(np.array([0.0, 1.0, 2.0]), np.array([2.0, 0.0, 6.0, 2.0]), 0.5)
    (1.5, False)
    """
    curve = increasing(np.cumsum(counts)[:-1] - p * np.sum(counts)) + raised
    if curve[0] >= 0 or curve[-1] <= 0:
        return float(edges[0] if curve[0] >= 0 else edges[-1]), True
    j = int(np.argmax(curve >= 0))
    part = -curve[j - 1] / (curve[j] - curve[j - 1])
    return float(edges[j - 1] + part * (edges[j] - edges[j - 1])), False


def increasing(y: np.ndarray) -> np.ndarray:
    """The non-decreasing sequence nearest to y in least squares: neighbours in the wrong order are pooled.

    >>> increasing(np.array([1.0, 3.0, 2.0, 4.0])).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    pools: list[tuple[float, int]] = []
    for value in np.asarray(y, float).tolist():
        size = 1
        while pools and pools[-1][0] > value:
            other, many = pools.pop()
            value, size = (value * size + other * many) / (size + many), size + many
        pools.append((value, size))
    return np.repeat([value for value, _ in pools], [size for _, size in pools])


def certified(
    setting: RuleContext,
    *,
    target: float = 0.5,
    low: float | None = None,
    high: float | None = None,
    bins: float = 16,
    share: float = 0.1,
    opening: float = 0.5,
) -> Histogram:
    start = setting.plan.bound
    return Histogram(start, target, *reach(start, low, high, bins), share, opening)
