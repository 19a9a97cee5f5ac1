"""The table of all attacks: every row runs, and none shows more than is printed. The rows that train often run small."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch")

from redteam.table import ROWS, Line, lines, refused  # noqa: E402

# The others only call what has a test of its own in this folder.
HERE = ["draws", "schedule", "own rule", "two mechanisms", "relation", "small numbers", "statistics", "page", "sizes"]
RUNS = 400 if os.environ.get("SORDINO_SLOW_TESTS") else 8


@pytest.mark.parametrize("name", ROWS if os.environ.get("SORDINO_SLOW_TESTS") else HERE)
def test_no_attack_shows_more_than_is_printed(name, one_thread):
    found = list(lines(RUNS, {name}))
    assert found and all(line.holds for line in found), [line.text() for line in found]


def test_a_line_fails_if_the_attack_wins_or_nothing_is_refused():
    assert not Line("an attack", 1.0, 1.5).holds
    assert not refused("something that must not run", lambda: 0).holds
