"""What a controller is shown about a step, and how its two outputs are read. Plain numbers, no torch.

Published (FedMAP, equation 4): four statistics of the raw gradients of the mini-batch, as logarithms; out come C and sigma.

Certified: seven numbers that have been released or are public, none of which knows the scale of the model, the data or the
learning rate. Out come factors: the next bound as a multiple of the last, at most e either way, and the multiplier as a
multiple of the even one (at which what is left of the budget lasts for the steps that are left), at most 2 either way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sordino.errors import BadInput

LENGTH = 5  # steps that a controller looks back on
PUBLISHED, CERTIFIED = "published", "certified"
NAMES = {
    PUBLISHED: ("trace of covariance", "largest norm", "drift", "gradient variance"),
    CERTIFIED: ("within the bound", "change", "trust", "signal", "drift", "progress", "ahead"),
}
WITHIN = 0.2  # share of gradients that the bound should leave whole
REACH = 1.0  # largest change of log C in a step
SPAN = math.log(2.0)  # largest distance of log z from the even multiplier
ASTRAY = 1e4  # how many times smaller or larger than the plan's bound a client's own may become
BOUNDS = (1e-12, 1e12)  # of a bound that sums in fixed point carry with ease
MULTIPLIERS = (1e-3, 1e4)  # of a multiplier: below it nothing is protected, above it nothing is learned


@dataclass(frozen=True)
class Look:
    """What is known before a step: of the last step's release, and of the run. All of it released or public."""

    within: float | None = None  # noisy share of records within the bound; None before the first step
    change: float = 0.0  # of the logarithm of the bound, into that step
    noise: float = 0.0  # standard deviation of the noise in `within`
    signal: float = 0.0  # |released gradient|^2 over the expected |noise|^2, less 1
    drift: float = 0.0  # how far the released parameters moved last, in learning rate x bound
    progress: float = 0.0  # share of this client's steps that are over
    spent: float = 0.0  # share of this client's budget that is spent

    def row(self) -> list[float]:
        known = self.within is not None
        within = min(max(self.within, 0.0), 1.0) if self.within is not None else 0.5
        return [
            2 * within - 1,
            min(max(self.change, -REACH), REACH),
            1 / (1 + (self.noise / 0.25) ** 2) if known else 0.0,
            _decades(self.signal, 1e-3, 1e2) if known else 0.0,
            _decades(self.drift, 1e-3, 1e3),
            2 * self.progress - 1,
            min(max(self.spent - self.progress, -1.0), 1.0),
        ]


def raw_row(trace: float, largest: float, drift: float, variance: float) -> list[float]:
    """The paper's four, as decades."""
    return [_decades(v, 1e-6, 1e6) for v in (trace, largest, drift, variance)]


def _decades(value: float, low: float, high: float) -> float:
    """log10, held between the limits; what is not a number counts as the lower one."""
    return math.log10(min(max(value, low), high)) if value > low else math.log10(low)


def read(kind: str, outputs: Sequence[float], bound: float = 1.0, even: float = 1.0) -> tuple[float, float]:
    """(C, z) of the certified controller, or (C, sigma) of the published one.

    >>> read("certified", [0.0, 0.0], bound=3.0, even=1.5)
    (3.0, 1.5)
    """
    first, second = (float(v) for v in outputs)
    if kind == CERTIFIED:
        z = even * math.exp(SPAN * math.tanh(second))
        return bound * math.exp(REACH * math.tanh(first)), min(z, MULTIPLIERS[1])
    return _exp(first), _exp(second)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def usable(bound: float, multiplier: float) -> None:
    """Refuse a proposal that no step can be run with. Whether it can be paid for is the filter's business."""
    for name, value, (low, high) in (("bound", bound, BOUNDS), ("multiplier", multiplier, MULTIPLIERS)):
        if not (isinstance(value, (int, float)) and low <= value <= high):
            raise BadInput(
                f"MetaNet proposed a {name} of {value!r}, which lies outside {low:g} to {high:g}; its weights or its inputs "
                "are broken: leave out metanet to use those of the package, or pretrain again."
            )


def carried(bound: float, sigma: float) -> None:
    """Refuse what the published controller proposes where no sum in fixed point carries it; any other value is run as printed."""
    low, high = BOUNDS
    if not (low <= bound <= high and low <= sigma <= high):
        raise BadInput(
            f"MetaNet proposed C = {bound:.3g} and sigma = {sigma:.3g}, which lie outside {low:g} to {high:g}: the loop ran away, or "
            "its weights are broken; lower sigma_scale or lr, or leave out metanet."
        )


def stack(histories: Sequence[Sequence[Sequence[float]]], features: int) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of at most `LENGTH` rows as [n, LENGTH, features], the latest first, and which places are filled."""
    steps = np.zeros((len(histories), LENGTH, features), np.float32)
    valid = np.zeros((len(histories), LENGTH), bool)
    for i, rows in enumerate(histories):
        latest = list(rows)[-LENGTH:][::-1]
        if latest:
            steps[i, : len(latest)] = latest
        valid[i, : len(latest)] = True
    return steps, valid
