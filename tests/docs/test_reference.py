"""The page of public names is made from docstrings, and is up to date."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("torch")

import sordino  # noqa: E402

SCRIPT = Path(__file__).parents[2] / "docs" / "reference.py"


def test_the_page_is_what_the_docstrings_say():
    spec = importlib.util.spec_from_file_location("reference", SCRIPT)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.PAGE.read_text() == made.page(), "run python docs/reference.py"


def test_every_public_name_says_what_it_is():
    for name in sordino.__all__:
        if not name.startswith("_"):
            assert (getattr(sordino, name).__doc__ or "").strip(), name
