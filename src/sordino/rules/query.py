"""What each unit is asked about its norm, and what the answer costs.

A query turns the norms of a cohort's units into one small summed vector. Every unit's own contribution has L2 norm at
most `norm`, so the sum with Gaussian noise of standard deviation s is a Gaussian event of multiplier ``s / norm``. A
query takes a `share` of the round's privacy, and the clipped sum takes the rest (see `split`): however it is divided,
the round is one Gaussian event of the round's multiplier.

`RawNorm` is the exception that the published methods need: exact norms, which no noise protects. It can only leave
through `disclose`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sordino.errors import BadInput, between, positive
from sordino.privacy.bounds import Flat
from sordino.privacy.mechanisms import FixedPoint


class Query(Protocol):
    """What is asked; a frozen dataclass."""

    @property
    def share(self) -> float:
        """The part of the round's privacy that it takes."""

    @property
    def norm(self) -> float:
        """The largest L2 norm of one unit's answer (doubled by the accountant where a unit may be replaced)."""

    def encode(self, norms: np.ndarray, bound: float) -> np.ndarray:
        """The summed answer of units with these update norms, under the bound now in force."""


@dataclass(frozen=True)
class Answer:
    """A released answer: the noisy sum, the public number of units that it is divided by, and the std of its noise.

    An answer in the raw (see `RAW`) is not a sum: its total holds one entry for each unit, and may be empty.
    """

    total: np.ndarray
    units: float
    std: float = 0.0  # of the noise on each entry of the total; public

    @property
    def mean(self) -> np.ndarray:
        return self.total / self.units

    @property
    def noise(self) -> float:
        """The standard deviation of the noise in the mean."""
        return self.std / self.units


@dataclass(frozen=True)
class CentredBit:
    """Whether the norm lies within the bound, as +1/2 or -1/2 (Andrew et al. 2021, section 3.1).

    Centred, because a unit that comes or goes then moves the sum by 1/2 and not by 1: half the noise does.
    """

    share: float = 0.05

    def __post_init__(self) -> None:
        between(0, 1, share=self.share)

    norm = 0.5

    def encode(self, norms: np.ndarray, bound: float) -> np.ndarray:
        return np.array([np.sum(np.asarray(norms) <= bound) - 0.5 * len(norms)], float)


@dataclass(frozen=True)
class HistogramBin:
    """In which of the public bins the norm falls: a vector of counts, from below the first edge to above the last."""

    edges: tuple[float, ...]
    share: float = 0.1

    norm = 1.0

    def __post_init__(self) -> None:
        between(0, 1, share=self.share)
        if not self.edges or any(a >= b for a, b in zip(self.edges, self.edges[1:])) or self.edges[0] <= 0:
            raise BadInput(f"edges must be positive and increasing, not {self.edges!r}.")

    @classmethod
    def log_spaced(cls, low: float, high: float, bins: int, share: float = 0.1) -> HistogramBin:
        positive(low=low, high=high)
        return cls(tuple(np.geomspace(low, high, bins).tolist()), share)

    def encode(self, norms: np.ndarray, bound: float) -> np.ndarray:
        bins = np.searchsorted(self.edges, norms, side="left")
        return np.bincount(bins, minlength=len(self.edges) + 1).astype(float)


@dataclass(frozen=True)
class BoundedValue:
    """The norm itself, cut off at `cap` times the bound, in units of that cap: a number from 0 to 1."""

    cap: float = 2.0
    share: float = 0.05

    norm = 1.0

    def __post_init__(self) -> None:
        between(0, 1, share=self.share)
        positive(cap=self.cap)

    def encode(self, norms: np.ndarray, bound: float) -> np.ndarray:
        # fmin: a norm that is not a number counts as the cap, not as a hole in the sum.
        return np.array([np.fmin(np.asarray(norms, float) / (self.cap * bound), 1.0).sum()])


@dataclass(frozen=True)
class RawNorm:
    """The exact norms. Not private at any epsilon; only for the published variants, through `disclose`."""

    share: float = 0.0
    norm = math.inf

    def encode(self, norms: np.ndarray, bound: float) -> np.ndarray:
        return np.asarray(norms, float)


@dataclass(frozen=True)
class RawBit:
    """The exact bits, one for each unit: 1 below the bound, else 0. Not private either; for published variants only."""

    share: float = 0.0
    norm = math.inf

    def encode(self, norms: np.ndarray, bound: float) -> np.ndarray:
        return (np.asarray(norms) < bound).astype(float)


RAW = (RawNorm, RawBit)
KINDS = (CentredBit, HistogramBin, BoundedValue, *RAW)  # that a server may ask
_EXACT = (CentredBit, HistogramBin)  # sums of halves and of ones: adding before or after the grid is the same


def is_raw(query: Query | None) -> bool:
    return isinstance(query, RAW)


def answer_length(query: Query) -> int:
    """How many numbers an answer has."""
    return query.encode(np.zeros(0), 1.0).size


def answer_codes(query: Query, norms: np.ndarray, bound: float, grid: FixedPoint) -> np.ndarray:
    """The summed answer of these units on a grid. No unit adds more than the norm that the query declares.

    A query may be a user's own, so its word is not taken: each unit is asked by itself, and its answer is clipped.
    """
    if type(query) in _EXACT:
        return grid.encode(query.encode(norms, bound))
    total, limit = np.zeros(answer_length(query), np.int64), Flat(query.norm)
    for norm in np.asarray(norms, np.float64):
        total += grid.encode(limit.clip(query.encode(np.array([norm]), bound)))
    return total


def split(multiplier: float, *queries: Query | None) -> tuple[float, list[float | None]]:
    """Divide a round's privacy: the multiplier left for the clipped sum, and the noise std of each query.

    The shares are of 1/z^2, in which Gaussian queries on the same units add up, so that

    >>> z_sum, (std,) = split(2.0, CentredBit(share=0.19))
    >>> round((z_sum**-2 + (0.5 / std) ** 2) ** -0.5, 12)
    2.0
    """
    noisy = [q for q in queries if q is not None and not is_raw(q)]
    taken = sum(q.share for q in noisy)
    if taken >= 1:
        raise BadInput(f"the queries take a share of {taken} of the round's privacy; leave some for the sum (below 1).")
    stds = [None if q is None or is_raw(q) else q.norm * multiplier / math.sqrt(q.share) for q in queries]
    return multiplier / math.sqrt(1 - taken), stds
