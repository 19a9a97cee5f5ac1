"""Pictures and signals to features that need no data (`sordino.features`), centred by a mean that is released with noise.

The first statistic is the mean of rows of unit length, shrunk as far as its noise asks for. What the model takes is the centred and damped row, of unit length, and behind
it a constant that carries the bias. It is small, so that the bias takes little of the clipped length of a gradient.

With `directions` a row is first shortened to so many public directions (`extractor.shortening`), so that the mean is one of few numbers. With `covariances` the
data is then asked, so many times, along which of them it varies most, and these are flattened (`features.flatten`).

Filters, damped directions and those that are kept are made at every holder of data from the settings. `digest` names the filters: where a plan has it,
a holder that finds others refuses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import BadInput, positive, whole
from sordino.features import blocks as filter_blocks
from sordino.features.blocks import picture_shape, sizes
from sordino.features.recipe import Recipe, recipe_for
from sordino.machine import cores
from sordino.preparation import rows
from sordino.preparation.base import Block, Preparation, Products, Released, Stages, Statistic
from sordino.privacy import products

if TYPE_CHECKING:
    from sordino.features.extractor import Extractor, Shortening

_SOME, _MANY = 64, products.MOST  # records at a time: of a mean; of a covariance and of model input
_BLOCK = ("filters", "patch", "stride", "threshold", "cells", "shrink", "mirror", "soft")


@dataclass(frozen=True)
class Features(Preparation):
    """Settings left out follow from the shape of the data (`features.recipe.recipe_for`).

    A block is a list of numbers: filters, patch, stride, threshold, cells, shrink, whether it mirrors and (if not 0) how soft its cells are.
    """

    share: float = 0.03
    blocks: tuple[tuple[float, ...], ...] | None = None
    power: float | None = None
    damped: int | None = None
    pictures: int | None = None
    bias: float = 0.3
    directions: int = 0
    """To which rows are shortened; 0: they keep all of their numbers."""
    covariances: int = 0
    covariance: float = 0.0
    """The part of the share that covariances take together."""
    seed: int = 0
    digest: str | None = None

    kind = "features"

    def __post_init__(self) -> None:
        self.check_share()
        positive(bias=self.bias)
        whole(0, seed=self.seed, directions=self.directions, covariances=self.covariances)
        if self.covariances and not (self.directions and 0 < self.covariance < 1):
            raise BadInput(
                f"{self.covariances} covariances need directions to be taken along, and a part of the share (covariance, between 0 and 1); "
                f"give both, not {self.directions} and {self.covariance!r}."
            )
        if not self.covariances and self.covariance:
            raise BadInput(f"covariance is {self.covariance!r} and covariances is 0; say how many times to ask.")
        if self.blocks is not None:
            object.__setattr__(self, "blocks", tuple(tuple(block) for block in self.blocks))
            if any(len(block) not in (len(_BLOCK) - 1, len(_BLOCK)) for block in self.blocks):
                raise BadInput(f"a block of filters is {len(_BLOCK)} numbers: {', '.join(_BLOCK)}.")
            self._made_blocks()

    def _made_blocks(self) -> tuple[filter_blocks.Block, ...]:
        return tuple(
            filter_blocks.Block(int(f), int(p), int(s), float(t), int(c), int(r), bool(m), *map(int, soft))
            for f, p, s, t, c, r, m, *soft in self.blocks or ()
        )

    def recipe(self, shape: tuple[int, ...]) -> Recipe:
        """All settings of the features for this shape."""
        picture_shape(shape)
        usual = recipe_for(shape)
        given = {
            name: getattr(self, name) for name in ("power", "damped", "pictures") if getattr(self, name) is not None
        }
        blocks = usual.blocks if self.blocks is None else self._made_blocks()
        return replace(usual, blocks=blocks, seed=self.seed, **given)

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        mean = Statistic("the mean of the features of all records", 1 - self.covariance)
        again = f"the covariance of the features along {self.directions} public directions"
        return mean, *(Statistic(again, self.covariance / self.covariances) for _ in range(self.covariances))

    def stages(self, shape: tuple[int, ...]) -> Stages:
        return _Rows(self, tuple(shape))

    def pinned(self, shape: tuple[int, ...]) -> Features:
        """The same with the digest of the filters that are made here."""
        from sordino.features import kept

        return replace(self, digest=self.named(kept.extractor_for(self.recipe(shape), tuple(shape), cores())))

    def named(self, made: Extractor) -> str:
        """The digest of what is made of a record before anything is released."""
        if not self.directions:
            return made.digest
        whole = f"{made.digest} {self.directions}".encode()
        return hashlib.blake2b(whole, digest_size=16, person=b"sordino.short.3").hexdigest()


class _Rows(Stages):
    """Made when it is first asked for features, which may take half a minute."""

    def __init__(self, settings: Features, shape: tuple[int, ...]) -> None:
        self.settings, self.given, self.recipe = settings, shape, settings.recipe(shape)
        whole_shape = picture_shape(shape)
        for block in self.recipe.blocks:
            block.seen(whole_shape)
        parts = sizes(shape, self.recipe.blocks)
        self.dimension = sum(parts)
        self.numbers = self.dimension  # that a row has in the end
        if settings.directions:
            behind = parts[-1] if len(shape) == 2 else 0
            if settings.directions >= self.dimension - behind:
                raise BadInput(
                    f"records of shape {tuple(shape)} have {self.dimension - behind} features, which are fewer than {settings.directions} "
                    "directions; use fewer."
                )
            self.numbers = settings.directions + behind
        self.shape = (rows.width(self.numbers),)

    @cached_property
    def made(self) -> Extractor:
        from sordino.features import kept

        found = kept.extractor_for(self.recipe, self.given, cores())
        if self.settings.digest not in (None, self.settings.named(found)):
            raise BadInput(
                f"the filters made here have the digest {self.settings.named(found)}, and the plan says {self.settings.digest}: this is another "
                "version of the software; use the one that made the plan."
            )
        return found

    @cached_property
    def short(self) -> Shortening:
        """The way to few numbers."""
        from sordino.features import kept

        self.made  # noqa: B018 - refuses other filters
        return kept.shortening_for(self.recipe, self.given, self.settings.directions, cores())

    def length(self, step: int) -> int:
        return rows.length(self.numbers, step > 0)

    def contributions(self, step: int, x: np.ndarray, released: Released) -> Iterator[Block]:
        kept_rows = self._kept(x)
        if not step:
            for start in range(0, len(kept_rows), _SOME):
                yield self._short(kept_rows[start : start + _SOME])
            return
        for start in range(0, len(kept_rows), _MANY):
            yield Products(self._finished(kept_rows[start : start + _MANY], released))

    def decode(self, step: int, mean: np.ndarray, noise: float) -> np.ndarray:
        return rows.decode(mean, noise, self.numbers, step > 0)

    def apply(self, x: np.ndarray, released: Released) -> np.ndarray:
        kept_rows = self._kept(x)
        blocks = (
            (start, self._finished(kept_rows[start : start + _MANY], released))
            for start in range(0, len(kept_rows), _MANY)
        )
        return rows.with_bias(blocks, len(x), self.numbers, self.settings.bias)

    def _finished(self, some: np.ndarray, released: Released) -> np.ndarray:
        """Rows of unit length: damped and centred, or shortened, centred and flattened as often as a covariance was released."""
        if not self.settings.directions:
            return self.made.finished(some, released[0])
        return rows.finished(self._short(some), released)

    def _short(self, some: np.ndarray) -> np.ndarray:
        """In double precision, shortened if directions are few."""
        return self.short(some) if self.settings.directions else some.astype(np.float64)

    def _kept(self, x: np.ndarray) -> _Unit:
        from sordino.features import cache

        if not len(x):
            return _Unit(np.zeros((0, self.dimension), np.float16))
        return _Unit(cache.features(self.made, x, cores()))


class _Unit:
    """Kept rows, brought to unit length a slice at a time: all of them at once would fill the memory."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> np.ndarray:
        from sordino.features import examples

        return examples.from_half(self.rows[part])
