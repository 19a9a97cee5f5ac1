"""Where a quantile of the norms lies, from noisy bits: bisection under a belief (probabilistic bisection; Horstein 1963).

A first bound may be decades off. The belief is a probability for each place of a fixed grid of logarithms. It begins mostly near the first
bound, and wide around it for the rest. A fraction b of units within the bound C, heard with noise s, makes a place q likelier the nearer b is to
what norms that spread by a factor of e^(`SPREAD`) about q would give:

    log P(q) <- log P(q) - (b - p(q))^2 / (2 (s^2 + MISFIT^2)),   p(q) = 1 / (1 + exp(-(log C - q) / SPREAD - logit(gamma)))

The next bound is the median place. So a bound that is a thousand times too large is left in two to four rounds where bits are heard, and
answers that noise drowns add up over rounds, where a step for each of them would hardly move. All of it is post-processing of released bits.
"""

from __future__ import annotations

import math

import numpy as np

LOWEST, HIGHEST = 1e-12, 1e12  # of any bound: what sums in fixed point and in double precision carry with ease
GRID = np.linspace(math.log(LOWEST), math.log(HIGHEST), 97)  # quarters of decades
NEAR = 0.8  # the part of the belief that lies near the first bound
WIDTH, TAIL = 0.5, math.log(30)  # of that part, and how the rest falls off, in logarithms
SPREAD = 0.5  # of the norms, in logarithms
MISFIT = 0.15  # by which norms that spread otherwise miss p
FOUND = 0.7  # deviation of the belief, below which the search is over
NEVER = 1e-300


def around(bound: float) -> np.ndarray:
    """The belief before anything was heard, in logarithms."""
    away = np.abs(GRID - math.log(bound))
    near, far = np.exp(-((away / WIDTH) ** 2) / 2), np.exp(-away / TAIL)
    return np.asarray(np.log(NEAR * near / max(near.sum(), NEVER) + (1 - NEAR) * far / far.sum()))


def heard(belief: np.ndarray, within: float, bound: float, target: float, noise: float) -> np.ndarray:
    """The belief after a fraction `within` was heard under `bound`."""
    turn = (math.log(bound) - GRID) / SPREAD + math.log(target / (1 - target))
    expected = 1 / (1 + np.exp(-np.clip(turn, -50, 50)))
    after = belief - (within - expected) ** 2 / (2 * (noise**2 + MISFIT**2))
    return np.asarray(after - after.max())


def place(belief: np.ndarray) -> tuple[float, float]:
    """The median of the belief, as a bound, and its deviation in logarithms."""
    weights = np.exp(belief - belief.max())
    weights /= weights.sum()
    mean = float(weights @ GRID)
    median = float(np.interp(0.5, np.cumsum(weights) - weights / 2, GRID))
    return math.exp(median), math.sqrt(float(weights @ (GRID - mean) ** 2))
