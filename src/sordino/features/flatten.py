"""Directions in which the data varies most, flattened: what a released covariance is good for.

Rows of features have length 1. Where records are alike (spectra of one substance, outlines of one kind of leaf) nearly all of that length
lies along a few directions that tell nothing, and what tells classes apart is drowned by noise. Synthetic pictures know the
directions in which *all* pictures vary, not those of one data set. So the data is asked, with noise, for the covariance along a few
hundred public directions, and every direction that noise does not explain is shrunk, sqrt(2 F / (l + F)) for a variance l above the
floor F: what remains of it lies between F and 2 F. Rows are then brought to length 1 again, so that the rest grows, and can be asked again.

The noise on a covariance of q numbers, of deviation s on each, is a symmetric random matrix. Its eigenvalues lie within s sqrt(2 q)
(Wigner); a quarter of that is the floor. Shrinking a direction that only noise singled out does little harm.
"""

from __future__ import annotations

import numpy as np

TINY = 1e-6  # a variance below which rows do not lie along a direction
FLOOR = 0.25  # over the edge of what noise alone makes (docs/features.md)


def floor(q: int, noise: float) -> float:
    """The variance down to which directions are shrunk, for noise of this deviation on each number of a covariance of q (`privacy.products`)."""
    return FLOOR * noise * float(np.sqrt(2 * q))


def flattening(covariance: np.ndarray, noise: float) -> np.ndarray:
    """The symmetric matrix that shrinks each direction of variance above the floor, and leaves the others as they are."""
    q = len(covariance)
    values, vectors = np.linalg.eigh(covariance)
    least = max(floor(q, noise), TINY)
    high = values > least
    factors = np.sqrt(2 * least / (values[high] + least))
    return np.eye(q) + (vectors[:, high] * (factors - 1)) @ vectors[:, high].T
