"""The examples run, and do what they say."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_hospitals(tmp_path):
    result = runpy.run_path(str(EXAMPLES / "hospitals.py"))["main"](str(tmp_path / "run"))
    assert result.accuracy > 0.7 and result.epsilon <= 2.0


def test_own_rule():
    assert runpy.run_path(str(EXAMPLES / "own_rule.py"))["main"]()[::10] == [1.0, 0.5, 0.25]
