"""docs/papers.md stays in step with the code: every place that it names exists, and every line says what it is."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "papers.md"
SOURCE = ROOT / "src" / "sordino"
PLACE = re.compile(r"`([a-z_0-9/-]+\.(?:py|toml))(?:: ([A-Za-z_0-9.]+))?`")
VERDICT = re.compile(r"^(faithful|deviates|missing)")
TABLES = PAGE.read_text().split("## Shakespeare")[0]
ROWS = [line for line in TABLES.splitlines() if line.startswith("| ") and not line.startswith("| element")]


@cache
def defined(file: Path) -> frozenset[str]:
    """Names of classes, functions and assignments, those inside of classes with the class in front."""

    def names(body, before=""):
        for node in body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                yield before + node.name
                if isinstance(node, ast.ClassDef):
                    yield from names(node.body, f"{before}{node.name}.")
            elif isinstance(node, ast.Assign):
                yield from (before + target.id for target in node.targets if isinstance(target, ast.Name))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield before + node.target.id

    return frozenset(names(ast.parse(file.read_text()).body))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_every_place_exists_and_every_line_has_a_verdict(row):
    element, places, verdict = (cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1])
    assert element and VERDICT.match(verdict), verdict
    found = PLACE.findall(places)
    assert found or not places
    assert found or verdict.startswith("missing")
    for path, name in [*found, *PLACE.findall(verdict)]:
        file = SOURCE / path
        assert file.is_file(), f"there is no {path}"
        if name:
            assert name in defined(file), f"{path} has no {name}"


def test_every_preset_and_every_paper_is_on_the_page():
    text = PAGE.read_text()
    for preset in (SOURCE / "presets").glob("*.toml"):
        assert f"presets/{preset.name}" in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## AdaCT-DPFL", "## DP-FedACN", "## FedMAP", "## noise_gamma", "## Shakespeare", "## The presets"
    ]  # fmt: skip
    assert len(ROWS) > 80


def test_the_networks_have_the_sizes_that_the_page_tells():
    from sordino.schemes.fedmap.metanet.net import load

    text = PAGE.read_text()
    for kind in ("published", "certified"):
        assert f"{sum(p.numel() for p in load(kind).parameters()):,}" in text


def test_a_place_that_is_not_there_would_be_noticed():
    with pytest.raises(AssertionError, match="has no Nobody"):
        test_every_place_exists_and_every_line_has_a_verdict("| x | `rules/fixed.py: Nobody` | faithful |")
