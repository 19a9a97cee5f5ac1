"""Tables from Parquet files and from data frames (pandas, polars: anything with named columns)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import numpy as np

from sordino.data.table import Table, from_values
from sordino.errors import BadInput


class Column(Protocol):
    """A column of a data frame, of pandas, polars or another library."""

    def to_numpy(self) -> np.ndarray: ...


class Frame(Protocol):
    """What is asked of a data frame."""

    @property
    def columns(self) -> Iterable[str]: ...
    def __getitem__(self, name: str) -> Column: ...


def from_frame(frame: Frame, where: str = "the data frame") -> Table:
    """Columns of numbers, booleans, text and categories; dates and nested values are refused by name."""
    names = [str(name) for name in frame.columns]
    given = list(frame.columns)
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:  # a frame gives both of them under that name
        raise BadInput(f"{where} has two columns called {twice!r}: rename one.")
    return Table(
        where, tuple(names), tuple(_column(frame[key].to_numpy(), name, where) for key, name in zip(given, names))
    )


def read_parquet(file: Path) -> Table:
    """A Parquet file as a table; needs pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise BadInput(f"reading {file.name} needs pyarrow: pip install 'sordino[data]'.") from error
    try:
        table = pyarrow.parquet.read_table(file)
    except (OSError, pyarrow.ArrowException) as error:
        raise BadInput(f"{file} cannot be read as Parquet: write it again.") from error
    names = tuple(table.column_names)
    return Table(str(file), names, tuple(_column(table.column(name).to_numpy(), name, str(file)) for name in names))


def _column(values: np.ndarray, name: str, where: str) -> np.ndarray:
    if values.dtype.kind in "fiu":
        return values.astype(np.float64)
    if values.dtype.kind in "Mm":
        raise BadInput(
            f"column {name!r} of {where} holds dates: turn them into numbers (days, years), or leave it out."
        )
    if any(isinstance(cell, (list, tuple, dict, np.ndarray)) for cell in values[:100]):
        raise BadInput(f"column {name!r} of {where} holds lists: spread them over columns, or save arrays as .npz.")
    return from_values(values.tolist())
