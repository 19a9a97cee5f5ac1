"""Axes with ticks at round numbers, linear or logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SPAN_FOR_LOG = 30  # from this ratio of the largest to the smallest value on, a logarithmic axis reads better


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, with `ticks` between."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def at(self, value: float) -> float:
        """Where a value lies, 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    @property
    def decimals(self) -> int:
        """How many it takes to write every tick exactly."""
        return next((d for d in range(12) if all(abs(t - round(t, d)) < 1e-12 for t in self.ticks)), 12)


def linear(low: float, high: float, count: int = 5) -> Axis:
    """An axis over at least [low, high], from a tick to a tick."""
    if high <= low:
        pad = abs(low) or 1.0
        low, high = (0.0, 2 * pad) if low >= 0 else (-2 * pad, 0.0)
    step = _step((high - low) / max(1, count - 1))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(float(f"{i * step:.12g}") for i in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks)


def rounds(low: int, high: int, count: int = 6) -> Axis:
    """The axis of rounds: whole numbers, from the first round to the last."""
    if high <= low:
        return Axis(low - 1, low + 1, (float(low),))
    step = math.ceil(_step(max(1.0, (high - low) / count)))
    ticks = [float(t) for t in range(math.ceil(low / step) * step, high + 1, step)]
    if low < ticks[0] and ticks[0] - low > 0.6 * step:
        ticks.insert(0, float(low))
    return Axis(low, high, tuple(ticks))


def logarithmic(low: float, high: float) -> Axis:
    """Powers of ten; with 2 and 5 between where there are few of them."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    if last - first <= 2:
        every = [m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5)]
        below = max(t for t in every if t <= low * (1 + 1e-9))
        above = min(t for t in every if t >= high * (1 - 1e-9))
        ticks = tuple(t for t in every if below <= t <= above)
        return Axis(below, above, ticks, log=True)
    stride = max(1, math.ceil((last - first) / 6))
    ticks = tuple(10.0**e for e in range(first, last + 1, stride))
    return Axis(10.0**first, max(10.0**last, ticks[-1]), ticks, log=True)


def suits_log(values: Sequence[float]) -> bool:
    """Whether values are positive and far enough apart for a logarithmic axis."""
    return bool(values) and min(values) > 0 and max(values) / min(values) >= SPAN_FOR_LOG


def _step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
