"""Exact samplers of integers, in vectors: the discrete Gaussian and the rounded Laplace, of any size that fits 64 bits.

Both are rejection samplers with one uniform real number U and one uniform integer j (the idea is Karney's, 2016). The
integers are cut into cells of w = 2^e; cell c holds c w, ..., c w + w - 1. With f the unnormalised law, and the cells
ordered 0, -1, 1, -2, 2, ... from the centre outwards, each with the largest value that f has in it as its height:

    U uniform on [0, M)              M is at least the sum of all heights
    c: the cell in which U falls     when the heights are put end to end; S is where the cell begins
    y = c w + j                      j uniform on 0, ..., w - 1: e random bits
    y is kept if U - S < f(y)        else another U and another j

What is kept has exactly the law f. A uniform needs only as many bits as it takes to decide. Here the first 64 bits are
compared in double precision for a whole vector at once. Where U is closer to a limit than a margin that no rounding
error reaches, the draw is settled by itself, with as many decimal digits and, if it must be, as many more bits as it
takes. So the error is zero, given that the source's bits are random and that numpy's exp is right to a few units in the
last place. The same bits give the same integers on every machine: nothing that rounding can change decides anything.

Most draws never see f: between the largest and the smallest value of f in a cell lies one part in forty of the whole, and
a table of the first 14 bits of U says at once which cells those bits leave no doubt about.

The number of attempts depends on the draw, as in any rejection sampler; the time taken is not constant.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar, TypeVar

import numpy as np

from sordino.errors import BadInput, positive, whole
from sordino.privacy.randomness import SecureSource, Source

LEAST = 2.0**-30
MOST = 2.0**57  # of a standard deviation: sixteen of them are half of what 64 bits hold
MOST_LAPLACE = 2.0**55  # of a scale: sixty-four of them

_MARGIN = 2.0**-32  # on U. The sums of heights, below 2^7 in at most 3000 terms, are right to 2^-34
_GUIDE = 14  # bits of U that the table looks at
_LONG = 4096  # draws of one law that are worth a table
_BLOCK = 1 << 14  # draws at a time: the working set stays in the cache
_UNSURE = np.iinfo(np.int64).min

_Interval = tuple[Fraction, Fraction]
_Cell = TypeVar("_Cell", int, np.ndarray)


def discrete_gaussian(sigma: float, size: int, source: Source) -> np.ndarray:
    """`size` integers, each k with probability proportional to exp(-k^2/(2 sigma^2))."""
    positive(sigma=sigma)
    whole(0, size=size)
    if not LEAST <= sigma <= MOST:
        raise BadInput(f"sigma must lie between 2^-30 and 2^57, not {sigma!r}; scale the sum so that it does.")
    return _cells(_Gaussian(float(sigma))).draw(size, source)


def rounded_laplace(scale: float, size: int, source: Source) -> np.ndarray:
    """`size` Laplace variates of this scale, each rounded to the nearest integer.

    With g geometric of ratio exp(-1/(2 scale)), the whole part of (g + 1)/2 is an exponential variate rounded. Here y is
    g, or -1 - g for the other sign, and both come out as the whole part of (y + 1)/2.
    """
    positive(scale=scale)
    whole(0, size=size)
    if not LEAST <= scale <= MOST_LAPLACE:
        raise BadInput(f"scale must lie between 2^-30 and 2^55, not {scale!r}; scale the sum so that it does.")
    y = _cells(_TwoSided(2.0 * scale)).draw(size, source)
    y += 1
    y >>= 1
    return y


@dataclass(frozen=True)
class _Law(ABC):
    """f on the integers: 1 at the centre, falling on both sides, and f(a + b) <= f(a) f(b) for a, b >= 0."""

    scale: float
    area: ClassVar[float]  # at least the integral of f over the reals, over the scale
    reach: ClassVar[float]  # in scales: f is below 2^-64 from here on

    @abstractmethod
    def chance(self, y: np.ndarray) -> np.ndarray:
        """f(y) in double precision, right to 2^-45."""

    @abstractmethod
    def exponent(self, y: int) -> Fraction:
        """-log f(y)."""


class _Gaussian(_Law):
    area, reach = 2.50662828, 9.5

    def chance(self, y: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * np.square(y / self.scale))

    def exponent(self, y: int) -> Fraction:
        return (y / Fraction(self.scale)) ** 2 / 2


class _TwoSided(_Law):
    """exp(-g/scale) for y = g and for y = -1 - g, g = 0, 1, 2, ..."""

    area, reach = 2.0, 45.0

    def chance(self, y: np.ndarray) -> np.ndarray:
        return np.exp(-((y ^ (y >> 63)) / self.scale))

    def exponent(self, y: int) -> Fraction:
        return (y if y >= 0 else -1 - y) / Fraction(self.scale)


class _Cells:
    """One law cut into cells, 16 to 32 of them to a scale (of single integers where the scale is below 16)."""

    def __init__(self, law: _Law) -> None:
        self.law = law
        self.bits = max(0, math.frexp(law.scale)[1] - 5)
        to_a_scale = math.ldexp(law.scale, -self.bits)
        # Heights 1, 1, h1, h1, h2, ... add up to at most 2 + integral. With 16 cells to a scale it is 1 + integral, up to
        # exp(-5000) for the Gaussian and 1/(6 x 16) for the other. No library function: the same on every machine.
        self.most = (1.02 if to_a_scale >= 16 else 2.0) + law.area * to_a_scale
        rings = np.arange(math.ceil(law.reach * to_a_scale) + 2, dtype=np.int64)
        height = law.chance(rings << self.bits)
        self.starts = np.concatenate([[0.0], np.cumsum(np.repeat(height[:-1], 2)), [math.inf]])
        self.core = np.repeat(height[1:], 2)  # the smallest value of f in a cell, or less
        self._heights: dict[tuple[int, int], _Interval] = {}
        self._drawn = 0

    def draw(self, size: int, source: Source) -> np.ndarray:
        out = np.empty(size, dtype=np.int64)
        self._drawn += size
        guide = self._guide if self._drawn >= _LONG else None  # it changes the time, and nothing else
        missing = [start + self._fill(out[start : start + _BLOCK], guide, source) for start in range(0, size, _BLOCK)]
        again = np.concatenate(missing) if missing else np.empty(0, np.intp)
        while again.size:
            out[again], keep = self._decide(*self._words(again.size, source), source)
            again = again[~keep]
        return out

    def _fill(self, out: np.ndarray, guide: np.ndarray | None, source: Source) -> np.ndarray:
        """One draw for each place; the places are returned whose draw was not kept."""
        u, j = self._words(out.size, source)
        if guide is None:
            out[:], keep = self._decide(u, j, source)
            return np.flatnonzero(~keep)
        np.take(guide, (u >> np.uint64(64 - _GUIDE)).view(np.int64), out=out, mode="clip")
        unsure = np.flatnonzero(out == _UNSURE)
        out += j
        out[unsure], keep = self._decide(u[unsure], j[unsure], source)
        return unsure[~keep]

    def _words(self, size: int, source: Source) -> tuple[np.ndarray, np.ndarray]:
        words = _words(source, 2 * size)
        return words[:size], (words[size:] & np.uint64((1 << self.bits) - 1)).view(np.int64)

    def _decide(self, u: np.ndarray, j: np.ndarray, source: Source) -> tuple[np.ndarray, np.ndarray]:
        """Each draw's y, and whether it is kept."""
        at = u.astype(np.float64) * math.ldexp(self.most, -64)
        cell = np.searchsorted(self.starts, at, side="right") - 1
        y = (_place(cell) << self.bits) + j
        start = self.starts[cell]
        limit = start + self.law.chance(y)
        keep = (at < limit) & (cell < self.core.size)
        near = np.minimum(np.abs(at - limit), np.minimum(at - start, self.starts[cell + 1] - at)) <= _MARGIN
        for k in np.flatnonzero(near):
            settled = self._settle(int(u[k]), int(j[k]), source)
            keep[k] = settled is not None
            y[k] = 0 if settled is None else settled
        return y, keep

    @cached_property
    def _guide(self) -> np.ndarray:
        """For the first bits of U: the first integer of its cell where y is surely kept, else _UNSURE."""
        width = math.ldexp(self.most, -_GUIDE)
        start = self.starts[: self.core.size]
        first = np.ceil((start + np.where(start > 0, _MARGIN, 0.0)) / width).astype(np.int64)  # nothing lies before 0
        last = np.maximum(np.floor((start + self.core - _MARGIN) / width).astype(np.int64), first)
        values = np.stack([np.full(start.size, _UNSURE), _place(np.arange(start.size)) << self.bits], axis=1).ravel()
        counts = np.diff(np.stack([first, last], axis=1).ravel(), prepend=0)
        known = np.repeat(values, np.maximum(counts, 0))
        return np.concatenate([known, np.full((1 << _GUIDE) - known.size, _UNSURE)])

    # ---- exact ---------------------------------------------------------------------------------------------------------

    def _settle(self, word: int, j: int, source: Source) -> int | None:
        """One draw in exact arithmetic: y, or None where it is not kept."""
        bits, digits = 64, 40
        while True:
            low, high = (Fraction(word + more, 1 << bits) * Fraction(self.most) for more in (0, 1))
            found = self._find(low, high, j, digits)
            if found is not _OPEN:
                return found
            word, bits, digits = word << 64 | int(_words(source, 1)[0]), bits + 64, digits + 20

    def _find(self, low: Fraction, high: Fraction, j: int, digits: int) -> int | None:
        """y, None where it is not kept, or _OPEN where U, between low and high, is not known well enough."""
        begin_low = begin_high = Fraction(0)
        for cell in itertools.count():
            height_low, height_high = self._height(cell // 2, digits)
            if low < begin_high + height_high:
                if high > begin_low + height_low:
                    return _OPEN
                y = (_place(cell) << self.bits) + j
                chance_low, chance_high = _exp(-self.law.exponent(y), digits)
                if high <= begin_low + chance_low:
                    return y
                return None if low >= begin_high + chance_high else _OPEN
            begin_low, begin_high = begin_low + height_low, begin_high + height_high
            # f(a + b) <= f(a) f(b), so that all cells that follow have at most this height times the sum of all.
            if low >= begin_high + height_high * Fraction(self.most):
                return None
        raise AssertionError

    def _height(self, ring: int, digits: int) -> _Interval:
        if (ring, digits) not in self._heights:
            self._heights[ring, digits] = _exp(-self.law.exponent(ring << self.bits), digits)
        return self._heights[ring, digits]


_OPEN = -(1 << 200)  # no draw


@lru_cache(maxsize=16)
def _cells(law: _Law) -> _Cells:
    return _Cells(law)


def _place(cell: _Cell) -> _Cell:
    """The order of cells from the centre outwards: 0, -1, 1, -2, 2, ..."""
    return (cell >> 1) ^ -(cell & 1)


def _exp(x: Fraction, digits: int) -> _Interval:
    """An interval around exp(x). Decimal's division and exp are correctly rounded; the slack covers both."""
    context = Context(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX)
    quotient = context.divide(Decimal(x.numerator), Decimal(x.denominator))
    value = Fraction(context.exp(quotient))
    slack = value * (abs(x) + 1) * Fraction(4, 10**digits) * 10
    return value - slack, value + slack


def _words(source: Source, size: int) -> np.ndarray:
    if isinstance(source, SecureSource):
        return source.integers64(size)
    return source.bit_generator.random_raw(size)  # the generator's own words, the same in every version of numpy
