"""What an observer computes from what it saw: one number per statistic, by which it tells two worlds apart.

The first is the best test there is for the mechanism that the plan speaks of (Neyman and Pearson 1933). The others
are there for what an implementation may get wrong: noise that repeats, noise that follows the data, an answer or a
bound that tells by itself, a denominator that counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sordino.audit.worlds import Release

NAMES = (
    "likelihood ratio",
    "sum",
    "answers",
    "difference of rounds",
    "energy",
    "bound",
    "difference of messages",
    "likelihood ratio (Laplace)",
    "raw answers",
    "energy, bound unknown",
)
_TINY = 1e-300


def statistics(releases: Sequence[Release], rate: float, laplace: bool) -> list[float]:
    """One number for each of `NAMES`."""
    sums = [_gaussian_ratio(r.value, r.shift, r.std) for r in releases]
    told = [sum(_gaussian_ratio(a, q, s) for a, q, s in r.answers if s is not None) for r in releases]
    first, last = releases[0], releases[-1]
    return [
        sum(_mixed(s + a, rate) for s, a in zip(sums, told)),
        sum(sums),
        sum(told),
        _along(first.value / first.bound - last.value / last.bound, first.shift),
        sum(math.log(float(np.sum(np.square(r.value / r.std))) + _TINY) for r in releases),
        math.log(last.bound),
        sum(_along(r.value - r.others[0], r.shift) for r in releases) if first.others else 0.0,
        sum(_mixed(_laplace_ratio(r.value, r.shift, r.std), rate) for r in releases) if laplace else 0.0,
        sum(float(np.sum(a)) for r in releases for a, _, s in r.answers if s is None),
        sum(math.log(float(np.sum(np.square(r.value))) + _TINY) for r in releases),
    ]


def _gaussian_ratio(value: np.ndarray, shift: np.ndarray, std: float | np.ndarray) -> float:
    """log of the density with the shift over that without it."""
    white = shift / np.square(std)
    return float(np.dot(value, white) - np.dot(shift, white) / 2)


def _laplace_ratio(value: np.ndarray, shift: np.ndarray, std: float | np.ndarray) -> float:
    return float(np.sum((np.abs(value) - np.abs(value - shift)) / (np.asarray(std) / math.sqrt(2))))


def _mixed(log_ratio: float, rate: float) -> float:
    """The same when the unit takes part with this probability."""
    if rate == 1:
        return log_ratio
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + log_ratio))


def _along(value: np.ndarray, shift: np.ndarray) -> float:
    length = float(np.linalg.norm(shift))
    return float(np.dot(value, shift)) / length if length else 0.0
