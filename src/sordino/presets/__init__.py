"""Presets: the setting of every experiment of the four papers, one plan file each, by name.

    sordino train --preset adact-cifar10 --epsilon 8
    sordino plan --preset acn-mnist

Each file says in its comments where in the paper the numbers stand, and what the paper leaves open.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sordino.errors import BadInput

FOLDER = Path(__file__).parent


def names() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.toml"))


def read(name: str) -> dict[str, Any]:
    """The settings of a preset; options given besides override them."""
    import tomllib

    if name not in names():
        raise BadInput(f"there is no preset {name!r}; choose one of {', '.join(names())}.")
    return tomllib.loads((FOLDER / f"{name}.toml").read_text())
