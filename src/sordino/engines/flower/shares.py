"""A client's share of the noise where the standard deviation is given. On its way out: `mechanisms.add_share` takes the bound."""

from __future__ import annotations

import numpy as np

from sordino.privacy import grid_noise
from sordino.privacy.mechanisms import FixedPoint
from sordino.privacy.randomness import SecureSource


def with_share(codes: np.ndarray, grid: FixedPoint, std: float | np.ndarray, survivors: int) -> np.ndarray:
    """`codes` with one of `survivors` shares of noise of standard deviation `std` (one for all, or one for each)."""
    return codes + grid_noise.gaussian(std * grid.scale, codes.size, SecureSource(), survivors)
