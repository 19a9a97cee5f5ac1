"""The door out: (private sum, bound, multiplier) -> (released value, event to be charged).

Nobody else draws noise. A mechanism opens a private sum, adds noise whose size the *bound that clipped it* dictates,
and returns the event that describes what was released. A sum that was clipped under another bound is refused.

Sums are integers. A clipped contribution is truncated towards zero onto a grid of power-of-two spacing (its norm can
only shrink) and integers are added, so that order and grouping change no bit and secure aggregation can carry the same
numbers. Noise is drawn as integers too, by exact samplers: the low bits of what is released tell nothing about the sum,
unlike those of noise in floating point (Mironov 2012). What the integers cost is in `grid_noise`. Answers to queries go
the same way: they are sums on a grid of their own, clipped to the norm that the query declares (`answer`).

Where the noise is drawn (C = bound, z = multiplier, h = least number of survivors, m = contributions):

    by the server, on the sum    `gaussian`                  std zC on the sum, for the public
    by each client, a share      `add_share(survivors=h)`    std zC sqrt(m/h) on the sum, at least zC if m >= h
    by each client, in full      `add_share(survivors=1)`    std zC on each message, zC sqrt(m) on their sum

then `open_noised` lets the sum out, after checking that the shares in it suffice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sordino.errors import BadInput, NotPrivate, positive, whole
from sordino.privacy import grid_noise
from sordino.privacy.bounds import Bound, Flat
from sordino.privacy.events import Event
from sordino.privacy.randomness import Source
from sordino.privacy.release import Private, Released, _open, disclose

# At most 2^40 steps to the bound, and no fewer than 2^37 for a million units and a multiplier of 1000. Where units are summed
# before they are truncated (a chunk of records), neighbours may be one step further apart in each coordinate: sqrt(d) steps
# a chunk, far less than the 2^-14 by which such gradients are clipped short.
_FINEST = 40
_ROOM = 61  # bits for the sum, and as many for the tail of its noise: together they stay below 2^62


@dataclass(frozen=True)
class FixedPoint:
    """A grid of spacing 1/scale, the scale a power of two, on which addition is exact."""

    scale: float

    def __post_init__(self) -> None:
        positive(scale=self.scale)
        if math.frexp(self.scale)[0] != 0.5:
            raise BadInput(f"scale must be a power of two, not {self.scale!r}.")

    @classmethod
    def for_bound(cls, bound: Bound | float, units: int, multiplier: float = 1000.0) -> FixedPoint:
        """The finest useful grid on which `units` contributions within `bound`, and their noise, cannot overflow 64 bits.

        There is room for noise of up to this multiplier on each of the contributions. A larger one makes a coarser grid.
        """
        whole(units=units)
        positive(multiplier=multiplier)
        bound = bound if isinstance(bound, Bound) else Flat(bound)
        spread = float(np.max(bound.std(1.0)))
        size = bound.size if bound.honest else max(bound.size, spread)  # other noise does not shrink with the bound
        far = 64 if bound.norm_kind == "l1" else 16  # in deviations: the tail of Laplace noise is long
        noise = math.frexp(far * multiplier * math.sqrt(units) * max(spread / size, 1.0))[1]
        steps = min(_FINEST, _ROOM - (units - 1).bit_length(), _ROOM - noise)  # log2 of the steps from 0 to the bound
        if steps < 8:
            raise BadInput(
                f"{units} units with a multiplier of {multiplier:g} are too many for one 64-bit sum; sum them in parts."
            )
        return cls(math.ldexp(1.0, min(max(steps - math.frexp(size)[1], -1000), 1000)))

    def encode(self, v: np.ndarray) -> np.ndarray:
        """Truncated towards zero: no coordinate, hence no norm, grows."""
        return self._codes(np.asarray(v, dtype=np.float64) * self.scale)

    def round(self, v: np.ndarray) -> np.ndarray:
        """Rounded to the nearest point of the grid: for what has been released and has no norm to keep."""
        scaled = np.asarray(v, dtype=np.float64) * self.scale
        return self._codes(np.rint(scaled, out=scaled))

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Codes of this grid as numbers."""
        return np.asarray(codes) / self.scale

    def _codes(self, v: np.ndarray) -> np.ndarray:
        if v.size and not (v.max() < 2.0**62 and v.min() > -(2.0**62)):  # a NaN is neither
            raise BadInput("A value does not fit the fixed-point grid; make the grid for the bound that clips.")
        return v.astype(np.int64)  # towards zero


@dataclass(frozen=True, eq=False)
class Sum:
    """A sum on a grid. `noise` is the variance of the shares in it in squared bounds: all shares of z make z^2."""

    codes: np.ndarray
    grid: FixedPoint
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.codes.dtype != np.int64 or self.codes.ndim != 1:
            raise BadInput(f"A sum is a flat vector of int64, not {self.codes.dtype} of shape {self.codes.shape}.")

    def __add__(self, other: Sum) -> Sum:
        if not isinstance(other, Sum):
            return NotImplemented
        if self.grid != other.grid or self.codes.shape != other.codes.shape:
            raise BadInput("Sums on different grids or of different lengths cannot be added.")
        return Sum(self.codes + other.codes, self.grid, self.noise + other.noise)

    def decode(self) -> np.ndarray:
        """The sum as numbers."""
        return self.grid.decode(self.codes)


def add(parts: Iterable[Private[Sum]], start: Private[Sum]) -> Private[Sum]:
    """The sum of contributions clipped under one bound, begun with `start` (see `nothing`)."""
    total = _open(start)
    codes, noise = total.codes.copy(), total.noise
    for part in parts:
        piece = _stamped(part, start.bound)
        if piece.grid != total.grid or piece.codes.shape != codes.shape:
            raise BadInput("Sums on different grids or of different lengths cannot be added.")
        codes += piece.codes
        noise += piece.noise
    return Private(Sum(codes, total.grid, noise), bound=start.bound)


def answer(vector: np.ndarray, norm: float, grid: FixedPoint) -> np.ndarray:
    """The answer of one unit (a vector), or the sum of the answers of several (one row each), as codes on the grid.

    Each unit's answer is clipped to the L2 norm that the query declares. So a query that declares too little loses
    accuracy, and not privacy. The codes make a Sum that is stamped with Flat(norm).
    """
    rows = np.asarray(vector, dtype=np.float64)
    if rows.ndim not in (1, 2):
        raise BadInput(f"Answers are a vector, or one row for each unit, not of shape {rows.shape}.")
    rows = rows.reshape(-1, rows.shape[-1])
    largest = np.abs(rows).max(axis=1, initial=0.0)
    fit = np.isfinite(largest) & (largest > 0)  # an answer that is not finite counts for nothing
    rows, largest = rows[fit], largest[fit]
    with np.errstate(over="ignore"):
        norms = largest * np.sqrt(np.square(rows / largest[:, None]).sum(axis=1))  # no square leaves the doubles
    return grid.encode(rows * Flat(norm).factors(norms)[:, None]).sum(axis=0)


def gaussian(
    total: Private[Sum], bound: Bound, multiplier: float, source: Source
) -> tuple[Released[np.ndarray], Event]:
    """Noise of standard deviation multiplier x bound on each coordinate of the sum; event gaussian(multiplier)."""
    from sordino.privacy import events

    value = _stamped(total, bound)
    codes = value.codes.copy()
    _add_gaussian(codes, value.grid, bound, multiplier, 1, source)
    how = f"Gaussian noise, multiplier {multiplier:g}, bound {bound.size:g}"
    return Released(value.grid.decode(codes), how), _charged(bound, events.gaussian(multiplier))


def laplace(total: Private[Sum], bound: Bound, multiplier: float, source: Source) -> tuple[Released[np.ndarray], Event]:
    """Laplace noise of scale multiplier x bound on each coordinate of an L1-clipped sum; event laplace(multiplier)."""
    from sordino.privacy import events

    _noisy(multiplier)
    _of_kind(
        bound, "l1", "Laplace noise needs an L1 bound: in d coordinates an L2 bound C allows an L1 norm of sqrt(d) C."
    )
    value = _stamped(total, bound)
    noise = grid_noise.laplace(multiplier * bound.size * value.grid.scale, value.codes.size, source)
    how = f"Laplace noise, scale {multiplier:g} times the L1 bound {bound.size:g}"
    return Released(value.grid.decode(value.codes + noise), how), _charged(bound, events.laplace(multiplier))


def add_share(
    codes: np.ndarray, grid: FixedPoint, bound: Bound, multiplier: float, survivors: int, source: Source
) -> float:
    """Add one client's share of the noise to its codes, in place; the share's variance in squared bounds, as evidence.

    `survivors` is the least number of honest clients that the protocol lets a sum be opened with; more only add noise.
    With survivors = 1 it is the full noise of a client that trusts nobody.
    """
    if codes.dtype != np.int64 or codes.ndim != 1:
        raise BadInput(f"Noise is added to a flat vector of int64, not {codes.dtype} of shape {codes.shape}.")
    _add_gaussian(codes, grid, bound, multiplier, survivors, source)
    return multiplier**2 / survivors


def open_noised(total: Private[Sum], bound: Bound, multiplier: float) -> tuple[Released[np.ndarray], Event]:
    """A sum whose noise came in shares (or a single message with noise in full); event gaussian(multiplier).

    Fewer survivors than the shares were cut for would leave too little noise: such a sum stays closed.
    """
    from sordino.privacy import events

    _noisy(multiplier)
    value = _stamped(total, bound)
    if value.noise < multiplier**2 * (1 - 1e-9):
        raise NotPrivate(
            f"The shares in this sum make a multiplier of {math.sqrt(value.noise):.3g}, not {multiplier:g}: too few "
            "clients survived; drop the round, or cut the shares for fewer survivors."
        )
    how = f"Gaussian noise in shares, multiplier {multiplier:g}, bound {bound.size:g}"
    return Released(value.decode(), how), _charged(bound, events.gaussian(multiplier))


def without_noise(total: Private, reason: str = "no noise is added") -> tuple[Released[np.ndarray], Event]:
    """The sum as it is, through the other door: epsilon becomes infinite and the statement prints the reason."""
    return disclose(total.map(lambda value: value.decode() if isinstance(value, Sum) else value), reason)


def _charged(bound: Bound, event: Event) -> Event:
    """The event of a release under `bound`; a bound whose noise does not match its clipping proves nothing."""
    from sordino.privacy import events

    return event if bound.honest else events.nonprivate("the noise does not match the clipping")


def _add_gaussian(
    codes: np.ndarray, grid: FixedPoint, bound: Bound, multiplier: float, survivors: int, source: Source
) -> None:
    _noisy(multiplier)
    _of_kind(bound, "l2", "Gaussian noise protects an L2 bound; for an L1 bound use laplace.")
    spread = _spread(bound, multiplier, codes.size) * grid.scale  # exact: the scale is a power of two
    codes += grid_noise.gaussian(spread, codes.size, source, survivors)


def _stamped(total: Private[Sum], bound: Bound | None) -> Sum:
    """The sum, if it was clipped under this bound; only the bound that clips may size the noise."""
    value = _open(total)
    if not isinstance(value, Sum):
        raise BadInput(f"A mechanism needs a Sum, integers on a grid, not {type(value).__name__}.")
    stamp = total.bound
    if stamp is None:
        raise NotPrivate("This sum carries no bound: clip each contribution and stamp it, Private(total, bound=bound).")
    if stamp is not bound and stamp != bound:
        asked = "none" if bound is None else f"one of {bound.size:g}"
        raise NotPrivate(
            f"This sum was clipped under a bound of {stamp.size:g}, but noise was asked for {asked}: "
            "use the bound that clipped it."
        )
    return value


def _spread(bound: Bound, multiplier: float, length: int) -> float | np.ndarray:
    std = bound.std(multiplier)
    if isinstance(std, np.ndarray) and std.shape != (length,):
        raise BadInput(f"The bound is for {std.size} coordinates, but the sum has {length}.")
    return std


def _noisy(multiplier: float) -> None:
    if multiplier == 0:
        raise NotPrivate("A multiplier of 0 is no noise: use without_noise, which marks the run as not private.")
    positive(multiplier=multiplier)


def _of_kind(bound: Bound, norm_kind: str, reason: str) -> None:
    if not isinstance(bound, Bound) or bound.norm_kind != norm_kind:
        raise NotPrivate(reason)
