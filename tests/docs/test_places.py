"""Places that the source and the pages name in backticks, such as `schemes.round` or `privacy/bounds.py`, exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "sordino"
ROOMS = {folder.name for folder in SOURCE.iterdir() if folder.is_dir()}
PAGES = [*SOURCE.rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
DOTTED = re.compile(r"`(?:sordino\.)?([a-z_]+(?:\.[A-Za-z_]+)+)[`:(]")
SLASHED = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)[`:]")
VARIABLES = {"federation"}  # a room, and what every example calls its population
FILES = {"json", "jsonl", "npz", "py", "toml"}


def missing(page: Path) -> list[str]:
    """What a page names and nobody can find."""
    text = page.read_text()
    dotted = [name.split(".") for name in DOTTED.findall(text)]
    modules = [parts for parts in dotted if parts[0] in ROOMS - VARIABLES and parts[-1] not in FILES]
    gone = [
        ".".join(parts) for parts in modules if not exists(parts) and not says(page.parent / f"{parts[0]}.py", parts[1])
    ]
    return gone + [file for file in SLASHED.findall(text) if not (SOURCE / file).exists() | (ROOT / file).exists()]


def exists(parts: list[str], folder: Path = SOURCE) -> bool:
    """Whether the parts lead to a package, to a module, or to a name that one of them has."""
    first, *rest = parts
    if (folder / first).is_dir():
        return not rest or exists(rest, folder / first)
    if (folder / f"{first}.py").exists():
        return not rest or says(folder / f"{first}.py", rest[0])
    return says(folder / "__init__.py", first)


def says(file: Path, name: str) -> bool:
    return file.exists() and re.search(rf"\b{name}\b", file.read_text()) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_place_that_is_named_exists(page):
    assert missing(page) == []


def test_a_place_that_is_gone_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("See `schemes.round`, `clients.gone`, `sordino.schemes.round.Gone` and `privacy/gone.py`.")
    assert missing(page) == ["clients.gone", "schemes.round.Gone", "privacy/gone.py"]
