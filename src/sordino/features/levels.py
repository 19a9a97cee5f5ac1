"""Signals on one scale: each channel standardised by itself, and how high and how wide it lay as features of their own.

Channels come in units of their own (g, degrees a second, volts), and filters must not depend on them. So a channel loses its mean m
and its deviation s before filters see it. Both may tell classes apart: a body at rest moves less, gravity points another way.
They come back as numbers without a unit, the logarithm of s and m / s, each spread over knots by linear interpolation: two
neighbouring entries that add up to 1. A head on such entries learns any broken line, and no scale need be known.

Where every record has the same levels, the entries are constant, and subtracting the mean of the features removes them.
"""

from __future__ import annotations

import numpy as np

ENDS = (-20, 20)  # the first and the last knot: powers of two of s; halves of the inverse hyperbolic sine of m / s
KNOTS = ENDS[1] - ENDS[0] + 2
_TINY = 1e-30  # the deviation of a channel that stands still


def size(channels: int) -> int:
    """Entries of one signal."""
    return 2 * KNOTS * channels


def standardised(signal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The signal (channels, length) with each channel at mean 0 and deviation 1, and its `levels`. A missing value is the mean."""
    x = np.asarray(signal, np.float64)
    known = np.isfinite(x)
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    with np.errstate(over="ignore"):
        x = np.clip(np.where(known, x, 0.0), -1e100, 1e100)  # squares stay finite
        mean = x.sum(axis=1, keepdims=True) / count
        x = np.where(known, x - mean, 0.0)
        deviation = np.sqrt(np.square(x).sum(axis=1, keepdims=True) / count)
    scaled = x / np.maximum(deviation, _TINY)
    return scaled.astype(np.float32), levels(mean[:, 0], deviation[:, 0])


def levels(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """The entries of all channels, from the mean and the deviation of each."""
    s = np.maximum(deviation, _TINY)
    at = np.stack([np.log2(s), 2 * np.arcsinh(mean / s)], axis=1).ravel()
    at = np.clip(at, *ENDS) - ENDS[0]
    knot = np.floor(at).astype(np.int64)
    out = np.zeros((len(at), KNOTS), np.float32)
    every = np.arange(len(at))
    out[every, knot] = 1 - (at - knot)
    out[every, knot + 1] = at - knot
    return out.ravel()
