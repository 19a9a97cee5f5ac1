"""Filters from synthetic pictures alone: random patches of them, whitened (Coates, Lee and Ng 2011).

A patch p (all channels) is brought to p' = (p - mean p) / sqrt(var p + floor). Whitening W = (cov + offset)^(-1/2) and the
mean m of p' come from synthetic patches. A filter is a random synthetic patch, whitened and brought to unit length, f.
Its response to a patch is z = f . W (p' - m) = (W f) . p' - (W f) . m: one matrix product with the rows W f.

Whitening and mean are made symmetric under mirroring, so that the response of a mirrored filter is the response of the
filter to the mirrored picture.

Weights are rounded to multiples of 2^-14. Machines whose linear algebra differs in the last bits therefore find the same
weights, and `FilterBank.digest` can stand in a plan.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sordino.errors import BadInput, positive, whole
from sordino.privacy.randomness import stream

FLOOR = 1.5e-4  # variance of a patch that counts as flat, for pixels from 0 to 1: about three grey levels of 255
OFFSET = 0.1  # added to the eigenvalues of the covariance before whitening
_GRID = 2.0**14
_PATCHES = 100_000


@dataclass(frozen=True, eq=False)
class FilterBank:
    """Filters of one patch size: `weights` (filters, channels * height * width of a patch) and `bias` (filters,)."""

    channels: int
    patch: tuple[int, int]
    weights: np.ndarray
    bias: np.ndarray
    floor: float = FLOOR

    def __len__(self) -> int:
        return len(self.weights)

    @cached_property
    def digest(self) -> str:
        """Names the responses: equal digests, equal filters."""
        sizes = (self.channels, *self.patch, len(self.weights))
        content = hashlib.blake2b(repr((sizes, self.floor)).encode(), digest_size=16, person=b"sordino.filters")
        content.update(np.rint(self.weights.astype(np.float64) * _GRID).astype("<i4").tobytes())
        content.update(np.rint(self.bias.astype(np.float64) * _GRID).astype("<i4").tobytes())
        return content.hexdigest()

    def mirrored(self) -> FilterBank:
        """The same filters, left and right exchanged."""
        turned = self.weights.reshape(-1, self.channels, *self.patch)[..., ::-1]
        weights = np.ascontiguousarray(turned).reshape(self.weights.shape)
        return FilterBank(self.channels, self.patch, weights, self.bias, self.floor)


def build(
    pictures: np.ndarray, patch: tuple[int, int], count: int, seed: int, symmetric: bool = True, offset: float = OFFSET
) -> FilterBank:
    """`count` filters for patches of this height and width, from synthetic pictures (bytes, count x C x H x W)."""
    whole(1, count=count)
    positive(offset=offset)
    channels, height, width = pictures.shape[1:]
    if patch[0] > height or patch[1] > width:
        raise BadInput(
            f"A patch of {patch[0]} x {patch[1]} does not fit a picture of {height} x {width}; use smaller patches."
        )
    rng = stream(seed, 0, 0, f"filters {patch[0]} x {patch[1]}")
    p = normalised(_patches(pictures, patch, max(_PATCHES, count), rng), FLOOR)
    mean, cov = p.mean(axis=0), np.cov(p, rowvar=False, bias=True).reshape(p.shape[1], p.shape[1])
    if symmetric:
        turn = np.arange(p.shape[1]).reshape(channels, *patch)[..., ::-1].reshape(-1)
        mean, cov = (mean + mean[turn]) / 2, (cov + cov[np.ix_(turn, turn)]) / 2
    values, vectors = np.linalg.eigh(cov)
    whiten = (vectors / np.sqrt(np.maximum(values, 0) + offset)) @ vectors.T
    chosen = (p[rng.permutation(len(p))[:count]] - mean) @ whiten
    chosen /= np.maximum(np.linalg.norm(chosen, axis=1, keepdims=True), 1e-12)
    weights = np.rint(chosen @ whiten * _GRID) / _GRID
    bias = np.rint(-(weights @ mean) * _GRID) / _GRID
    return FilterBank(channels, patch, weights.astype(np.float32), bias.astype(np.float32))


def normalised(patches: np.ndarray, floor: float) -> np.ndarray:
    """Each row without its mean, divided by the root of its variance plus `floor`."""
    p = patches - patches.mean(axis=1, keepdims=True)
    return p / np.sqrt(np.square(p).mean(axis=1, keepdims=True) + floor)


def _patches(pictures: np.ndarray, patch: tuple[int, int], count: int, rng: np.random.Generator) -> np.ndarray:
    """Random patches as rows of doubles from 0 to 1."""
    _, _, height, width = pictures.shape
    which = rng.integers(0, len(pictures), count)
    top, left = rng.integers(0, height - patch[0] + 1, count), rng.integers(0, width - patch[1] + 1, count)
    rows, columns = top[:, None, None] + np.arange(patch[0])[:, None], left[:, None, None] + np.arange(patch[1])
    found = pictures[
        which[:, None, None, None], np.arange(pictures.shape[1])[:, None, None], rows[:, None], columns[:, None]
    ]
    return found.reshape(count, -1) / 255.0
