"""Privacy loss distributions: the tight account of a schedule that was fixed in advance.

Each round is a dominating pair whose loss lies on a grid (`pairs`). Steps are multiples of dp-accounting's default, so
that the result lies on the private side of that library's, which connects the dots of a finer grid. Compositions are
products of Fourier transforms on a window; the probability that the sum leaves it is bounded (Chernoff) and charged to
delta, and what wraps round only adds mass. The error of the transform is read off where the true mass is nil, and
charged as well. Both directions of a neighbouring pair are composed, and the worse one counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sordino.privacy.dominating_pairs import (
    Dots,
    Floats,
    Pair,
    Pure,
    ReplacedGaussian,
    SampledGaussian,
    SampledLaplace,
    dot,
)

__all__ = ["Composed", "Pair", "Pure", "ReplacedGaussian", "SampledGaussian", "SampledLaplace"]
__all__ += ["compose", "delta", "epsilon", "grid_step"]

STEP = 1e-4  # of the finest grid
_FINENESS = 0.02  # of the grid against the standard deviation of one loss: a 0.01% excess in the composed deviation
_MOST_CELLS = 1 << 21  # of a window; where more would be needed, epsilon is so large that a coarser grid will do


@dataclass(frozen=True)
class Composed:
    """The loss of a whole schedule in one direction: mass on ``low + i``, and what is charged to delta outright."""

    step: float
    low: int
    mass: Floats
    charged: float

    def delta(self, epsilon: float) -> float:
        """The least delta at which this epsilon holds."""
        first = min(max(0, math.floor(epsilon / self.step) - self.low), len(self.mass))  # at or below epsilon
        losses = self.step * (self.low + np.arange(first, len(self.mass)))
        return min(1.0, self.charged + dot(self.mass[first:], -np.expm1(np.minimum(epsilon - losses, 0.0))))

    def epsilon(self, delta: float) -> float:
        """The least epsilon of at least 0 at which delta is met, exactly for this mass."""
        if self.charged >= delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0, self.low + len(self.mass) - 1  # delta is too much at grid point `low`, met at `high`
        while high - low > 1:
            middle = (low + high) // 2
            if self.delta(self.step * middle) <= delta:
                high = middle
            else:
                low = middle
        # Between these two grid points delta is M - e^eps W.
        tail = self.mass[max(high - self.low, 0) :]
        above = self.step * (max(self.low - high, 0) + np.arange(len(tail)))
        m, w = float(tail.sum()) + self.charged - delta, dot(tail, np.exp(-above))
        return max(self.step * low, self.step * high + math.log(m / w)) if m > 0 else self.step * low


def grid_step(pairs: Mapping[Pair, int]) -> float:
    """A step that is fine against the losses: their composed deviation grows by step^2/6 per round."""
    rounds = sum(pairs.values())
    deviation = math.sqrt(sum(count * pair.deviation**2 for pair, count in pairs.items()) / rounds)
    return STEP * max(1, math.floor(_FINENESS * deviation / STEP))


def compose(pairs: Mapping[Pair, int], delta: float, step: float | None = None) -> list[Composed]:
    """The composition of `count` uses of each pair, in both directions (one, if they are alike)."""
    step = step or grid_step(pairs)
    tail = 1e-6 * delta
    cells = [(pair.cells(step, tail / sum(pairs.values())), count) for pair, count in pairs.items()]
    directions = [[(c.dots(), count) for c, count in cells]]
    if not all(pair.symmetric for pair in pairs):
        directions.append([(c.turned().dots(), count) for c, count in cells])
    windows = [_window(parts, tail) for parts in directions]
    if max(high - low for low, high in windows) > _MOST_CELLS:
        return compose(pairs, delta, 4 * step)
    return [_product(parts, window, tail) for parts, window in zip(directions, windows)]


def epsilon(pairs: Mapping[Pair, int], delta: float, step: float | None = None) -> float:
    """Epsilon at `delta` for a schedule; infinite where floating point cannot resolve so small a delta."""
    if not pairs:
        return 0.0
    most = sum(count * pair.most for pair, count in pairs.items())
    return min(most, max(direction.epsilon(delta) for direction in compose(pairs, delta, step)))


def delta(pairs: Mapping[Pair, int], epsilon: float, resolution: float = 1e-12) -> float:
    """Delta at `epsilon` for a schedule; what is below `resolution` is not told apart from it."""
    return max(direction.delta(epsilon) for direction in compose(pairs, resolution)) if pairs else 0.0


def _product(parts: list[tuple[Dots, int]], window: tuple[int, int], tail: float) -> Composed:
    step = parts[0][0].step
    low, high = window
    length = _fast_length(high - low + 1)
    spectrum = np.ones(length // 2 + 1, complex)
    offset = 0
    for dots, count in parts:
        factor = np.fft.rfft(_folded(dots.mass, length))
        spectrum *= factor if count == 1 else factor**count
        offset += count * dots.low
    mass = np.fft.irfft(spectrum, length)
    mass = np.roll(mass, (offset - low) % length)  # index i now stands for the loss low + i
    noise = max(-float(mass.min()), float(mass.max()) * 2**-53)
    infinite = -math.expm1(sum(count * math.log1p(-min(dots.infinite, 0.5)) for dots, count in parts))
    return Composed(step, low, np.maximum(mass, 0.0), infinite + tail + length * noise)


def _window(parts: list[tuple[Dots, int]], tail: float) -> tuple[int, int]:
    """Grid points that the sum leaves with a probability of at most `tail` at either end (Chernoff)."""
    step = parts[0][0].step
    variance = 1e-300
    for dots, count in parts:
        mean = dot(dots.mass, dots.losses)
        variance += count * dot(dots.mass, (dots.losses - mean) ** 2)
    guess = math.sqrt(-2 * math.log(tail) / variance)
    need = -math.log(tail)

    def bound(sign: int) -> float:
        def chernoff(tilt: float) -> float:
            return (sum(count * dots.log_moment(sign * tilt) for dots, count in parts) + need) / tilt

        # The bound falls and then rises with the tilt: walk down from the guess, which is right for a normal sum.
        tilt, best = guess, chernoff(guess)
        while (lower := chernoff(tilt / 1.5)) < best:
            tilt, best = tilt / 1.5, lower
        most = sum(count * (dots.losses[-1] if sign > 0 else -dots.losses[0]) for dots, count in parts)
        return min(best, most)

    return math.floor(-bound(-1) / step) - 1, math.ceil(bound(1) / step) + 1


def _folded(mass: Floats, length: int) -> Floats:
    """`mass` wrapped round a circle of `length` cells."""
    if len(mass) <= length:
        return np.pad(mass, (0, length - len(mass)))
    turns = -(-len(mass) // length)
    return np.pad(mass, (0, turns * length - len(mass))).reshape(turns, length).sum(axis=0)


def _fast_length(least: int) -> int:
    """The next length of the form 2^k, 3 * 2^k or 5 * 2^k, which the transform does fast."""
    k = 1 << max(least - 1, 7).bit_length()
    return min(n for n in (k, k * 3 // 4, k * 5 // 8) if n >= least)
