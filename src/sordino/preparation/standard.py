"""Columns of a table brought to mean 0 and deviation 1, by statistics that are released with noise.

Two releases, or one where the ranges are public:

    ranges       for each column, how many records lie in each of a fixed set of buckets (sign and power of four)
    moments      for each column, the mean and the mean square within its range

A record has one bucket in each of d columns, and 2 d moments within [-1, 1]: divided by sqrt(d) and sqrt(2 d) they are
vectors of length at most 1. A number that is missing (not finite) counts as the middle of its range, and becomes 0.

A range that was found is `WIDE` deviations of the likeliest shape of the column to either side (`column_shapes`). The moments are
then drawn towards those of that shape, as far as their noise asks for: with few records the shape is all that is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sordino.errors import BadInput, positive
from sordino.preparation.base import Preparation, Released, Stages, Statistic
from sordino.preparation.column_shapes import BUCKETS, EDGES, likeliest

WIDE = 2.5  # deviations from the middle of a range to its ends
SHIFT = 0.35  # half ranges by which the mean of a column lies off the middle, about
NARROWEST = 0.2  # of the deviation that was found first
_SOME = 256  # records at a time


@dataclass(frozen=True)
class Standard(Preparation):
    """Scale `columns` (by number; default: all). `low` and `high` are public ranges, one number for each of them.

    Without ranges, a part of the share goes into finding them; with few records they are found roughly or not at all, so
    give them where they are known. Scaled values are cut off at `cut` deviations.
    """

    share: float = 0.05
    columns: tuple[int, ...] | None = None
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    cut: float = 5.0

    kind = "standard"

    def __post_init__(self) -> None:
        self.check_share()
        positive(cut=self.cut)
        for name in ("columns", "low", "high"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else tuple(value))
        if (self.low is None) != (self.high is None):
            raise BadInput("a range has two ends: give both low and high, or neither.")
        if self.low is not None and self.high is not None:
            if len(self.low) != len(self.high) or not all(a < b for a, b in zip(self.low, self.high)):
                raise BadInput(
                    "every range must have its low end below its high end, and as many of the one as of the other."
                )
            if self.columns is not None and len(self.columns) != len(self.low):
                raise BadInput(
                    f"{len(self.columns)} columns are to be scaled and {len(self.low)} ranges are given; give one each."
                )
        if self.columns is not None and (not self.columns or len(set(self.columns)) < len(self.columns)):
            raise BadInput(f"columns must name at least one column and none twice, not {self.columns!r}.")

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        moments = "the mean and the mean square of each scaled column"
        if self.low is not None:
            return (Statistic(moments),)
        return Statistic("in which range each scaled column lies", 0.6), Statistic(moments, 0.4)

    def stages(self, shape: tuple[int, ...]) -> Stages:
        if len(shape) != 1:
            raise BadInput(
                f"preparation standard is for tables, whose records are rows of numbers, not of shape {shape}."
            )
        columns = tuple(range(shape[0])) if self.columns is None else self.columns
        if not all(isinstance(j, int) and 0 <= j < shape[0] for j in columns):
            raise BadInput(f"columns {columns!r} are not all columns of a table of {shape[0]}; count from 0.")
        if self.low is not None and len(self.low) != len(columns):
            raise BadInput(f"there are {len(columns)} columns to scale and {len(self.low)} ranges; give one each.")
        return _Columns(self, shape, np.array(columns))


class _Columns(Stages):
    def __init__(self, settings: Standard, shape: tuple[int, ...], columns: np.ndarray) -> None:
        self.settings, self.shape, self.columns, self.count = settings, shape, columns, len(columns)
        self.public = None
        if settings.low is not None and settings.high is not None:
            self.public = np.concatenate([settings.low, settings.high])

    def _ranges(self, step: int) -> bool:
        """Whether this is the release that finds the ranges."""
        return self.public is None and step == 0

    def length(self, step: int) -> int:
        return self.count * (BUCKETS if self._ranges(step) else 2)

    def contributions(self, step: int, x: np.ndarray, released: Released) -> Iterator[np.ndarray]:
        for start in range(0, len(x), _SOME):
            some = np.asarray(x[start : start + _SOME], np.float64)[:, self.columns]
            if self._ranges(step):
                bucket = np.searchsorted(EDGES, np.nan_to_num(some, nan=0.0, posinf=0.0, neginf=0.0), side="right")
                hot = np.zeros((len(some), self.count, BUCKETS))
                np.put_along_axis(hot, bucket[:, :, None], 1 / np.sqrt(self.count), axis=2)
                yield hot.reshape(len(some), -1)
            else:
                u = self._within(some, released)
                yield np.concatenate([u, 2 * u**2 - 1], axis=1) / np.sqrt(2 * self.count)

    def _within(self, some: np.ndarray, released: Released) -> np.ndarray:
        """Each column as a number from -1 to 1 within its range; 0 where it is missing."""
        middle, half = self._middle(released)
        with np.errstate(invalid="ignore", over="ignore"):
            u = (some - middle) / half
        return np.clip(np.where(np.isfinite(some), u, 0.0), -1, 1)

    def _middle(self, released: Released) -> tuple[np.ndarray, np.ndarray]:
        ends = self.public if self.public is not None else released[0]
        low, high = ends[: self.count], ends[self.count :]
        return (low + high) / 2, np.maximum((high - low) / 2, 1e-30)

    def decode(self, step: int, mean: np.ndarray, noise: float) -> np.ndarray:
        if self._ranges(step):
            parts = mean.reshape(self.count, BUCKETS) * np.sqrt(self.count)
            centre, deviation = likeliest(parts, noise * np.sqrt(self.count))
            return np.concatenate([centre - WIDE * deviation, centre + WIDE * deviation])
        mean, noise = mean * np.sqrt(2 * self.count), noise * np.sqrt(2 * self.count)
        u, square = np.clip(mean[: self.count], -1, 1), (mean[self.count :] + 1) / 2
        if self.public is None:
            return np.concatenate(_towards_shape(u, square, noise))
        spread = np.sqrt(np.clip(square - u**2, max(min(noise, 1.0), 1e-8), 1.0))  # never below what noise alone makes
        return np.concatenate([u, spread])

    def apply(self, x: np.ndarray, released: Released) -> np.ndarray:
        out = np.array(x, np.float64)
        middle, half = self._middle(released)
        u, spread = released[-1][: self.count], released[-1][self.count :]
        some = out[:, self.columns]
        centre, width = middle + half * u, half * spread
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # a server may tell anything
            scaled = np.where(np.isfinite(some), (some - centre) / width, 0.0)
        out[:, self.columns] = np.clip(scaled, -self.settings.cut, self.settings.cut)
        return out.astype(np.float32)


def _towards_shape(u: np.ndarray, square: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation in half ranges, drawn towards 0 and 1 / WIDE by the part that is noise: posterior means, roughly.

    The noise of a mean square is half of `noise`; that of the squared mean is 2 u times it, and makes it too large by its square.
    """
    usual = 1 / WIDE**2
    trust = usual**2 / (usual**2 + (noise / 2) ** 2 + (2 * u * noise) ** 2)
    variance = usual + trust * (square - u**2 + noise**2 - usual)
    spread = np.sqrt(np.clip(variance, NARROWEST**2 * usual, 1.0))
    return u * SHIFT**2 / (SHIFT**2 + noise**2), spread
