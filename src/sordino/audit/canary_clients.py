"""One shot: an estimate of epsilon from the cosines of canaries with what was released (Andrew et al. 2023).

A direction that was not used has a cosine with known distribution: in b dimensions its density is proportional to
(1 - t^2)^((b - 3)/2), whatever was released. `scores` turns cosines into numbers that are standard normal under it. Two
things are made of the scores of the canaries that did contribute, and they must not be mixed up:

    estimate   a normal distribution is fitted to them, and epsilon is what tells it from the standard one. No
               confidence goes with it: it can lie on either side of the truth
    lower      the rate at which they exceed a threshold, from below (Clopper and Pearson), against the exact rate
    without
               them. A bound at a level of confidence, if the scores of canaries in one run are independent
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sordino.audit import bounds

FEWEST = 8  # dimensions below which a cosine says too little
# Thresholds, fixed beforehand and paid for (Bonferroni), in standard deviations of the null.
LINES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)
_HIGHEST = 600.0


@dataclass(frozen=True)
class Shot:
    """What the cosines say."""

    estimate: float  # of epsilon; no bound
    lower: float  # on epsilon, at the confidence that was asked for
    mean: float
    deviation: float


def scores(cosines: np.ndarray, dimension: int) -> np.ndarray:
    """Standard normal for directions that were not used, exactly."""
    from scipy.special import betainc, ndtri

    t = np.clip(np.asarray(cosines, float), -1, 1)
    # P[T > |t|] = I_{1-t^2}((b-1)/2, 1/2) / 2; the smaller tail keeps its digits.
    tail = betainc((dimension - 1) / 2, 0.5, 1 - t**2) / 2
    return -np.sign(t) * ndtri(np.maximum(tail, 1e-300))


def one_shot(inside: np.ndarray, delta: float, confidence: float, gdp: bool) -> Shot:
    """From the scores of the canaries that contributed; `gdp` if the claim is of the Gaussian family."""
    mean = float(np.mean(inside))
    deviation = float(np.std(inside, ddof=1)) if len(inside) > 1 else 1.0
    return Shot(estimate(mean, deviation, delta), lower(inside, delta, confidence, gdp), mean, deviation)


def estimate(mean: float, deviation: float, delta: float) -> float:
    """Epsilon between N(0, 1) and N(mean, deviation^2) at `delta`, the worse direction."""
    if max(_delta(0.0, mean, deviation), _delta_back(0.0, mean, deviation)) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while max(_delta(high, mean, deviation), _delta_back(high, mean, deviation)) > delta:
        low, high = high, 2 * high
        if high > _HIGHEST:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        apart = max(_delta(middle, mean, deviation), _delta_back(middle, mean, deviation)) > delta
        low, high = (middle, high) if apart else (low, middle)
    return (low + high) / 2


def lower(inside: np.ndarray, delta: float, confidence: float, gdp: bool) -> float:
    """The best threshold's bound, all of them paid for; the false alarms are known exactly."""
    from scipy.special import ndtr

    alpha = (1 - confidence) / len(LINES)
    best = 0.0
    for line in LINES:
        alarm = float(ndtr(-line))
        find = bounds.rate_above(int(np.sum(inside > line)), len(inside), alpha)
        best = max(best, _any(alarm, find, delta))
        if gdp:
            best = max(best, bounds.epsilon_of(bounds.mu_from_rates(alarm, find), delta))
    return best


def _any(alarm: float, find: float, delta: float) -> float:
    pairs = ((find - delta, alarm), (1 - alarm - delta, 1 - find))
    return max([math.log(a / b) for a, b in pairs if a > 0 and b > 0] + [0.0])


def _delta(epsilon: float, mean: float, deviation: float) -> float:
    """The mass of N(mean, deviation^2) beyond e^epsilon times N(0, 1)."""
    return _beyond(epsilon, (0.0, 1.0), (mean, deviation))


def _delta_back(epsilon: float, mean: float, deviation: float) -> float:
    return _beyond(epsilon, (mean, deviation), (0.0, 1.0))


def _beyond(epsilon: float, p: tuple[float, float], q: tuple[float, float]) -> float:
    """The integral of max(q - e^epsilon p, 0) for two normals: q wins between, or outside, the roots of a quadratic."""
    from scipy.special import ndtr

    (m0, s0), (m1, s1) = p, q
    # log q - log p - epsilon = a x^2 + b x + c
    a = 0.5 / s0**2 - 0.5 / s1**2
    b = m1 / s1**2 - m0 / s0**2
    c = 0.5 * (m0 / s0) ** 2 - 0.5 * (m1 / s1) ** 2 + math.log(s0 / s1) - epsilon
    if abs(a) < 1e-12:
        if b == 0:
            return max(0.0, -math.expm1(epsilon)) if c > 0 else 0.0
        edges = [(-c / b, math.inf)] if b > 0 else [(-math.inf, -c / b)]
    else:
        inner = b * b - 4 * a * c
        if inner <= 0:
            edges = [(-math.inf, math.inf)] if a > 0 else []
        else:
            x, y = sorted(((-b - math.sqrt(inner)) / (2 * a), (-b + math.sqrt(inner)) / (2 * a)))
            edges = [(x, y)] if a < 0 else [(-math.inf, x), (y, math.inf)]

    def mass(m: float, s: float) -> float:
        total = 0.0
        for low, high in edges:
            u, v = (low - m) / s, (high - m) / s
            total += float(ndtr(v) - ndtr(u)) if u < 0 else float(ndtr(-u) - ndtr(-v))
        return total

    lost = mass(m0, s0)
    return max(0.0, mass(m1, s1) - (math.exp(epsilon + math.log(lost)) if lost > 0 else 0.0))
