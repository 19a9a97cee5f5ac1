"""A product of rows and a matrix whose bits do not depend on where a row stands, whatever the matrix is.

A library adds up products in an order of its own, which changes with a row's place in a block. The last bits change with it. A matrix that a
lying server made up can let a row cancel to these last bits; brought to length 1 they would be all that is left of it, and a record
would change the rows of others. So both sides are rounded to whole numbers of steps that are so large that every sum fits into a double:
the product is exact, in any order.
"""

from __future__ import annotations

import math

import numpy as np

MATRIX_BITS, SUM_BITS = 17, 52  # of the largest number of the matrix; of a sum


def product(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """`rows` (of length 1 at most, or not finite) times `matrix`, in double precision.

    >>> product(np.array([[0.5, 0.25]]), np.array([[1.0, 0.0], [2.0, 4.0]]))
    array([[1., 1.]])
    """
    most = float(np.abs(matrix).max(initial=0.0))
    if not math.isfinite(most):
        return np.full((len(rows), matrix.shape[1]), np.nan)
    exponent = math.frexp(most)[1]  # numbers of the matrix lie below 2^exponent
    bits = SUM_BITS - MATRIX_BITS - max(1, math.ceil(math.log2(max(1, len(matrix)))))
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(np.ldexp(matrix.astype(np.float64), MATRIX_BITS - exponent))
        return np.asarray(
            np.ldexp(np.rint(np.ldexp(rows.astype(np.float64), bits)) @ steps, exponent - MATRIX_BITS - bits)
        )
