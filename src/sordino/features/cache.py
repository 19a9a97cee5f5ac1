"""Features of one client on disk. They are as private as the data: the folder and the files are for their owner alone.

A file is named by a digest of the extractor and of the client's data, and appears in one step when it is complete. Another
recipe, other filters or one changed pixel give another name. Numbers are kept in half precision, times the root of the
dimension, so that entries of a row of unit length are about 1.

The folder is ``SORDINO_FEATURES``, or ``sordino/features`` in the user's cache. Nothing in it is ever needed: what is missing
is computed again.
"""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path

import numpy as np

from sordino.errors import BadInput
from sordino.features.extractor import Extractor

_SOME = 1000  # examples at a time


def root() -> Path:
    """Where features are kept."""
    chosen = os.environ.get("SORDINO_FEATURES")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sordino" / "features"


def key(extractor: Extractor, x: np.ndarray) -> str:
    """The name of the features of this data."""
    found = hashlib.blake2b(extractor.digest.encode(), digest_size=20, person=b"sordino.cached")
    found.update(repr((x.dtype.str, x.shape)).encode())
    for start in range(0, len(x), _SOME):
        found.update(np.ascontiguousarray(x[start : start + _SOME]).data)
    return found.hexdigest()


def features(extractor: Extractor, x: np.ndarray, threads: int = 1, folder: Path | None = None) -> np.ndarray:
    """`extractor.joined(x)` in half precision times `scale`, from disk or computed and kept; memory-mapped."""
    place = (folder or root()) / f"{key(extractor, x)}.npy"
    shape = (len(x), extractor.dimension)
    found = _load(place, shape)
    if found is not None:
        return found
    partial = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            _write(partial, extractor, x, threads)
            os.replace(partial, place)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(
            f"{place.parent} cannot hold features ({error.strerror or error}): make room, or set SORDINO_FEATURES to a "
            "folder that can be written."
        ) from error
    written = _load(place, shape)
    assert written is not None
    return written


def scale(extractor: Extractor) -> float:
    """What kept rows are multiplied by: divide by it, or bring rows to unit length."""
    return math.sqrt(extractor.dimension)


def _write(partial: Path, extractor: Extractor, x: np.ndarray, threads: int) -> None:
    handle = os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "wb") as file:
        header = {"descr": "<f2", "fortran_order": False, "shape": (len(x), extractor.dimension)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(x), _SOME):
            rows = extractor.joined(x[start : start + _SOME], threads)
            file.write((rows * np.float32(scale(extractor))).astype("<f2").tobytes())
        file.flush()
        os.fsync(file.fileno())


def _load(place: Path, shape: tuple[int, int]) -> np.ndarray | None:
    """The kept features, or None if there are none of this shape."""
    try:
        found = np.load(place, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        return None
    return found if found.shape == shape and found.dtype == np.dtype("<f2") else None
