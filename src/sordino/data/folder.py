"""A folder as a federation: one ``.npz``, ``.csv``, ``.tsv`` or ``.parquet`` file per client; ``test.*`` is the public test."""

from __future__ import annotations

import re
from pathlib import Path

from sordino.errors import BadInput

SUFFIXES = (".npz", ".csv", ".tsv", ".parquet")  # other text files may lie in a folder for other reasons


def client_files(folder: Path) -> tuple[list[Path], Path | None]:
    """The clients' files in natural order of their names, and the test file if there is one."""
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
    return clients, tests[0] if tests else None


def _natural(name: str) -> list[tuple[int, int, str]]:
    """client2 before client10."""
    return [(0, int(piece), "") if piece.isdigit() else (1, 0, piece) for piece in re.split(r"(\d+)", name) if piece]
