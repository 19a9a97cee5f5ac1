"""AdaCliP (Pichapati et al. 2019, AdaCliP: adaptive clipping for private SGD, algorithm 1): every coordinate is
centred and scaled before clipping, by a mean a and a spread s that are estimated from released aggregates only, and
so cost nothing:

    b_i = sqrt(s_i sum_j s_j),   w = (v - a)/b clipped to length 1,   g = b (noisy mean of w) + a
    a <- beta1 a + (1 - beta1) g
    s_i^2 <- beta2 s_i^2 + (1 - beta2) clamp((g_i - a_i)^2 - noise_i^2, h1, h2)

Published: this. Where noise exceeds the signal, as in federations it mostly does, the clamp turns noise into spread
or spread into h1, and the bound runs away or collapses. Certified is the same transform with steadier estimates, all
post-processing: the mean and the differences in spread are shrunk by the part of their energy that noise alone
explains (so that without a signal the rule is flat clipping), and the sum of b_i^2, which is the energy of the noise,
is held at that of flat clipping to the plan's bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import BadInput, between, positive, rate, whole
from sordino.privacy.bounds import Bound, Coordinates
from sordino.rules.base import NOTHING, Queries, RoundOutput, State
from sordino.rules.query import Answer

if TYPE_CHECKING:
    from sordino.methods import RuleContext


@dataclass(frozen=True)
class Printed:
    """Algorithm 1, begun where it equals flat clipping to `start`."""

    start: float
    dimension: int
    beta1: float = 0.99
    beta2: float = 0.9
    h1: float = 1e-12
    h2: float = 10.0

    def __post_init__(self) -> None:
        positive(bound=self.start, h1=self.h1, h2=self.h2)
        whole(dimension=self.dimension)
        between(0, 1, beta1=self.beta1, beta2=self.beta2)
        if self.h1 >= self.h2:
            raise BadInput(f"h1 must lie below h2, but {self.h1!r} does not lie below {self.h2!r}.")

    def init(self) -> State:
        spread = self.start / math.sqrt(self.dimension)  # then b_i = start for every i
        return {"mean": [0.0] * self.dimension, "spread": [spread] * self.dimension}

    def query(self, state: State) -> Queries:
        return NOTHING

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return Coordinates(np.asarray(state["mean"]), widths(np.asarray(state["spread"])))

    def observe(self, state: State, seen: RoundOutput) -> State:
        mean, spread = np.asarray(state["mean"]), np.asarray(state["spread"])
        excess = (seen.mean - mean) ** 2 - noise(seen) ** 2
        square = self.beta2 * spread**2 + (1 - self.beta2) * np.clip(excess, self.h1, self.h2)
        mean = self.beta1 * mean + (1 - self.beta1) * seen.mean
        return {"mean": mean.tolist(), "spread": np.sqrt(square).tolist()}


@dataclass(frozen=True)
class Steady:
    """The same transform, from estimates that noise cannot carry off."""

    start: float
    dimension: int
    beta1: float = 0.99
    beta2: float = 0.9
    floor: float = 0.1  # of a spread, as a part of the average one

    def __post_init__(self) -> None:
        positive(bound=self.start)
        whole(dimension=self.dimension)
        between(0, 1, beta1=self.beta1, beta2=self.beta2)
        rate(floor=self.floor)

    def init(self) -> State:
        even = self.start**2 / self.dimension  # flat clipping, until there is reason to think otherwise
        mean, square = [0.0] * self.dimension, [even] * self.dimension
        # The two variances are those of the noise in `mean` and in `square`, averaged over coordinates.
        return {"mean": mean, "mean_noise": 0.0, "square": square, "square_noise": 0.0}

    def query(self, state: State) -> Queries:
        return NOTHING

    def bound(self, state: State, answer: Answer | None) -> Bound:
        mean, square = np.asarray(state["mean"]), np.asarray(state["square"])
        mean = shrink(state["mean_noise"], np.mean(mean**2)) * mean
        average = np.mean(square)
        square = average + shrink(state["square_noise"], np.var(square)) * (square - average)
        if average <= 0:
            square = np.ones(self.dimension)
        spread = np.sqrt(np.maximum(square, self.floor**2 * np.mean(np.abs(square))))
        return Coordinates(mean, widths(spread * math.sqrt(self.dimension) * self.start / np.sum(spread)))

    def observe(self, state: State, seen: RoundOutput) -> State:
        keep1, keep2, variance = self.beta1, self.beta2, noise(seen) ** 2
        centre = self.bound(state, None).mean  # type: ignore[attr-defined]
        square = (seen.mean - centre) ** 2 - variance
        return {
            "mean": (keep1 * np.asarray(state["mean"]) + (1 - keep1) * seen.mean).tolist(),
            "mean_noise": keep1**2 * state["mean_noise"] + (1 - keep1) ** 2 * float(np.mean(variance)),
            "square": (keep2 * np.asarray(state["square"]) + (1 - keep2) * square).tolist(),
            # A squared Gaussian of variance V has variance 2 V^2.
            "square_noise": keep2**2 * state["square_noise"] + (1 - keep2) ** 2 * float(np.mean(2 * variance**2)),
        }


def widths(spread: np.ndarray) -> np.ndarray:
    """b, the best scaling for this spread (theorem 2)."""
    return np.sqrt(spread * np.sum(spread))


def noise(seen: RoundOutput) -> np.ndarray:
    """The std of the noise in the mean, in the space of updates."""
    assert isinstance(seen.bound, Coordinates)
    return np.asarray(seen.bound.scale * seen.noise)


def shrink(noise: float, total: float) -> float:
    """The part of the energy that noise does not explain (James and Stein 1961)."""
    return max(0.0, 1 - noise / total) if total > 0 else 0.0


def certified(setting: RuleContext, *, beta1: float = 0.99, beta2: float = 0.9, floor: float = 0.1) -> Steady:
    return Steady(setting.plan.bound, setting.dimension, beta1, beta2, floor)


def published(
    setting: RuleContext, *, beta1: float = 0.99, beta2: float = 0.9, h1: float = 1e-12, h2: float = 10.0
) -> Printed:
    return Printed(setting.plan.bound, setting.dimension, beta1, beta2, h1, h2)
