"""All of a recipe's features for one shape of data, under one digest.

Two stages. `joined` is a function of one example and public arrays, and is what a client keeps on disk (`cache`).
`finished` takes a released mean as well, and is what the head learns from. Both are the same at every holder of data:
synthetic pictures, filters and damped directions are made again from the recipe, and `digest` says whether two holders have
the same.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sordino import errors
from sordino.features import exact, examples, filters, generator
from sordino.features.maps import FeatureMap, picture_shape
from sordino.features.recipe import Recipe

SYNTHETIC = 2500  # pictures behind `shortening`: other ones than those behind the filters
_SOME = 1000  # pictures at a time
# How far from the synthetic mean a short row may lie before it is cut, over how far synthetic ones lie: real pictures lie up to 1.5 times as far.
WIDE = 1.5
CENTRE_STEP = 2.0**-16  # machines that make the synthetic mean again agree on it


class Rows(Protocol):
    """Rows that are made a slice at a time."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class Extractor:
    """The features of one recipe for one shape. Build it with `extractor`."""

    recipe: Recipe
    shape: tuple[int, ...]
    map: FeatureMap
    damping: examples.Damping | None
    digest: str
    """Of the recipe's part that decides features and of the filters: goes into a plan."""

    @property
    def dimension(self) -> int:
        return sum(self.map.sizes)

    def joined(self, x: np.ndarray, threads: int = 1) -> np.ndarray:
        """Rows of unit length (float32) from pictures or signals."""
        return examples.joined(self.map(x, threads), self.map.sizes, self.recipe.power)

    def finished(self, rows: np.ndarray | Rows, mean: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """What the head takes: `rows` of `joined`, a released (or public) mean subtracted, damped; unit length. Into `out` if given."""
        out = np.empty(rows.shape, np.float32) if out is None else out
        for start in range(0, len(rows), _SOME):
            some = examples.centred(np.asarray(rows[start : start + _SOME], np.float32), mean)
            out[start : start + _SOME] = some if self.damping is None else self.damping(some)
        return out


@dataclass(frozen=True, eq=False)
class Shortening:
    """From rows of `joined` to few numbers: along public directions, as differences from where synthetic pictures lie.

    A short row is a small part of a whole one, and most of that is common to all pictures, synthetic ones too. What is left of it is brought to
    about length 1: a mean of contributions of length 1 is then heard three to nine times as well (docs/features.md).
    """

    map: np.ndarray  # (dimension, numbers)
    centre: np.ndarray  # (numbers,)
    scale: float

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """In double precision; each follows from its own row alone, to the last bit."""
        return np.asarray((exact.product(rows, self.map) - self.centre) / self.scale)


def shortening(made: Extractor, count: int, threads: int = 1) -> Shortening:
    """Damped, and along the directions in which synthetic pictures vary most.

    Rows of real pictures keep what tells them apart; what they lose is mostly what noise would drown. The levels of signals stay as they are:
    they hardly vary among synthetic signals, and may tell classes apart.

    Eigenvectors have no sign, and those of near eigenvalues turn within their plane from machine to machine. So their basis is
    turned until it lies as near as possible to fixed random directions: it then depends on the space that they span alone.
    """
    recipe, levels = made.recipe, made.map.sizes[-1] if len(made.shape) == 2 else 0
    n = made.dimension - levels
    errors.whole(1, directions=count)
    if count >= min(n, SYNTHETIC):
        raise errors.BadInput(f"Features of {n} numbers have fewer than {count} directions to keep; use fewer.")
    rows = made.joined(generator.images(SYNTHETIC, made.shape, recipe.seed + 1, recipe.leaves), threads)
    space = examples.principal(made.finished(rows, rows.mean(axis=0))[:, :n], count)[1].astype(np.float64)
    fixed = np.random.Generator(np.random.PCG64(recipe.seed)).standard_normal((n, count))
    left, _, right = np.linalg.svd(space @ fixed)
    out = np.zeros((made.dimension, count + levels))
    out[:n, :count] = space.T @ (left @ right)
    out[n:, count:] = np.eye(levels)
    if made.damping is not None:
        along = made.damping.directions.astype(np.float64)
        out += along.T @ ((made.damping.factors - 1)[:, None] * (along @ out))
    found = out.astype(np.float32)
    short = rows.astype(np.float64) @ found
    centre = np.rint(short.mean(axis=0) / CENTRE_STEP) * CENTRE_STEP
    scale = WIDE * math.sqrt(float(np.square(short - centre).sum(axis=1).mean()))
    return Shortening(found, centre, float(f"{max(scale, CENTRE_STEP):.3g}"))


def extractor(recipe: Recipe, shape: tuple[int, ...], threads: int = 1) -> Extractor:
    """Synthetic pictures, filters and damped directions of this recipe for data of this shape. Made in half a minute."""
    whole = picture_shape(shape)
    for block in recipe.blocks:
        block.seen(whole)  # refuses pictures that are too small before anything is made
    pictures = generator.images(recipe.pictures, tuple(shape), recipe.seed, recipe.leaves)
    banks = []
    for block in recipe.blocks:
        seen = _shrunk(pictures.reshape(-1, *whole), block.shrink)
        banks.append(filters.build(seen, block.window(whole), block.filters, recipe.seed, symmetric=block.mirror))
    mapped = FeatureMap(shape, recipe.blocks, banks)
    damping = None
    if recipe.damped:
        rows = examples.joined(mapped(pictures, threads), mapped.sizes, recipe.power)
        damping = examples.damping(examples.centred(rows, rows.mean(axis=0)), recipe.damped)
    return Extractor(recipe, tuple(shape), mapped, damping, named(recipe, banks))


def named(recipe: Recipe, banks: Sequence[filters.FilterBank]) -> str:
    """The digest of a recipe's features and of the filters that were made for it."""
    name = hashlib.blake2b(recipe.features_digest.encode(), digest_size=16, person=b"sordino.extrac2")
    for bank in banks:
        name.update(bank.digest.encode())
    return name.hexdigest()


def _shrunk(pictures: np.ndarray, factor: int) -> np.ndarray:
    """Averages over factor x factor pixels (along the length only for signals), as bytes."""
    if factor == 1:
        return pictures
    n, channels, height, width = pictures.shape
    down = 1 if height == 1 else factor
    high, wide = height // down, width // factor
    cut = pictures[:, :, : high * down, : wide * factor].reshape(n, channels, high, down, wide, factor)
    return np.rint(cut.mean(axis=(3, 5))).astype(np.uint8)
