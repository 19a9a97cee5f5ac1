"""A text table as people write them: any usual separator, UTF-8, UTF-16 or Latin-1, with or without a heading."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from sordino.data.table import Table, column_of, is_number
from sordino.errors import BadInput

SEPARATORS = (",", ";", "\t", "|", " ", ":")
_LOOKED_AT = 50  # rows that decide about separator and heading
_LONGEST = 1 << 24  # characters of one cell


def read_csv(file: Path) -> Table:
    """The table in `file`. A heading is a first row of names: see `_has_heading`."""
    text = _text(file)
    separator = _separator(text)
    csv.field_size_limit(_LONGEST)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
    rows, lines = [], []
    try:
        for row in reader:
            if row and any(cell.strip() for cell in row):
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise BadInput(f"line {reader.line_num} of {file} cannot be read as a table ({error}): correct it.") from None
    if not rows:
        raise BadInput(f"{file} is empty: leave it out, or give it examples.")
    heading = _has_heading(rows[: _LOOKED_AT + 1])
    names = _names(file, rows[0]) if heading else tuple(str(i) for i in range(len(rows[0])))
    body, lines = (rows[1:], lines[1:]) if heading else (rows, lines)
    if not body:
        raise BadInput(f"{file} has a heading but no examples: leave it out, or give it some.")
    for row, line in zip(body, lines):
        if len(row) != len(names):
            raise BadInput(
                f"row {line} of {file} has {len(row)} fields instead of {len(names)} (fields are separated by "
                f"{_called(separator)}): correct it."
            )
    columns = tuple(column_of(cells, decimal_comma=separator != ",") for cells in zip(*body))
    return Table(str(file), names, columns, heading, np.array(lines, np.int64))


def _text(file: Path) -> str:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise BadInput(f"{file} cannot be read ({error.strerror}): check the path.") from None
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", errors="replace")
    if b"\0" in content[:4096]:
        raise BadInput(f"{file} is not a text file: export it as .csv, or give .parquet or .npz.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace")  # Latin-1, as Windows writes it


def _separator(text: str) -> str:
    """The one that cuts the first rows into the same number of fields, and into the most of them."""
    start = text.splitlines()[: _LOOKED_AT + 1]
    best, most = ",", (0.0, 0)
    for separator in SEPARATORS:
        counts = [len(row) for row in csv.reader(start, delimiter=separator, skipinitialspace=True) if row]
        usual = max(set(counts), key=counts.count) if counts else 0
        if usual < 2:
            continue
        agreeing = counts.count(usual) / len(counts)
        if agreeing >= 0.5 and (agreeing > most[0] + 0.25 or (agreeing > most[0] - 0.25 and usual > most[1])):
            if separator in " :" and most[0] > 0:
                continue  # blanks and colons also stand inside cells
            best, most = separator, (agreeing, usual)
    return best


def _has_heading(rows: list[list[str]]) -> bool:
    """No field of the first row is a number; or a name stands above a column of numbers."""
    first = [cell.strip() for cell in rows[0]]
    if not any(is_number(cell) for cell in first):
        return True
    for k, cell in enumerate(first):
        below = [row[k].strip() for row in rows[1:] if k < len(row) and row[k].strip()]
        if cell and not is_number(cell) and below and all(is_number(other) for other in below):
            return True
    return False


def _names(file: Path, row: list[str]) -> tuple[str, ...]:
    names = tuple(cell.strip() for cell in row)
    if "" in names:
        raise BadInput(
            f"column {names.index('') + 1} of {file} has no name: name it in the heading, or leave the column out "
            "(pandas: to_csv(index=False))."
        )
    return names


def _called(separator: str) -> str:
    return {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "blanks", ":": "colons"}[separator]
