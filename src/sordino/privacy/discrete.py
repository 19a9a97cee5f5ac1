"""Integer sums with integer noise: what secure aggregation can carry, and an output without floating-point traces.

A contribution is clipped, turned by a public random rotation so that no coordinate is large, scaled, and rounded at
random to integers, again and again until its norm is within a bound that no input exceeds (Kairouz, Liu, Steinke 2021,
algorithm 1):

    l2^2 = min{ (c + sqrt(d))^2,  c^2 + d/4 + sqrt(2 log(1/beta)) (c + sqrt(d)/2) },    c = scale x bound

The multiplier is noise over this *rounded* bound, in integers. Accounting (l_1 <= min(sqrt(d) l2, l2^2) for integers):

    discrete Gaussian, one draw    RDP(a) = a l2^2/(2 sigma^2)    Canonne, Kamath, Steinke 2020, theorem 4
    sum of n discrete Gaussians    `ddg_rdp`                      Kairouz, Liu, Steinke 2021, proposition 14
    Skellam, closed under sums     `skellam_rdp`                  Agarwal, Kairouz, Liu 2021, corollary 3.6

Samplers are exact (see `samplers`), so nothing is added to delta. Sums may be taken modulo 2^bits: `wrap`. A sum that
wraps around costs accuracy, never privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.errors import BadInput, NotPrivate, at_least, one_of, positive, whole
from sordino.privacy import samplers
from sordino.privacy.bounds import Flat
from sordino.privacy.mechanisms import FixedPoint, Sum, _noisy, _stamped
from sordino.privacy.randomness import SERVER, Source, stream
from sordino.privacy.release import Private, Released

GAUSSIAN, SKELLAM = "discrete-gaussian", "skellam"


@dataclass(frozen=True)
class Encoding:
    """How a vector of `length` numbers clipped to `bound` becomes integers, and which noise it is to get.

    It is also the stamp of what it encoded: only a mechanism that is given the same encoding opens the sum. `seed` and
    `round` make the rotation, which everyone may know.
    """

    bound: float
    length: int
    scale: float
    noise: str = GAUSSIAN
    seed: int = 0
    round: int = 0
    beta: float = math.exp(-0.5)

    def __post_init__(self) -> None:
        positive(bound=self.bound)
        whole(length=self.length)
        FixedPoint(self.scale)
        one_of((GAUSSIAN, SKELLAM), noise=self.noise)
        at_least(0.0, beta=self.beta)
        if self.beta >= 1:
            raise BadInput(f"beta must be below 1, not {self.beta!r}.")
        if self.bound * self.scale > 2.0**30 or self.dimension > 2**40:
            raise BadInput(f"scale must be at most 2^30 over the bound of {self.bound:g}, not {self.scale!r}.")

    @property
    def dimension(self) -> int:
        """The length, filled up to a power of two for the rotation."""
        return 1 << (self.length - 1).bit_length()

    @property
    def most(self) -> int:
        """The largest squared norm of an encoded contribution."""
        c, root = self.bound * self.scale, math.sqrt(self.dimension)
        worst = (c + root) ** 2
        if self.beta == 0:
            return math.floor(worst)
        typical = c**2 + self.dimension / 4 + math.sqrt(2 * math.log(1 / self.beta)) * (c + root / 2)
        return math.floor(min(worst, typical))

    @property
    def l2(self) -> float:
        """L2 sensitivity of the integer sum, rounded up."""
        return math.sqrt(self.most) * (1 + 2.0**-50)

    @property
    def l1(self) -> float:
        """L1 sensitivity of the integer sum."""
        return min(math.sqrt(self.dimension) * self.l2, float(self.most))

    @property
    def size(self) -> float:
        """The rounded bound in the units of the update: what the multiplier multiplies."""
        return self.l2 / self.scale

    @classmethod
    def for_bits(
        cls, bits: int, bound: float, length: int, units: int, multiplier: float, deviations: float = 4.0, **others: Any
    ) -> Encoding:
        """The finest scale at which a coordinate of the sum stays within 2^(bits-1), `deviations` away from zero.

        Kairouz et al. 2021, section 4: `units` contributions that all agree, their rounding, and the noise.
        """
        whole(bits=bits, units=units)
        positive(bound=bound, multiplier=multiplier, deviations=deviations)
        finest = 30 - math.frexp(bound)[1]
        for power in range(finest, finest - 60, -1):
            one = cls(bound, length, math.ldexp(1.0, power), **others)
            signal = (one.scale * bound * units) ** 2 / one.dimension + units / 4
            if deviations * math.sqrt(signal + (multiplier * one.l2) ** 2) <= 2.0 ** (bits - 1) and one.l2 >= 1:
                return one
            if one.scale * bound < 1:
                break
        raise BadInput(f"{bits} bits are too few for a sum of {units} units with a multiplier of {multiplier:g}.")

    def encode(self, v: np.ndarray, source: Source) -> np.ndarray:
        """Integers whose squared norm is at most `most`, whatever v is."""
        clipped = np.zeros(self.dimension)
        clipped[: self.length] = Flat(self.bound).clip(v)
        scaled = hadamard(clipped * self._signs()) * self.scale
        for _ in range(64):  # each attempt succeeds with a probability of at least 1 - beta
            codes = np.floor(scaled + source.random(self.dimension)).astype(np.int64)
            if int(codes @ codes) <= self.most:
                return codes
        return np.trunc(scaled).astype(np.int64)  # within the bound, since it shrinks every coordinate

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """The vector that these integers stand for."""
        return (hadamard(codes / self.scale) * self._signs())[: self.length]

    def _signs(self) -> np.ndarray:
        return 1.0 - 2.0 * stream(self.seed, self.round, SERVER, "rotation").integers(0, 2, self.dimension)


def contribution(v: np.ndarray, encoding: Encoding, source: Source) -> Private[Sum]:
    """What one unit puts in; `mechanisms.add` adds them up."""
    return Private(Sum(encoding.encode(v, source), FixedPoint(encoding.scale)), bound=encoding)


def nothing(encoding: Encoding) -> Private[Sum]:
    """The sum of an empty cohort."""
    return Private(Sum(np.zeros(encoding.dimension, dtype=np.int64), FixedPoint(encoding.scale)), bound=encoding)


def discrete_gaussian(
    total: Private[Sum], encoding: Encoding, multiplier: float, source: Source
) -> tuple[Released[np.ndarray], Any]:
    """Discrete Gaussian noise by the server; event zcdp(1/(2 multiplier^2))."""
    return _central(GAUSSIAN, total, encoding, multiplier, source)


def skellam(
    total: Private[Sum], encoding: Encoding, multiplier: float, source: Source
) -> tuple[Released[np.ndarray], Any]:
    """Skellam noise of variance (multiplier x rounded bound)^2 by the server."""
    return _central(SKELLAM, total, encoding, multiplier, source)


def add_share(
    part: Private[Sum], encoding: Encoding, multiplier: float, survivors: int, source: Source
) -> Private[Sum]:
    """A contribution with its share of the noise: 1/survivors of the variance."""
    _noisy(multiplier)
    whole(survivors=survivors)
    value = _stamped(part, encoding)
    codes = value.codes + _draw(encoding, multiplier / math.sqrt(survivors), source)
    return Private(Sum(codes, value.grid, value.noise + multiplier**2 / survivors), bound=encoding)


def open_noised(
    total: Private[Sum], encoding: Encoding, multiplier: float, survivors: int
) -> tuple[Released[np.ndarray], Any]:
    """A sum whose noise came in shares cut for `survivors`. Further shares are post-processing and are not counted."""
    _noisy(multiplier)
    value = _stamped(total, encoding)
    if value.noise < multiplier**2 * (1 - 1e-9):
        raise NotPrivate(
            f"The shares in this sum make a multiplier of {math.sqrt(value.noise):.3g}, not {multiplier:g}: too few "
            "clients survived; drop the round, or cut the shares for fewer survivors."
        )
    how = f"{encoding.noise} noise in shares, multiplier {multiplier:g}, rounded bound {encoding.size:g}"
    return Released(encoding.decode(value.codes), how), event(encoding, multiplier, survivors)


def event(encoding: Encoding, multiplier: float, survivors: int = 1) -> Any:
    """What such a release costs, as rho and xi of RDP(a) <= xi + rho a at every real order a > 1."""
    from sordino.privacy import events

    if encoding.noise == SKELLAM:
        variance = (multiplier * encoding.l2) ** 2
        rho, xi = _skellam_line(encoding.l2, encoding.l1, variance)
        return events.zcdp(rho, xi + rho)  # + rho: from whole orders to all, see skellam_rdp
    share = multiplier * encoding.l2 / math.sqrt(survivors)
    lines = _ddg_lines(encoding.l2, encoding.l1, share, survivors, encoding.dimension)
    return events.zcdp(*min(lines, key=lambda line: line[1] + 16 * line[0]))  # they differ where tau is not tiny


def tau(std: float, summands: int) -> float:
    """How far a sum of discrete Gaussians of this std is from one, as a log ratio (Kairouz et al. 2021, theorem 1)."""
    positive(std=std)
    whole(summands=summands)
    if std < 0.5:
        raise BadInput(f"Shares of discrete Gaussian noise need a std of at least 1/2 in integers, not {std:g}.")
    k = np.arange(1.0, summands)
    return 10 * float(np.sum(np.exp(-2 * math.pi**2 * std**2 * k / (k + 1))))


def ddg_rdp(order: float, l2: float, l1: float, std: float, summands: int, dimension: int) -> float:
    """RDP of a sum of `summands` discrete Gaussians, each of this std (one: the discrete Gaussian itself)."""
    _order(order)
    return min(xi + rho * order for rho, xi in _ddg_lines(l2, l1, std, summands, dimension))


def skellam_rdp(order: float, l2: float, l1: float, variance: float) -> float:
    """RDP of Skellam noise of this variance on an integer sum.

    The theorem is for whole orders. In between, (order - 1) RDP is convex in the order (van Erven, Harremoes 2014,
    corollary 2), which gives the chord; below 2 the value at 2.
    """
    _order(order)

    def at(a: int) -> float:
        """(a - 1) RDP(a); 0 at a = 1."""
        more = min(((2 * a - 1) * l2**2 + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance))
        return (a - 1) * (a * l2**2 / (2 * variance) + more)

    positive(variance=variance)
    low = math.floor(order)
    return ((low + 1 - order) * at(low) + (order - low) * at(low + 1)) / (order - 1)


def wrap(codes: np.ndarray, bits: int) -> np.ndarray:
    """The integers modulo 2^bits, centred on zero: what a secure sum of so many bits shows."""
    whole(bits=bits)
    if bits > 62:
        raise BadInput(f"bits must be at most 62, not {bits}.")
    half = np.int64(1 << (bits - 1))
    return ((codes + half) & np.int64((1 << bits) - 1)) - half


def hadamard(v: np.ndarray) -> np.ndarray:
    """The orthonormal Walsh-Hadamard transform of a vector whose length is a power of two; its own inverse."""
    out = np.array(v, dtype=np.float64)
    size = out.size
    if out.ndim != 1 or size < 1 or size & (size - 1):
        raise BadInput(f"The rotation needs a flat vector whose length is a power of two, not shape {out.shape}.")
    step = 1
    while step < size:
        pairs = out.reshape(-1, 2, step)
        first = pairs[:, 0] + pairs[:, 1]
        pairs[:, 1] = pairs[:, 0] - pairs[:, 1]
        pairs[:, 0] = first
        step *= 2
    return out / math.sqrt(size)


def _central(
    noise: str, total: Private[Sum], encoding: Encoding, multiplier: float, source: Source
) -> tuple[Released[np.ndarray], Any]:
    _noisy(multiplier)
    value = _stamped(total, encoding)
    if encoding.noise != noise:
        raise NotPrivate(f"This sum was encoded for {encoding.noise} noise, not for {noise}: use that mechanism.")
    codes = value.codes + _draw(encoding, multiplier, source)
    how = f"{noise} noise, multiplier {multiplier:g}, rounded bound {encoding.size:g}"
    return Released(encoding.decode(codes), how), event(encoding, multiplier)


def _draw(encoding: Encoding, multiplier: float, source: Source) -> np.ndarray:
    std = multiplier * encoding.l2
    if encoding.noise == SKELLAM:
        return samplers.skellam(std**2, encoding.dimension, source)
    return samplers.discrete_gaussian(std, encoding.dimension, source)


def _ddg_lines(l2: float, l1: float, std: float, summands: int, dimension: int) -> list[tuple[float, float]]:
    """The three bounds of proposition 14 as (rho, xi)."""
    positive(l2=l2, l1=l1, std=std)
    whole(summands=summands, dimension=dimension)
    if summands == 1:
        return [((l2 / std) ** 2 / 2, 0.0)]
    gap, a2, a1 = tau(std, summands), l2 / (math.sqrt(summands) * std), l1 / (math.sqrt(summands) * std)
    return [
        (a2**2 / 2, gap * dimension),
        ((a2**2 + 2 * a1 * gap + gap**2 * dimension) / 2, 0.0),
        ((a2 + math.sqrt(dimension) * gap) ** 2 / 2, 0.0),
    ]


def _skellam_line(l2: float, l1: float, variance: float) -> tuple[float, float]:
    """The better of the two bounds of corollary 3.6 as (rho, xi), for whole orders."""
    positive(l2=l2, l1=l1, variance=variance)
    plain = l2**2 / (2 * variance)
    sloped = (plain + l2**2 / (2 * variance**2), max(0.0, (6 * l1 - l2**2) / (4 * variance**2)))
    flat = (plain, 3 * l1 / (2 * variance))
    return min(sloped, flat, key=lambda line: line[1] + 16 * line[0])


def _order(order: float) -> None:
    if not order > 1:
        raise BadInput(f"An RDP order must be a number above 1, not {order!r}.")
