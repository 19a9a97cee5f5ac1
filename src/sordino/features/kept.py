"""Extractors that were made before: filters and damped directions on disk, since they take half a minute to make.

They are public and can always be made again. A file is named by the recipe and the shape; what is read from it gives its own
digest, so that a plan which names the digest notices other filters.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np

from sordino.features import examples
from sordino.features.cache import root
from sordino.features.extractor import Extractor, Shortening, extractor, named, shortening
from sordino.features.filters import FilterBank
from sordino.features.maps import FeatureMap
from sordino.features.recipe import Recipe
from sordino.files import write_atomically

_VERSION, _SHORT = 1, 2  # of what makes filters and damping, and of what shortens


@lru_cache(maxsize=4)
def extractor_for(recipe: Recipe, shape: tuple[int, ...], threads: int = 1) -> Extractor:
    """The extractor of this recipe for this shape: from memory, from disk, or made now."""
    key = hashlib.blake2b(repr((_VERSION, recipe.to_json(), shape)).encode(), digest_size=16).hexdigest()
    place = root() / f"extractor-{key}.npz"
    found = _read(place, recipe, shape)
    if found is not None:
        return found
    made = extractor(recipe, shape, threads)
    _write(place, made)
    return made


@lru_cache(maxsize=4)
def shortening_for(recipe: Recipe, shape: tuple[int, ...], count: int, threads: int = 1) -> Shortening:
    """The way to `count` public directions: from memory, from disk, or made now."""
    made = extractor_for(recipe, shape, threads)
    key = hashlib.blake2b(repr((_SHORT, made.recipe.to_json(), shape, count)).encode(), digest_size=16).hexdigest()
    place = root() / f"shortening-{key}.npz"
    try:
        with np.load(place, allow_pickle=False) as file:
            found = Shortening(file["map"], file["centre"], float(file["scale"]))
        numbers = found.map.shape[1:]
        if len(found.map) == made.dimension and found.centre.shape == numbers and found.scale > 0:
            return found
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
        pass
    found = shortening(made, count, threads)
    _keep(place, {"map": found.map, "centre": found.centre, "scale": np.array(found.scale)})
    return found


def _write(place: Path, made: Extractor) -> None:
    arrays: dict[str, np.ndarray] = {}
    for i, bank in enumerate(made.map.banks):
        arrays |= {
            f"weights.{i}": bank.weights,
            f"bias.{i}": bank.bias,
            f"patch.{i}": np.array([bank.channels, *bank.patch]),
        }
    if made.damping is not None:
        arrays |= {"directions": made.damping.directions, "factors": made.damping.factors}
    _keep(place, arrays)


def _keep(place: Path, arrays: dict[str, np.ndarray]) -> None:
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    try:
        os.makedirs(place.parent, mode=0o700, exist_ok=True)
        write_atomically(place, content.getvalue(), private=True)
    except OSError:
        pass  # nothing here is needed: it is made again


def _read(place: Path, recipe: Recipe, shape: tuple[int, ...]) -> Extractor | None:
    """What the file holds; None if there is none that fits."""
    try:
        with np.load(place, allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
        banks = []
        for i in range(len(recipe.blocks)):
            channels, high, wide = (int(n) for n in held[f"patch.{i}"])
            banks.append(FilterBank(channels, (high, wide), held[f"weights.{i}"], held[f"bias.{i}"]))
        damping = examples.Damping(held["directions"], held["factors"]) if recipe.damped else None
        mapped = FeatureMap(shape, recipe.blocks, banks)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return Extractor(recipe, shape, mapped, damping, named(recipe, banks))
