"""What is done to the features of one example. Each function looks at one row and public arrays, so it costs no privacy.

The order is: blocks to unit length, joined; a power of each entry, unit length (`joined`); a mean that has been released is
subtracted, unit length (`centred`); directions in which synthetic pictures vary most are damped, unit length (`damped`).

Rows end with unit length. Noise on a linear model then moves every score by the same amount, whatever the dimension, and
what counts is how much of a row's length separates classes. The mean and the directions in which all pictures vary carry
little of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sordino.errors import BadInput, positive, whole
from sordino.gradients import sums

_TINY = 1e-12  # a row shorter than this is left as it is: a flat picture has no features


def unit(rows: np.ndarray) -> np.ndarray:
    """Each row divided by its length."""
    return _in_place(np.array(rows))


def _in_place(rows: np.ndarray) -> np.ndarray:
    """The same for rows that nobody else needs."""
    lengths = np.sqrt(sums.squares(torch.from_numpy(rows)).numpy())  # in double precision
    rows *= (1 / np.where(lengths > _TINY, lengths, 1)).astype(rows.dtype)[:, None]
    return rows


def from_half(kept: np.ndarray) -> np.ndarray:
    """Rows of unit length from rows that are kept in half precision; numpy would take four times as long."""
    return _in_place(torch.from_numpy(np.array(kept)).float().numpy())


def joined(raw: np.ndarray, sizes: Sequence[int], power: float) -> np.ndarray:
    """Blocks of these sizes to unit length each, then |v|^power with the sign of v, and the whole to unit length."""
    positive(power=power)
    if raw.ndim != 2 or raw.shape[1] != sum(sizes):
        raise BadInput(f"Features of shape {raw.shape} are not rows of blocks of {list(sizes)}.")
    edges = np.cumsum([0, *sizes])
    out = np.concatenate([unit(raw[:, low:high]) for low, high in zip(edges[:-1], edges[1:])], axis=1)
    if power != 1:
        out = np.copysign(np.sqrt(np.abs(out)) if power == 0.5 else np.abs(out) ** np.float32(power), out)
    return _in_place(out)


def centred(rows: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """A given (public, or released) mean subtracted, and unit length."""
    if mean.shape != rows.shape[1:]:
        raise BadInput(f"A mean of {mean.shape} does not fit features of {rows.shape[1:]}.")
    return _in_place(rows - mean.astype(rows.dtype))


@dataclass(frozen=True, eq=False)
class Damping:
    """Orthonormal `directions` (k, d), and the `factors` (k,) by which a row shrinks along each."""

    directions: np.ndarray
    factors: np.ndarray

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Rows damped, and of unit length."""
        along = rows @ self.directions.T
        damped = (along * (self.factors - 1)) @ self.directions
        damped += rows
        return _in_place(damped)


def damping(rows: np.ndarray, directions: int) -> Damping:
    """Damps the top principal directions of `rows`, which must be public: sqrt(2 l_k / (l_i + l_k)) along direction i <= k.

    The factor is 1 at the last direction, so that none is singled out by being the last.
    """
    values, found = principal(rows, directions)
    factors = np.sqrt(2 * values[-1] / (values + values[-1]))
    return Damping(found, factors.astype(np.float32))


def principal(rows: np.ndarray, directions: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues of the rows' products, falling, and their directions (k, d), of length 1."""
    whole(1, directions=directions)
    if directions >= min(rows.shape):
        raise BadInput(
            f"{rows.shape[0]} rows of {rows.shape[1]} features have fewer than {directions} directions; use fewer."
        )
    from scipy.linalg import eigh

    wide = rows.shape[1] > rows.shape[0]
    gram = (rows @ rows.T if wide else rows.T @ rows).astype(np.float64)
    n = len(gram)
    values, vectors = eigh(gram, subset_by_index=(n - directions, n - 1))
    values, vectors = np.maximum(values[::-1], 1e-30), vectors[:, ::-1]
    found = (vectors / np.sqrt(values)).T @ rows if wide else vectors.T
    return values, np.ascontiguousarray(found, np.float32)
