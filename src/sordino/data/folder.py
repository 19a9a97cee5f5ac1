"""A folder as a federation: one ``.npz``, ``.csv`` or ``.parquet`` file per client; ``test.*`` is the public test."""

from __future__ import annotations

import csv
import re
import zipfile
from pathlib import Path

import numpy as np

from sordino.data.check import Pair
from sordino.errors import BadInput

SUFFIXES = (".npz", ".csv", ".parquet")


def read_folder(folder: Path, label: str | None = None) -> tuple[list[str], list[Pair], Pair | None]:
    """Client names (file names without suffix, in natural order), their arrays, and the test set if there is one."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder: give one that holds a .npz, .csv or .parquet file per client.")
    files = sorted((f for f in folder.iterdir() if f.suffix in SUFFIXES), key=lambda f: _natural(f.name))
    tests = [f for f in files if f.stem == "test"]
    clients = [f for f in files if f.stem != "test"]
    if not clients:
        raise BadInput(f"{folder} has no client files: put one .npz, .csv or .parquet file per client there.")
    if len(tests) > 1:
        raise BadInput(f"{folder} has {len(tests)} test files: keep one.")
    names = [f.stem for f in clients]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise BadInput(f"{folder} has two files for the client {twice}: keep one.")
    return names, [read_file(f, label) for f in clients], read_file(tests[0], label) if tests else None


def read_file(file: Path, label: str | None = None) -> Pair:
    """(x, y) of one file; in tables y is the column `label`, or the last one if there is no such column."""
    if file.suffix == ".npz":
        return _npz(file)
    header, columns = _csv(file) if file.suffix == ".csv" else _parquet(file)
    if len(columns) < 2:
        raise BadInput(f"{file} has {len(columns)} columns: give at least one of features and one of labels.")
    if label is not None and label not in header:
        raise BadInput(f"{file} has no column {label!r}: name one of {', '.join(header[:8])}.")
    at = header.index(label or "label") if (label or "label") in header else len(columns) - 1
    return np.stack([c.astype(np.float32) for i, c in enumerate(columns) if i != at], axis=1), columns[at]


def _npz(file: Path) -> Pair:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            if not {"x", "y"} <= set(arrays.files):
                raise BadInput(f"{file} holds {', '.join(arrays.files) or 'nothing'}: save it with arrays x and y.")
            return arrays["x"], arrays["y"]
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{file} cannot be read as .npz: save it again with numpy.savez(x=..., y=...).") from error


def _csv(file: Path) -> tuple[list[str], list[np.ndarray]]:
    """With or without a heading; a heading is a first line in which not every field is a number."""
    with file.open(newline="", encoding="utf-8-sig") as lines:
        rows = [row for row in csv.reader(lines) if row]
    if not rows:
        raise BadInput(f"{file} is empty: leave it out, or give it examples.")
    header = [] if all(_is_number(field) for field in rows[0]) else [field.strip() for field in rows[0]]
    body = rows[1:] if header else rows
    if not body:
        raise BadInput(f"{file} has a heading but no examples: leave it out, or give it some.")
    width = len(rows[0])
    for number, row in enumerate(body, start=2 if header else 1):
        if len(row) != width:
            raise BadInput(f"row {number} of {file} has {len(row)} fields instead of {width}: put it right.")
        wrong = next((field for field in row if not _is_number(field)), None)
        if wrong is not None:
            raise BadInput(f"row {number} of {file} has {wrong!r}, which is not a number: encode it as one.")
    table = np.array(body, dtype=np.float64)
    return header or [str(i) for i in range(width)], list(table.T)


def _parquet(file: Path) -> tuple[list[str], list[np.ndarray]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise BadInput(f"reading {file.name} needs pyarrow: pip install 'sordino[data]'.") from error
    try:
        table = pyarrow.parquet.read_table(file)
    except (OSError, pyarrow.ArrowException) as error:
        raise BadInput(f"{file} cannot be read as Parquet: write it again.") from error
    columns = [table.column(name).to_numpy() for name in table.column_names]
    for name, column in zip(table.column_names, columns):
        if column.dtype.kind not in "fiub":
            raise BadInput(f"column {name!r} of {file} is not numeric: encode it as numbers.")
    return list(table.column_names), columns


def _natural(name: str) -> list:
    """client2 before client10."""
    return [(0, int(piece), "") if piece.isdigit() else (1, 0, piece) for piece in re.split(r"(\d+)", name) if piece]


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
