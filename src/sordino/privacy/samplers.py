"""Exact samplers of integers, in vectors: discrete Laplace, discrete Gaussian, Poisson and Skellam.

All of them are rejection samplers (for the discrete Gaussian: Canonne, Kamath, Steinke 2020, algorithm 3). They compare
a uniform real number with a probability, and a uniform needs only as many bits as it takes to decide. Here the first 64
bits are compared in double precision for a whole vector at once. Where the two are closer than a margin that no
rounding error reaches, the draw is settled by itself, with as many more bits and as many decimal digits as it takes.
What comes out has exactly the stated law, so nothing is to be charged to delta: the error is zero, given that the
source's bits are random and that numpy's log, log1p and exp are right to four units in the last place.

The number of attempts depends on the draw, as in any rejection sampler; the time taken is not constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction

import numpy as np

from sordino.errors import BadInput, positive, whole
from sordino.privacy.randomness import SecureSource, Source

MOST = 2.0**30  # the largest standard deviation; beyond it too many draws would fall within the margin

_MARGIN = 2.0**-43  # on probabilities; the errors below stay under half of it
_SHORT = 1 << 44  # from here on, the bits of a word not yet drawn move its logarithm by at most 2^-44 ...
_LOG_MARGIN = 2.0**-42  # ... and rounding by less than that
_Law = Callable[[int], tuple[Fraction, Fraction]]  # decimal digits -> an interval around a probability
_Accept = Callable[[np.ndarray], np.ndarray]
_Exact = Callable[[int], _Law]


def discrete_gaussian(sigma: float, size: int, source: Source) -> np.ndarray:
    """`size` integers, each k with probability proportional to exp(-k^2/(2 sigma^2))."""
    positive(sigma=sigma)
    whole(0, size=size)
    if not 2.0**-30 <= sigma <= MOST:
        raise BadInput(f"sigma must lie between 2^-30 and 2^30, not {sigma!r}; scale the sum so that it does.")
    square, t = Fraction(sigma) ** 2, math.floor(sigma) + 1
    centre, double = float(square / t), float(2 * square)

    def accept(k: np.ndarray) -> np.ndarray:
        # Errors: centre and difference 2^-52 sigma, hence 2^-49 on the probability, whatever k is.
        return np.exp(-np.square(np.abs(k) - centre) / double)

    def law(k: int) -> _Law:
        return lambda digits: _exp(-((abs(k) - square / t) ** 2) / (2 * square), digits)

    return _reject(t, size, source, accept, law, _MARGIN)


def poisson(rate: float, size: int, source: Source) -> np.ndarray:
    """`size` Poisson variates of mean `rate`, by rejection from a discrete Laplace about the mode."""
    positive(rate=rate)
    whole(0, size=size)
    if not 2.0**-30 <= rate <= 2.0**40:
        raise BadInput(f"rate must lie between 2^-30 and 2^40, not {rate!r}; scale the sum so that it does.")
    mode, t = math.floor(rate), math.floor(math.sqrt(rate)) + 1
    margin = _MARGIN + t * 2.0**-46  # log1p times k - rate, a few deviations, loses that much
    base = float(_log_poisson(np.array([float(mode)]), rate)[0])

    def gain(k: np.ndarray) -> np.ndarray:
        """log of target over proposal, 0 at the mode: concave on either side, so its peaks are where it turns."""
        return _log_poisson(mode + k, rate) - base + np.abs(k) / t

    turns = [math.floor(rate * math.exp(side / t)) - mode for side in (1, -1)]
    near = np.array([turn + step for turn in turns for step in range(-2, 3)], dtype=np.float64)
    peak = float(np.max(gain(near[mode + near >= 0]), initial=0.0)) + 2 * margin

    def accept(k: np.ndarray) -> np.ndarray:
        return np.exp(gain(k) - peak)

    def law(k: int) -> _Law:
        def interval(digits: int) -> tuple[Fraction, Fraction]:
            if mode + k < 0:
                return Fraction(0), Fraction(0)
            low, high = _exp(Fraction(abs(k), t) - Fraction(peak), digits)
            near_low, near_high = _poisson_ratio(mode, k, rate, digits)
            return low * near_low, high * near_high

        return interval

    return mode + _reject(t, size, source, accept, law, margin)


def skellam(variance: float, size: int, source: Source) -> np.ndarray:
    """`size` differences of two Poisson variates of mean variance/2; sums of them are Skellam again."""
    positive(variance=variance)
    both = poisson(variance / 2, 2 * size, source)
    return both[:size] - both[size:]


def discrete_laplace(t: int, size: int, source: Source) -> np.ndarray:
    """`size` integers, each k with probability proportional to exp(-|k|/t)."""
    whole(t=t)
    whole(0, size=size)
    if t > MOST:
        raise BadInput(f"t must be at most 2^30, not {t!r}.")
    certain = Fraction(1), Fraction(1)
    return _reject(t, size, source, lambda k: np.full(k.shape, 2.0), lambda k: lambda digits: certain, _MARGIN)


def _reject(t: int, size: int, source: Source, accept: _Accept, law: _Exact, margin: float) -> np.ndarray:
    """Discrete Laplace proposals of scale t, each kept with probability `accept`, of which `law` is the exact form."""
    kept: list[np.ndarray] = []
    missing = size
    while missing > 0:
        n = missing + missing // 2 + 16
        length = _geometric(t, n, source)
        word = _words(source, n)
        sign = (word & np.uint64(1)).astype(bool)  # the last bit is the sign, the other 63 decide
        uniform = (word >> np.uint64(1)).astype(np.float64) * 2.0**-63
        k = np.where(sign, -length, length)
        chance = accept(k)
        keep = uniform < chance
        for i in np.flatnonzero(np.abs(uniform - chance) <= margin):
            keep[i] = _Uniform(int(word[i]) >> 1, 63, source).below(law(int(k[i])))
        keep &= ~(sign & (length == 0))  # there is one zero only
        kept.append(k[keep][:missing].astype(np.int64))
        missing -= kept[-1].size
    return np.concatenate(kept) if kept else np.zeros(0, dtype=np.int64)


def _geometric(t: int, size: int, source: Source) -> np.ndarray:
    """g with probability proportional to exp(-g/t): the whole part of -t log(u). As float64, which holds it exactly."""
    word = _words(source, size)
    with np.errstate(divide="ignore"):
        x = -t * np.log(word.astype(np.float64) * 2.0**-64)
    g = np.floor(x)
    margin = t * _LOG_MARGIN
    with np.errstate(invalid="ignore"):
        unclear = (word < np.uint64(_SHORT)) | (x - g < margin) | (x - g > 1 - margin)
    for i in np.flatnonzero(unclear):
        g[i] = _geometric_one(t, _Uniform(int(word[i]), 64, source))
    return g


def _geometric_one(t: int, u: _Uniform) -> int:
    while u.word < _SHORT:
        u.extend()
    g = max(0, math.floor(-t * (math.log(u.word) - u.bits * math.log(2.0))))

    def reaches(g: int) -> bool:
        return g == 0 or u.below(lambda digits: _exp(Fraction(-g, t), digits))

    while not reaches(g):
        g -= 1
    while reaches(g + 1):
        g += 1
    return g


class _Uniform:
    """A uniform real number of which the first bits are known; more are drawn when they are needed."""

    def __init__(self, word: int, bits: int, source: Source) -> None:
        self.word, self.bits, self.source = word, bits, source

    def extend(self) -> None:
        self.word = self.word << 64 | int(_words(self.source, 1)[0])
        self.bits += 64

    def below(self, law: _Law) -> bool:
        """Whether it lies below a probability that `law` can enclose as tightly as is asked for."""
        digits = 40
        while True:
            low, high = law(digits)
            if Fraction(self.word + 1, 1 << self.bits) <= low:
                return True
            if Fraction(self.word, 1 << self.bits) >= high:
                return False
            self.extend()
            digits += 20


def _exp(x: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """An interval around exp(x). Decimal's division and exp are correctly rounded; the slack covers both."""
    context = Context(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX)
    quotient = context.divide(Decimal(x.numerator), Decimal(x.denominator))
    value = Fraction(context.exp(quotient))
    slack = value * (abs(x) + 1) * Fraction(4, 10**digits) * 10
    return value - slack, value + slack


def _poisson_ratio(mode: int, k: int, rate: float, digits: int) -> tuple[Fraction, Fraction]:
    """An interval around P(mode + k)/P(mode): a product of |k| factors, each with two roundings."""
    context = Context(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX)
    mean, value = Decimal(rate), Decimal(1)
    for i in range(mode + 1, mode + k + 1):
        value = context.multiply(value, context.divide(mean, Decimal(i)))
    for i in range(mode + k + 1, mode + 1):
        value = context.multiply(value, context.divide(Decimal(i), mean))
    ratio = Fraction(value)
    slack = ratio * Fraction(4 * abs(k), 10**digits) * 10
    return ratio - slack, ratio + slack


def _log_poisson(k: np.ndarray, rate: float) -> np.ndarray:
    """log of the Poisson probability of k, in Loader's form (2000): no large terms that cancel. -inf below 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        x = (k - rate) / rate
        deviance = rate * (np.where(k > 0, (1 + x) * np.log1p(x), 0.0) - x)
        inverse = 1 / k
        square = inverse * inverse
        series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188))))
        stirling = np.log(2 * math.pi * k) / 2 + series
    small = (k >= 0) & (k < _STIRLING.size)
    stirling[small] = _STIRLING[k[small].astype(np.intp)]
    return np.where(k >= 0, -deviance - stirling, -np.inf)


# log k! - (k log k - k) for small k, where the series is not yet sharp.
_STIRLING = np.array([math.log(math.factorial(k)) - (k * math.log(k) - k if k else 0) for k in range(16)])


def _words(source: Source, size: int) -> np.ndarray:
    if isinstance(source, SecureSource):
        return source.integers64(size)
    return source.integers(0, (1 << 64) - 1, size=size, dtype=np.uint64, endpoint=True)
