"""How far clients lie apart, with noise: further entries of the sum that `noisy_figures` reads, in the same release.

Every unit has one figure m between -1 and 1: in the example unit whether its record is right, in the client unit twice its
accuracy less one.

    example unit   m, in the entry of the record's client                  the accuracy of every client
    client unit    2 m^2 - 1                                               the second moment of the clients' accuracies

The old entries and the new ones have half of the squared length each. So a unit still adds a vector of length at most 1, and the
release costs the same; its figures carry more noise, by a factor of sqrt 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sordino.privacy.vocabulary import Unit

HALF = math.sqrt(0.5)
TENTH = 10  # percentile


@dataclass(frozen=True)
class NoisySpread:
    """Accuracy between clients. `noise` is the largest deviation of the noise in one of `each`, or that in the variance.

    `sd` is what remains after the noise's own share is taken off; None: nothing does.
    """

    clients: int
    mean: float
    sd: float | None
    noise: float
    sd_interval: tuple[float, float] | None = None  # 95%, from the noise; client unit
    lowest: float | None = None  # of noisy accuracies: noise alone spreads them
    tenth: float | None = None
    each: tuple[float | None, ...] = ()  # None: this client holds nothing out


@dataclass(frozen=True)
class Spreading:
    """What is added to the contributions of a unit. `sizes`: how many records each client holds out, public."""

    unit: str
    sizes: tuple[int, ...]

    @property
    def length(self) -> int:
        """How many numbers the spread between clients takes in the sum."""
        return len(self.sizes) if self.unit == Unit.EXAMPLE else 1

    def widened(self, rows: np.ndarray, m: np.ndarray, client: int) -> np.ndarray:
        """Rows of length at most 1, with the entries of client `client` behind them; m has one number for each row."""
        more = np.zeros((len(rows), self.length))
        if self.unit == Unit.EXAMPLE:
            more[:, client] = m
        else:  # the client's mean, in each of its rows: their mean is what is sent
            more[:, 0] = 2 * float(np.mean(m)) ** 2 - 1 if len(m) else 0.0
        return np.concatenate([rows * HALF, more * HALF], axis=1)

    def read(self, mean: float, noise: float, more: np.ndarray, more_noise: float, tested: int) -> NoisySpread:
        """From the noisy means of m and of the further entries over `tested` units; each with the deviation of its noise."""
        if self.unit == Unit.EXAMPLE:
            return self._each(more * tested, more_noise * tested)
        m, second = float(mean), (1 + float(more[0])) / 2
        variance = (second - m**2 + noise**2) / 4  # a noisy mean's square is too large by the noise's own variance
        off = math.hypot(more_noise / 2, 2 * m * noise) / 4
        low, high = (math.sqrt(max(variance + side * 1.96 * off, 0.0)) for side in (-1, 1))
        sd = math.sqrt(variance) if variance > 0 else None
        return NoisySpread(tested, _within((1 + m) / 2), sd, off, (low, min(high, 0.5)))

    def _each(self, sums: np.ndarray, noise: float) -> NoisySpread:
        sizes = np.array(self.sizes, np.float64)
        there = sizes > 0
        accuracy = (1 + sums[there] / sizes[there]) / 2
        off, count = noise / (2 * sizes[there]), int(there.sum())
        variance = float(accuracy.var() - np.square(off).mean() * (1 - 1 / count))
        found = iter(accuracy)
        return NoisySpread(
            clients=count,
            mean=_within(float(accuracy.mean())),
            sd=math.sqrt(variance) if variance > 0 else None,
            noise=float(off.max()),
            lowest=_within(float(accuracy.min())),
            tenth=_within(float(np.percentile(accuracy, TENTH))),
            each=tuple(_within(float(next(found))) if one else None for one in there),
        )


def _within(share: float) -> float:
    return float(np.clip(share, 0.0, 1.0))
