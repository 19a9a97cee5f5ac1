"""Where a column of a table lies and how wide it is, from a noisy histogram: the likeliest of a fixed list of shapes.

A histogram of few records is mostly noise, and no single bucket of it can be trusted. All buckets of a column together say much
more, if the column has one of the shapes that columns have: around zero, around some other number, from zero upwards, mostly
zero, zero or one. The list holds them at every power of two. A shape is as likely as the distance of its masses from the noisy
counts says, times its prior: nearer to unit scale is likelier, since many tables were scaled before. Columns of one table are
often alike (pixels, votes, answers from 1 to 5), so the prior is learnt from all columns together (empirical Bayes).

Only released counts are read, so all of this is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

EDGES = np.concatenate([-(4.0 ** np.arange(16, -9, -1)), 4.0 ** np.arange(-8, 17)])  # of buckets, from -2^32 to 2^32
BUCKETS = len(EDGES) + 1
ZERO = len(EDGES) // 2  # the bucket around 0
POWERS = range(-12, 32)  # of two: scales of shapes
MISFIT = 0.05  # by how much the mass of a bucket differs from the nearest shape in the list
ALONE = 5.0  # columns that the prior of the list counts for, against those of the table
PASSES = 10  # of expectation maximisation

# Logarithms of prior weights
FAR = -0.15  # for each power of two away from unit scale
PLACED, NARROWER = -1.0, -0.3  # around another number than zero; for each halving of its width
UPWARDS, HEAVY, MOSTLY_ZERO, BINARY, NEGATIVE = -1.5, -2.0, -2.5, -1.0, -1.0


@dataclass(frozen=True)
class Shapes:
    """The list: one row or entry a shape."""

    masses: np.ndarray  # [shapes, buckets]
    centre: np.ndarray
    deviation: np.ndarray
    prior: np.ndarray  # adds up to 1


def likeliest(counts: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Centre and deviation of each column, from the parts of its records in each bucket [columns, buckets] with this noise."""
    known = shapes()
    # |counts - masses|^2, without the part that is the same for all shapes
    distance = np.square(known.masses).sum(1) - 2 * counts @ known.masses.T
    fits = -distance / (2 * (noise**2 + MISFIT**2))
    prior = known.prior
    for _ in range(PASSES):
        weights = fits + np.log(prior)
        weights = np.exp(weights - weights.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        prior = (ALONE * known.prior + weights.sum(axis=0)) / (ALONE + len(counts))
    best = (fits + np.log(prior)).argmax(axis=1)
    return known.centre[best], known.deviation[best]


@lru_cache(maxsize=1)
def shapes() -> Shapes:
    """The list, made once."""
    rows: list[tuple[np.ndarray, float, float, float]] = []  # masses, centre, deviation, logarithm of the prior weight
    for power in POWERS:
        scale, far = 2.0**power, FAR * abs(power)
        rows.append((_masses(lambda e, s=scale: _normal(e / s)), 0.0, scale, far))  # type: ignore[misc]
        # `heavy`: log-normal, whose few largest values are not what a scale is for
        rows += [(_log_normal(scale, spread), 1.5 * scale, scale * spread / 0.6, far + HEAVY) for spread in (1.2, 2.0)]
        for sign in (1, -1):
            rare = far + (NEGATIVE if sign < 0 else 0.0)
            upwards = _upwards(scale)[::sign]
            rows.append((upwards, sign * scale, scale, rare + UPWARDS))
            edge = power % 2 == 0
            for ratio in (1.5, 3.0, 8.0) if edge else (1.5, 3.0):
                placed = _masses(lambda e, s=scale, r=ratio: _normal(r * (e / s - 1)))[::sign]  # type: ignore[misc]
                rows.append((placed, sign * scale, scale / ratio, rare + PLACED + NARROWER * math.log2(ratio)))
            if edge:  # somewhere in one bucket: where, the counts do not say
                inside = _one_bucket(scale)[::sign]
                rows.append((inside, sign * 2.5 * scale, 0.6 * scale, rare + PLACED + NARROWER * 2))
            for zeros in (0.5, 0.8):
                mean = (1 - zeros) * scale
                deviation = math.sqrt(2 * (1 - zeros) * scale**2 - mean**2)
                rows.append((_with_zeros(upwards, zeros), sign * mean, deviation, rare + MOSTLY_ZERO))
    one = _one_bucket(1.0)
    rows += [(_with_zeros(one, 1 - p), p, math.sqrt(p * (1 - p)), BINARY) for p in (0.1, 0.3, 0.5, 0.7, 0.9)]
    masses, centres, deviations, weights = (np.array(column) for column in zip(*rows))
    return Shapes(masses, centres, deviations, np.exp(weights) / np.exp(weights).sum())


def _normal(x: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr  # here: a plan is read without it

    return ndtr(x)


def _masses(cdf: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The part of a distribution in each bucket."""
    return np.diff(np.concatenate([[0.0], cdf(EDGES), [1.0]]))


def _one_bucket(low: float) -> np.ndarray:
    """The bucket from `low` to four times that."""
    masses = np.zeros(BUCKETS)
    masses[np.searchsorted(EDGES, low, side="right")] = 1.0
    return masses


def _upwards(scale: float) -> np.ndarray:
    """Exponential, from zero."""
    return _masses(lambda e: -np.expm1(-np.maximum(e, 0) / scale))


def _log_normal(median: float, spread: float) -> np.ndarray:
    def cdf(e: np.ndarray) -> np.ndarray:
        return np.where(e > 0, _normal(np.log(np.maximum(e, 1e-300) / median) / spread), 0.0)

    return _masses(cdf)


def _with_zeros(masses: np.ndarray, zeros: float) -> np.ndarray:
    mixed = (1 - zeros) * masses
    mixed[ZERO] += zeros
    return mixed
