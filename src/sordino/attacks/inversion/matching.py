"""Which reconstruction is of which original: the assignment with the least total square error (Kuhn 1955).

A batch has no order: its gradient is the same for every order of its records. Labels that were inferred are sorted, so that they
say nothing about places either.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from sordino.errors import BadInput


def squared_errors(originals: np.ndarray, made: np.ndarray) -> np.ndarray:
    """Mean square error of each pair, [originals, made]."""
    a, b = (np.asarray(part, np.float64).reshape(len(part), -1) for part in (originals, made))
    return np.square(a[:, None] - b[None]).mean(2)


def matched(originals: np.ndarray, made: np.ndarray) -> np.ndarray:
    """For each original the row of its reconstruction. There must be at least as many of these.

    >>> originals = np.array([[0.0], [1.0], [2.0]])
    >>> matched(originals, np.array([[2.1], [0.1], [0.9]])).tolist()
    [1, 2, 0]
    """
    if len(made) < len(originals):
        raise BadInput(f"there are {len(originals)} originals and {len(made)} reconstructions; make one for each.")
    rows, columns = linear_sum_assignment(squared_errors(originals, made))
    return columns[np.argsort(rows)]
