"""The examples run, and do what they say."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_hospitals(tmp_path):
    result = runpy.run_path(str(EXAMPLES / "hospitals.py"))["main"](str(tmp_path / "run"))
    assert result.accuracy > 0.7 and result.epsilon <= 2.0


def test_own_rule(tmp_path):
    result = runpy.run_path(str(EXAMPLES / "own_rule.py"))["main"](tmp_path / "run")
    assert [row["bound"] for row in result.metrics][::10] == [1.0, 0.5, 0.25]
    assert result.epsilon <= 4.0 and result.accuracy > 0.7


def test_own_rule_by_name_on_the_command_line(tmp_path, monkeypatch, capsys):
    from sordino.cli.main import main

    monkeypatch.syspath_prepend(str(EXAMPLES))
    settings = [
        "--rounds",
        "2",
        "--option",
        "every=1",
        "--engine",
        "in-process",
        "--out",
        str(tmp_path / "run"),
        "--json",
    ]
    assert main(["train", "--method", "own_rule:HALVING", *settings]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "own_rule:HALVING"
    assert [json.loads(line)["bound"] for line in (tmp_path / "run" / "metrics.jsonl").open()] == [1.0, 0.5]
    assert main(["train", "--method", "own_rule:NOTHING_THERE", "--json"]) == 2
