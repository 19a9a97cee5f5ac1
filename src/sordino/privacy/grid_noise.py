"""Noise on the grid: what is drawn, and why it costs what Gaussian (or Laplace) noise on real numbers costs.

Sums are integers, in steps of a grid, and so is their noise, for every observer and wherever it is drawn: nothing of
floating point is in what is sent or released. With s the standard deviation in steps (s = z C x scale / sqrt(h) for one
of h shares, h = 1 for the noise in full), a draw is the discrete Gaussian

    P(k) ~ exp(-k^2 / (2 v)),   v = s^2 + r^2,   r = 4 steps (a grid has up to 2^40 to the bound).

**One draw.** Take a Gaussian y of variance s^2 about the integer m of the sum, and round it at random: to k with
probability exp(-(k - y)^2 / (2 r^2)) / R(y), where R(y) is the sum over all k. That looks at y only, so it costs what
the Gaussian mechanism of multiplier z costs. By Poisson's summation formula R(y) = sqrt(2 pi) r (1 + e), with |e| below
2.1 exp(-2 pi^2 r^2). If R were constant, k would have exactly the law above about m, since variances add. As it is, the
two laws differ at every k by a factor within exp(+-5 exp(-2 pi^2 r^2)), that is exp(+-2^-450).

**Shares.** Let h draws of variance v be added. The sum of k draws and one more has P(n) ~ exp(-n^2 / (2 (k + 1) v)) times
a sum over all integers of exp(-(x - c)^2 / (2 a)), a = v k/(k + 1) >= v/2: constant, by the same formula, up to a factor
within 1 +- 2.1 exp(-2 pi^2 a). So the sum is the discrete Gaussian of variance h v up to a factor within exp(+-t), with t
at most 10 (h - 1) exp(-pi^2 r^2) < h 2^-224 (Kairouz, Liu, Steinke 2021, theorem 1). Its variance is h s^2 + h r^2, so
that the first step applies to the sum; shares beyond h only add noise. The number of clients that is needed, and the z
that is charged, are those of the real Gaussian.

**Together.** Over d coordinates and T releases the laws differ by a factor within exp(+-(d T h 2^-223)): an epsilon and a
delta that are charged for gaussian(z) hold up to that, some fifty decimal places below what is printed. (That discrete
Gaussians cost at most what Gaussians do under zCDP, at any variance: Canonne, Kamath, Steinke 2020, theorem 4.)

**Laplace** noise is the real Laplace variate of scale z C, rounded to the grid: post-processing, with no error at all.

What rounding leaves of s is never less than it should be: the product has a margin of 2^-48. Sums that leave the 64 bits
wrap around, which costs accuracy and never privacy; `FixedPoint.for_bound` leaves room for sixteen standard deviations (Laplace: sixty-four).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sordino.errors import BadInput, positive, whole
from sordino.privacy import samplers
from sordino.privacy.randomness import Source

SMOOTH = 4.0  # r: the standard deviation, in steps, of the rounding in the proof
_UP = 1 + 2.0**-48  # more than the rounding of a product, a quotient and two roots

Steps = float | np.ndarray


def gaussian(std: Steps, length: int, source: Source, survivors: int = 1) -> np.ndarray:
    """One of `survivors` shares of noise of standard deviation `std` (in steps; one for all, or one for each)."""
    whole(survivors=survivors)
    share = math.sqrt(survivors)

    def draw(s: float, size: int) -> np.ndarray:
        positive(std=s)
        steps = math.sqrt((s / share) ** 2 + SMOOTH**2) * _UP
        _fits(steps, samplers.MOST)
        return samplers.discrete_gaussian(steps, size, source)

    return _runs(std, length, draw)


def laplace(scale: Steps, length: int, source: Source) -> np.ndarray:
    """Laplace noise of this scale (in steps), rounded to whole steps."""

    def draw(b: float, size: int) -> np.ndarray:
        positive(scale=b)
        _fits(b * _UP, samplers.MOST_LAPLACE)
        return samplers.rounded_laplace(b * _UP, size, source)

    return _runs(scale, length, draw)


def _runs(spread: Steps, length: int, draw: Callable[[float, int], np.ndarray]) -> np.ndarray:
    """Coordinates that follow each other with the same spread (a group) are drawn together."""
    if np.ndim(spread) == 0:
        return draw(float(spread), length)
    spread = np.asarray(spread, np.float64)
    if spread.shape != (length,):
        raise BadInput(f"The noise is for {spread.size} coordinates, but the sum has {length}.")
    if not length:
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.diff(spread, prepend=math.nan))  # a NaN differs from all
    sizes = np.diff(starts, append=length)
    return np.concatenate([draw(float(spread[i]), int(n)) for i, n in zip(starts, sizes)])


def _fits(steps: float, most: float) -> None:
    if not samplers.LEAST <= steps <= most:
        raise BadInput(
            f"Noise of {steps:.3g} steps does not fit a 64-bit sum on this grid (at most {most:.3g}): "
            "give FixedPoint.for_bound the multiplier, or take a smaller one."
        )
