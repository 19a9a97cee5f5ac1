"""Rows of unit length, as a linear head wants them: centred, flattened, and behind them a constant that carries the bias.

The mean is released first, and shrunk as far as its noise asks for. Then the data may be asked, with noise, along which directions its rows vary most,
and these are flattened (`features.flatten`), as often as the plan says.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sordino.errors import BadInput
from sordino.features import exact, flatten
from sordino.preparation.base import Released
from sordino.privacy import products

EVEN = 16  # the model's input is filled up with zeros to a multiple of this: products of even sizes are faster


def width(numbers: int) -> int:
    """Of the model's input, for rows of so many numbers."""
    return -(-(numbers + 1) // EVEN) * EVEN


def unit(rows: np.ndarray) -> np.ndarray:
    """Each row divided by its length; a row without one stays 0."""
    lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return rows / np.where(lengths > 0, lengths, 1.0)


def shrunk(mean: np.ndarray, noise: float) -> np.ndarray:
    """The mean as near to zero as its noise asks for (James and Stein): few records hear the mean of many features badly.

    `noise` is the deviation on each number: public. A mean that noise alone could have made is zero.
    """
    heard, square = float(np.square(noise) * mean.size), float(np.square(mean, dtype=np.float64).sum())
    return mean * max(0.0, 1 - heard / square) if square > 0 else mean


def length(numbers: int, covariance: bool) -> int:
    """Numbers in the mean of such rows, or in their covariance."""
    return products.length(numbers) if covariance else numbers


def decode(mean: np.ndarray, noise: float, numbers: int, covariance: bool) -> np.ndarray:
    """The mean of such rows, or the matrix that flattens their covariance, from what was heard of it."""
    if covariance:
        return flatten.flattening(products.matrix(mean, numbers), noise).ravel()
    return shrunk(mean, noise)


def fitting(released: Released, numbers: int) -> None:
    """Whether a mean of so many numbers was released, and whether matrices fit it."""
    if len(released[0]) != numbers or any(found.size != numbers**2 for found in released[1:]):
        raise BadInput("what the prelude released does not fit the features of this plan; bring back its own file.")


def finished(rows: np.ndarray, released: Released) -> np.ndarray:
    """Rows in double precision: less the mean, then flattened by each matrix, of unit length after each step; in single precision at the end.

    Each follows from its own row alone, to the last bit, also where a server made up the mean and the matrices (`features.exact`).
    """
    fitting(released, rows.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):  # a server may tell anything; such rows count for nothing
        rows = unit(rows - released[0])
        for flat in released[1:]:
            rows = unit(exact.product(rows, flat.reshape(rows.shape[1], -1)))
        return rows.astype(np.float32)


def with_bias(blocks: Iterable[tuple[int, np.ndarray]], records: int, numbers: int, bias: float) -> np.ndarray:
    """Model input from finished blocks, each with the place of its first row."""
    out = np.zeros((records, width(numbers)), np.float32)
    for start, block in blocks:
        out[start : start + len(block), :numbers] = block
    out[:, numbers] = bias
    return out
