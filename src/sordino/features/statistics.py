"""What is asked of the data before training: sums of bounded vectors, one per example, released with Gaussian noise.

A statistic says what one example adds (`contributions`), that this is at most `SENSITIVITY` long, and how much noise the
sum gets (`multiplier`: standard deviation over the bound). Its event is a plain Gaussian: every example takes part.

    Mean         the features themselves                                   d numbers
    Covariance   products of the coordinates in a public subspace          k (k + 1) / 2 numbers

Contributions are clipped and truncated onto a grid example by example and added as integers, so that clients' sums add up
to the same bits in any order, and secure aggregation can carry them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from sordino.errors import BadInput, positive, whole
from sordino.privacy import events, mechanisms
from sordino.privacy.bounds import Flat
from sordino.privacy.mechanisms import FixedPoint, Sum
from sordino.privacy.randomness import Source
from sordino.privacy.release import Private, Released

SENSITIVITY = 1.0
BOUND = Flat(SENSITIVITY)
_ROWS = 32  # examples at a time: they stay in the cache


class Statistic(ABC):
    """A sum over examples."""

    name: ClassVar[str]
    multiplier: float

    @property
    @abstractmethod
    def length(self) -> int:
        """Numbers in the sum."""

    @abstractmethod
    def contributions(self, rows: np.ndarray) -> np.ndarray:
        """What each example adds, before clipping: (n, length)."""

    @abstractmethod
    def decode(self, total: np.ndarray, examples: int) -> np.ndarray:
        """The statistic, from the noisy sum over `examples` (a public number)."""

    @property
    def event(self) -> events.Event:
        return events.gaussian(self.multiplier)

    def sum(self, rows: np.ndarray, grid: FixedPoint) -> Private[Sum]:
        """The sum over the examples of one client, on the grid, stamped with the bound."""
        codes = np.zeros(self.length, np.int64)
        for start in range(0, len(rows), _ROWS):
            some = self.contributions(np.asarray(rows[start : start + _ROWS], np.float64))
            lengths = np.sqrt(np.square(some).sum(axis=1))
            some = np.where(np.isfinite(lengths)[:, None], some, 0.0) * BOUND.factors(lengths)[:, None]
            codes += grid.encode(some).sum(axis=0)
        return Private(Sum(codes, grid), bound=BOUND)


@dataclass(frozen=True)
class Mean(Statistic):
    """The mean of rows of unit length."""

    multiplier: float
    dimension: int
    name: ClassVar[str] = "mean"

    def __post_init__(self) -> None:
        positive(multiplier=self.multiplier)
        whole(1, dimension=self.dimension)

    @property
    def length(self) -> int:
        return self.dimension

    def contributions(self, rows: np.ndarray) -> np.ndarray:
        _fits(rows, self.dimension)
        return rows

    def decode(self, total: np.ndarray, examples: int) -> np.ndarray:
        return total / examples


@dataclass(frozen=True, eq=False)
class Covariance(Statistic):
    """Second moments of rows of unit length inside a public subspace: `directions` (k, d), orthonormal.

    An example with coordinates p adds the upper triangle of p p^T, entries off the diagonal times sqrt 2. Its length is
    |p|^2, at most 1.
    """

    multiplier: float
    directions: np.ndarray
    name: ClassVar[str] = "covariance"
    _upper: tuple[np.ndarray, np.ndarray] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        positive(multiplier=self.multiplier)
        if self.directions.ndim != 2:
            raise BadInput(f"Directions are rows of a matrix, not an array of shape {self.directions.shape}.")
        object.__setattr__(self, "_upper", np.triu_indices(len(self.directions)))

    @property
    def length(self) -> int:
        k = len(self.directions)
        return k * (k + 1) // 2

    def contributions(self, rows: np.ndarray) -> np.ndarray:
        _fits(rows, self.directions.shape[1])
        p = rows @ self.directions.T.astype(np.float64)
        i, j = self._upper
        return p[:, i] * p[:, j] * np.where(i == j, 1.0, math.sqrt(2.0))

    def decode(self, total: np.ndarray, examples: int) -> np.ndarray:
        """The symmetric matrix (k, k) of second moments."""
        i, j = self._upper
        out = np.zeros((len(self.directions),) * 2)
        out[i, j] = out[j, i] = total / np.where(i == j, 1.0, math.sqrt(2.0)) / examples
        return out

    @property
    def noise_norm(self) -> float:
        """About the largest eigenvalue of the noise on the sum: z sqrt(k) sqrt 2 (entries off the diagonal have z / sqrt 2)."""
        return self.multiplier * math.sqrt(2 * len(self.directions))


def release(
    statistic: Statistic, clients: Sequence[np.ndarray], source: Source
) -> tuple[Released[np.ndarray], events.Event]:
    """The statistic over all clients' rows with noise drawn by the server, and the event to be charged.

    The number of examples is public, as it is for the rate of a batch.
    """
    examples = sum(len(rows) for rows in clients)
    whole(1, examples=examples)
    grid = FixedPoint.for_bound(BOUND, examples)
    empty = Private(mechanisms.Sum(np.zeros(statistic.length, np.int64), grid), bound=BOUND)
    total = mechanisms.add((statistic.sum(rows, grid) for rows in clients), empty)
    noisy, event = mechanisms.gaussian(total, BOUND, statistic.multiplier, source)
    return noisy.map(lambda value: statistic.decode(value, examples)), event


def composed(statistics: Iterable[Statistic], head: events.Event) -> events.Event:
    """All of a plan: the statistics, then the head's rounds."""
    return events.composed([*(statistic.event for statistic in statistics), head])


def _fits(rows: np.ndarray, dimension: int) -> None:
    if rows.ndim != 2 or rows.shape[1] != dimension:
        raise BadInput(f"This statistic is for rows of {dimension} features, not for an array of shape {rows.shape}.")
