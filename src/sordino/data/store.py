"""Where data sets are kept: one folder per set with plain ``.npy`` files, opened as memory maps, and a ``meta.json``.

The folder is ``SORDINO_DATA``, or ``sordino/data`` in the user's cache. A set appears in one step (written beside its
place, then renamed), so a reader never sees half of one, whatever interrupts the writer.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from sordino.data.dataset import Dataset, Normalise
from sordino.errors import BadInput
from sordino.files import sync

FORMAT = 1
_ARRAYS = ("x", "y", "test_x", "test_y", "groups", "test_groups")


def root() -> Path:
    """The data folder: ``SORDINO_DATA``, else the XDG cache."""
    chosen = os.environ.get("SORDINO_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sordino" / "data"


def has(name: str) -> bool:
    """Whether the converted set is there."""
    return (root() / name / "meta.json").is_file()


def save(data: Dataset, source: dict | None = None) -> Path:
    """Write a set in one step and say where; another writer that came first wins, and nothing half-written is left."""
    place = root() / data.name
    if has(data.name):
        return place
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise BadInput(f"{place} is in the way and was not written by sordino: move it, or set SORDINO_DATA elsewhere.")
    with beside(place) as partial:
        for field in _ARRAYS:
            array = getattr(data, field)
            if array is not None:
                np.save(partial / f"{field}.npy", np.ascontiguousarray(array), allow_pickle=False)
        meta = {
            "format": FORMAT,
            "name": data.name,
            "about": data.about,
            "classes": data.classes,
            "normalise": None if data.normalise is None else data.normalise.to_json(),
            "group_names": data.group_names,
            "notes": data.notes,
            "source": source,
        }
        (partial / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
        for file in partial.iterdir():
            sync(file)
        try:
            os.replace(partial, place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not has(data.name):
                raise
    return place


def load(name: str) -> Dataset:
    """A converted set, memory-mapped."""
    place = root() / name
    try:
        meta = json.loads((place / "meta.json").read_text(encoding="utf-8"))
        if meta["format"] != FORMAT:
            raise BadInput(f"{place} was written by another version: delete it and run `sordino data get {name}`.")
        arrays = {
            field: np.load(place / f"{field}.npy", mmap_mode="r", allow_pickle=False)
            for field in _ARRAYS
            if (place / f"{field}.npy").exists()
        }
        return Dataset(
            name=meta["name"],
            x=arrays["x"],
            y=np.asarray(arrays["y"]),
            test_x=arrays.get("test_x"),
            test_y=arrays.get("test_y"),
            classes=meta["classes"],
            about=meta["about"],
            normalise=None if meta["normalise"] is None else Normalise.from_json(meta["normalise"]),
            groups=arrays.get("groups"),
            group_names=None if meta["group_names"] is None else tuple(meta["group_names"]),
            test_groups=arrays.get("test_groups"),
            notes=meta["notes"],
        )
    except BadInput:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{place} is damaged: delete it and run `sordino data get {name}`.") from error


def size(name: str) -> int:
    """Bytes on disk of a converted set."""
    return sum(file.stat().st_size for file in (root() / name).iterdir()) if has(name) else 0


@contextmanager
def beside(place: Path) -> Iterator[Path]:
    """A fresh folder next to `place`, removed at the end whatever happened; what dead writers left is removed too."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        for left in place.parent.glob(f".{place.name}.partial-*"):
            if not _alive(left.name.rpartition("-")[2]):
                shutil.rmtree(left, ignore_errors=True)
        partial = place.parent / f".{place.name}.partial-{os.getpid()}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
    except OSError as error:
        raise unwritable(place.parent, error) from error
    try:
        yield partial
    except OSError as error:
        raise unwritable(place.parent, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def unwritable(place: Path, error: OSError) -> BadInput:
    """The sentence for a folder that cannot be written."""
    # numpy tells of it by its text alone: "Not enough free space to write ...", or "9 requested and 4 written".
    short = error.errno is None and ("free space" in str(error) or str(error).endswith("written"))
    if short or error.errno in (errno.ENOSPC, errno.EDQUOT):
        return BadInput(f"the disk that holds {place} is full: make room, or set SORDINO_DATA to another disk.")
    return BadInput(f"{place} cannot be written ({error.strerror or error}): set SORDINO_DATA to a folder that can.")


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return int(pid) != os.getpid()
