"""The last part of docs/tutorial.md on four hosts with real Flower processes: three clinics, each with a table of its own."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from test_walkthrough import Walk, blocks

from sordino.cli.main import main
from sordino.privacy.ledger import Ledger
from sordino.verify.checking import check

pytest.importorskip("flwr")
pytestmark = pytest.mark.slow  # a minute of processor time; test_holders_tables.py is the small form
PAGE = Path(__file__).parents[3] / "docs" / "tutorial.md"


def test_three_clinics_with_tables_of_their_own(tmp_path, monkeypatch):
    walk = Walk(tmp_path)
    steps = list(blocks(PAGE))
    assert len(steps) == 7, "the page has changed; see that every step is still run"
    monkeypatch.chdir(tmp_path / "admin")
    first = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    exec(compile(first[1], "tutorial.md", "exec"), {})
    told = ["--client-column", "clinic", "--label", "outcome", "--test", "public.csv"]
    assert main(["data", "describe", "visits.csv", *told]) == 0
    shutil.copy("schema.toml", tmp_path / "server" / "schema.toml")
    try:
        for step in steps[:5]:
            walk.do(*step)
        assert "west has no column 'pressure'" in walk.machines.said("server")
        spent = [tmp_path / name / "state" / "allowance.jsonl" for name in ("north", "east", "west")]
        assert not any(file.exists() and file.read_text() for file in spent)  # nobody has paid
        for step in steps[5:]:
            walk.do(*step)
    finally:
        walk.machines.close()
    run = tmp_path / "server" / "run"
    verdict = check(run, tmp_path / "server" / "certs" / "ca.crt")
    assert verdict.ok and any(one.name == "signatures" and one.ok for one in verdict.checks), verdict
    statement, tested = (json.loads((run / name).read_text()) for name in ("statement.json", "held_out.json"))
    assert statement["epsilon"] <= 4.0 and not statement["simulated"] and statement["secure"]
    assert tested["figures"]["tested"] == pytest.approx(300, abs=3) and tested["figures"]["accuracy"] > 0.6
    for name in ("north", "east", "west"):
        (kept,) = (tmp_path / name / "state" / "runs").iterdir()
        assert len(list(Ledger.read(kept / "ledger.jsonl"))) == 5
        assert len(list(Ledger.read(kept / "held_out.jsonl"))) == 1
