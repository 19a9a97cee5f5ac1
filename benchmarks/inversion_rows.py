"""The rows of `inversion.py` on disk: one line of JSON each, under its name. Of two rows of one name the later counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from page import DOCS

RESULTS = DOCS / "results" / "inversion.jsonl"
Row = dict[str, Any]


def read(path: Path) -> dict[str, Row]:
    """Rows by their names."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["name"]: row for row in rows}


def add(path: Path, row: Row) -> None:
    """At once, when a row is done: an interruption costs what was not finished."""
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
