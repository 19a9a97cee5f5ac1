"""Exact clipping: factors and vectors that never exceed their bound, as computed.

As computed in double precision, and after truncation to a fixed-point grid, no norm exceeds its bound. To that end the target
is shorter than the bound by one part in 2^40. A contribution that is not finite, or whose norm is not, counts as zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import numpy as np

from sordino.errors import BadInput

_HAIR = 1 - 2.0**-40  # covers the rounding of a pairwise sum of squares of any length
_HAIR_SINGLE = 1 - 2.0**-14  # norms that arrive in single precision are trusted to this much
_SMALLEST = np.finfo(np.float64).tiny


def flat_factors(norms: np.ndarray, bound: float | np.ndarray) -> np.ndarray:
    """min(1, C/|v|) for each norm, and 0 where the norm is not finite."""
    norms, hair = in_double(norms)
    target = bound * hair
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        factors = np.where(norms > target, target / norms, 1.0)
    # A factor below the normal doubles may have been rounded up by much; it is as good as zero.
    return np.where(np.isfinite(norms) & (factors >= _SMALLEST), factors, 0.0)


def in_double(norms: np.ndarray) -> tuple[np.ndarray, float]:
    """Norms in double precision, and the slack that the precision they arrived in asks for."""
    norms = np.asarray(norms)
    hair = _HAIR if norms.dtype.kind != "f" or norms.dtype.itemsize >= 8 else _HAIR_SINGLE
    return norms.astype(np.float64), hair


def shrink(v: np.ndarray, factors: Callable[[np.ndarray], np.ndarray], order: int = 2) -> np.ndarray:
    """v times factors(|v|). Where squares would leave the range of doubles the norm is measured rescaled."""
    v = flat_vector(v)
    largest = float(max(v.max(), -v.min())) if v.size else 0.0
    if not math.isfinite(largest) or largest == 0.0:
        return np.zeros_like(v)
    unit = 1.0 if 1e-100 < largest < 1e100 else math.ldexp(1.0, math.frexp(largest)[1] - 1)
    # numpy adds pairwise, so that the error of the sum grows with log(d) only.
    scaled = v if unit == 1.0 else v / unit
    length = math.sqrt(np.sum(np.square(scaled))) if order == 2 else float(np.sum(np.abs(scaled)))
    return v * factors(cast(np.ndarray, np.float64(length * unit)))  # a length beyond the doubles is infinite: factor 0


def flat_vector(v: np.ndarray, length: int | None = None) -> np.ndarray:
    """A vector of one dimension in double precision; any other shape, or another length than asked for, is refused."""
    v = np.asarray(v, dtype=np.float64)
    if v.ndim != 1 or (length is not None and v.size != length):
        wanted = "" if length is None else f" of {length} coordinates"
        raise BadInput(f"A flat vector{wanted} is needed, not one of shape {v.shape}.")
    return v
