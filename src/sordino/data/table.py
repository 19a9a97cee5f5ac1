"""A table as it came: named columns of numbers or of text, where they came from, and on which lines.

Numbers are float64 with NaN for a missing cell; text is an array of strings with the empty string for one. True and False are
the numbers 1 and 0 to a model, and words as labels. A sentence about
a cell names file, row and column and never repeats what stands there: it is somebody's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sordino.errors import BadInput

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "#n/a"})


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of one file, frame or client. `named`: it has a heading; else columns are known by their place."""

    where: str
    names: tuple[str, ...]
    columns: tuple[np.ndarray, ...]
    named: bool = True
    lines: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # the line of each row in its file
    label: str | None = None  # the column that is predicted, where its owner says so

    def __post_init__(self) -> None:
        if len(self._places) < len(self.names):
            twice = next(name for i, name in enumerate(self.names) if self._places[name] != i)
            raise BadInput(f"{self.where} has two columns called {twice!r}: rename one.")
        if not self.columns or not len(self.columns[0]):
            raise BadInput(f"{self.where} has no examples: leave it out, or give it some.")

    def __len__(self) -> int:
        return len(self.columns[0])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[self._places[name]]

    def row(self, at: int) -> str:
        """How row `at` is named in a sentence: by its line in the file, if it came from one."""
        return f"row {int(self.lines[at]) if len(self.lines) else at + 1}"

    def place(self, at: int, name: str) -> str:
        """Where a cell stands, for a sentence; not what stands there."""
        return f"{self.row(at)} of {self.where}, column {name!r},"

    def take(self, rows: np.ndarray, where: str | None = None) -> Table:
        """Some of the rows, in the order given."""
        lines = self.lines[rows] if len(self.lines) else rows + 1
        return Table(where or self.where, self.names, tuple(c[rows] for c in self.columns), self.named, lines)

    def without(self, names: Collection[str]) -> Table:
        """The table without these columns."""
        kept = [k for k, name in enumerate(self.names) if name not in names]
        columns = tuple(self.columns[k] for k in kept)
        return Table(self.where, tuple(self.names[k] for k in kept), columns, self.named, self.lines, self.label)

    def with_label(self, name: str) -> Table:
        """The same table with this column for the label."""
        return Table(self.where, self.names, self.columns, self.named, self.lines, name)

    def renamed(self, old: str, new: str) -> Table:
        """The same table with another name for one column."""
        names = tuple(new if name == old else name for name in self.names)
        return Table(self.where, names, self.columns, self.named, self.lines)

    def numbers(self, name: str) -> np.ndarray:
        """A column as float64, NaN where a cell is missing; one sentence about the first cell that is no number."""
        column = self[name]
        if column.dtype.kind == "f":
            wrong = np.flatnonzero(np.isinf(column))
            if len(wrong):
                raise BadInput(
                    f"{self.place(wrong[0], name)} is infinite: put a finite number there, or leave it empty."
                )
            return column
        truth = is_truth(column)
        for at, cell in enumerate(column):
            if cell and not truth and not is_number(cell):
                raise BadInput(
                    f"{self.place(at, name)} holds text, not a number: correct it, leave the column out, "
                    "or declare its values in schema.toml (sordino data describe writes one)."
                )
        if truth:
            return np.array([float(cell.lower() == "true") if cell else math.nan for cell in column])
        return np.array([float(cell) if cell else math.nan for cell in column])

    def words(self, name: str) -> np.ndarray:
        """A column as text, numbers in their shortest form; the empty string where a cell is missing."""
        column = self[name]
        if column.dtype.kind != "f":
            return column
        return np.array([word(value) for value in column.tolist()], dtype=object)

    def is_text(self, name: str) -> bool:
        """Whether some cell of the column is no number."""
        return self.first_text(name) is not None

    def kind_of_text(self, at: int, name: str) -> str:
        """What kind of text a cell is; never what stands there."""
        cell = str(self[name][at])
        if _DATE.match(cell):
            return "a date"
        return "text (a number with separators in it?)" if _GROUPED.match(cell) else "text"

    def first_text(self, name: str) -> int | None:
        """The first row whose cell is text; None if all are numbers, or missing."""
        if self[name].dtype.kind == "f" or is_truth(self[name]):
            return None
        return next((at for at, cell in enumerate(self[name]) if cell and not is_number(cell)), None)


_GROUPED = re.compile(r"[-+]?\d{1,3}([., ']\d{3})+([.,]\d+)?$")
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?$")


def word(value: float) -> str:
    """A number as a name.

    >>> word(3.0), word(2.5), word(float("nan"))
    ('3', '2.5', '')
    """
    if math.isnan(value):
        return ""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def is_truth(column: np.ndarray) -> bool:
    """Whether a column of words says true and false, and nothing else.

    >>> is_truth(np.array(["True", "", "FALSE"], dtype=object)), is_truth(np.array(["true", "yes"], dtype=object))
    (True, False)
    """
    return {cell.lower() for cell in column.tolist()} - {""} in ({"true"}, {"false"}, {"true", "false"})


def is_number(cell: str) -> bool:
    """Whether a cell is a number as spreadsheets write it."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # float() takes 1_000, and no spreadsheet writes it


def column_of(cells: Sequence[str], decimal_comma: bool = False) -> np.ndarray:
    """Cells as numbers if all of them are (or missing), else as text.

    >>> column_of(["1", "NA", "2.5"]).tolist(), column_of(["red", " NA "]).tolist()
    ([1.0, nan, 2.5], ['red', ''])
    """
    try:
        return np.array(cells, dtype=np.float64)  # by far the usual case
    except ValueError:
        pass
    plain = [_plain(cell) for cell in cells]
    numeric = plain
    if decimal_comma:
        numeric = [cell.replace(",", ".") if cell.count(",") == 1 and "." not in cell else cell for cell in plain]
    if any(numeric) and all(not cell or is_number(cell) for cell in numeric):
        return np.array([float(cell) if cell else math.nan for cell in numeric])
    return np.array(plain, dtype=object)


def from_values(values: Iterable[object]) -> np.ndarray:
    """A column of Python objects: numbers if all are numbers (or missing), else text."""
    cells = list(values)
    known = [cell for cell in cells if not _is_missing(cell)]
    if known and all(isinstance(cell, (bool, np.bool_)) for cell in known):
        return np.array(["" if _is_missing(cell) else str(bool(cell)) for cell in cells], dtype=object)
    if known and all(isinstance(cell, (bool, int, float, np.number, np.bool_)) for cell in known):
        return np.array([math.nan if _is_missing(cell) else float(cell) for cell in cells])  # type: ignore[arg-type]
    return np.array(["" if _is_missing(cell) else str(cell).strip() for cell in cells], dtype=object)


def _plain(cell: str) -> str:
    cell = cell.strip()
    return "" if cell.lower() in MISSING else cell


def _is_missing(cell: object) -> bool:
    if cell is None:
        return True
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    try:
        return bool(cell != cell)  # NaN, NaT
    except (TypeError, ValueError):
        return True  # pandas' NA has no truth
