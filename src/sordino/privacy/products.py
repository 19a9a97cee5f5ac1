"""The products of a record's numbers as its contribution to a covariance, and their sum over many records at once.

A record c of length r contributes c_i^2 for each i and sqrt(2) c_i c_j for each i < j: a vector of length r^2, so cutting c to length 1 cuts
the contribution to length 1. One by one such vectors are long (20,100 numbers for 200); their sum is one product of matrices.

That product is rounded, by less than k^2 2^-52 in each number for k records, and the sum is then truncated onto the grid: together below 2^-20 of the
bound in length, for a thousand records of two thousand numbers. Records are therefore cut to `SHORT`, which leaves 2^-13: neighbours then
differ by no more than the bound (as sums of gradients do, `privacy.mechanisms`).
"""

from __future__ import annotations

import numpy as np

from sordino.errors import BadInput

SHORT = 1 - 2.0**-13
MOST = 1000  # records in one sum


def length(q: int) -> int:
    """Products of q numbers."""
    return q * (q + 1) // 2


def total(rows: np.ndarray) -> np.ndarray:
    """The sum of the contributions of these records, one row each; a record with a number that is not finite adds nothing.

    >>> total(np.array([[0.6, 0.0], [0.0, 0.5]]))
    array([0.36, 0.25, 0.  ])
    """
    rows = np.asarray(rows, np.float64)
    if rows.ndim != 2 or len(rows) > MOST:
        raise BadInput(f"Products are of at most {MOST} records, one row each, not of numbers of shape {rows.shape}.")
    largest = np.abs(rows).max(axis=1, initial=0.0)
    fit = np.isfinite(largest) & (largest > 0)
    rows, largest = rows[fit], largest[fit]
    with np.errstate(over="ignore"):
        norms = largest * np.sqrt(np.square(rows / largest[:, None]).sum(axis=1))  # no square leaves the doubles
        rows = rows * np.minimum(1.0, SHORT / norms)[:, None]
    products = rows.T @ rows
    return np.concatenate([np.diag(products), np.sqrt(2) * products[np.triu_indices(len(products), 1)]])


def matrix(numbers: np.ndarray, q: int) -> np.ndarray:
    """The symmetric matrix of c_i c_j that a sum or mean of contributions stands for."""
    found = np.diag(numbers[:q] / 2)
    found[np.triu_indices(q, 1)] = numbers[q:] / np.sqrt(2)
    return found + found.T
