"""The examples run, and do what they say."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from sordino.privacy import accounting, events
from sordino.privacy.filter import GdpFilter, RdpFilter
from sordino.privacy.ledger import Ledger

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


@pytest.mark.parametrize("budget", [GdpFilter(1.0, 1e-6, "zero-out"), RdpFilter(1.0, 1e-6, 24.0, "zero-out")])
def test_adaptive_release(tmp_path, budget):
    """Questions chosen by answers find the range, and all that was granted together stays within the budget."""
    x = np.random.Generator(np.random.PCG64(0)).normal(41, 12, 5000)
    path = tmp_path / "ledger.jsonl"
    low, high, questions = runpy.run_path(str(EXAMPLES / "adaptive_release.py"))["main"](x, budget, path)
    assert questions >= 5 and 0 <= low < high < 90
    granted = [events.gaussian(grant.event.noise_multiplier) for grant in Ledger.read(path)]
    assert len(granted) == questions
    assert accounting.epsilon(events.composed(granted), 1e-6, "zero-out").epsilon <= 1.0
