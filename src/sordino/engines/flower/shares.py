"""A client's share of the noise as exact integers: what a deployment with secure noise adds before it masks.

A share is drawn from the discrete Gaussian by an exact sampler (Canonne, Kamath, Steinke 2020), so that nothing of floating
point is left in what is sent. The contribution is first truncated onto the share's own grid, on which the standard deviation
of a share is 2^28 to 2^29 steps: with contribution and noise both on that grid the low bits tell nothing. A sum of such shares
is no discrete Gaussian, but the two differ by less than exp(-2^55) (Kairouz, Liu, Steinke 2021, theorem 1: tau falls with exp(-pi^2
sigma^2)), so it costs what Gaussian noise of the same multiplier costs.
"""

from __future__ import annotations

import math

import numpy as np

from sordino.errors import positive, whole
from sordino.privacy import samplers
from sordino.privacy.mechanisms import FixedPoint
from sordino.privacy.randomness import SecureSource

FINE = 2.0**29  # the most steps of a grid to one standard deviation of a share


def with_share(codes: np.ndarray, grid: FixedPoint, std: float | np.ndarray, survivors: int) -> np.ndarray:
    """`codes` truncated, with one of `survivors` shares of noise of standard deviation `std` (one for all, or for each)."""
    whole(survivors=survivors)
    spread = np.broadcast_to(np.asarray(std, np.float64), codes.shape)
    out = np.empty_like(codes)
    for value in np.unique(spread):
        positive(std=float(value))
        here = spread == value
        out[here] = _noised(codes[here], float(value) * grid.scale / math.sqrt(survivors))
    return out


def _noised(codes: np.ndarray, sigma: float) -> np.ndarray:
    """On a grid of power-of-two spacing; never a finer one than the codes' own."""
    step = 1 << max(0, math.ceil(math.log2(sigma / FINE)))
    kept = np.sign(codes) * (np.abs(codes) // step)  # towards zero: no norm grows
    return (kept + samplers.discrete_gaussian(sigma / step, codes.size, SecureSource())) * step
