"""The tutorial is run as it is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from sordino.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


def test_from_a_csv_to_a_model_in_use(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    said: dict[str, tuple[int, str]] = {}
    here = PAGE.read_text().partition("## With data holders")[
        0
    ]  # the rest: tests/engines/flower/test_tables_walkthrough.py
    for kind, block in re.findall(r"```(python|sh)\n(.*?)```", here, re.S):
        if kind == "python":
            exec(compile(block, "tutorial.md", "exec"), names)
            continue
        for line in block.strip().splitlines():
            words = shlex.split(line)
            code = main(words[1:])
            said[" ".join(words[1:3])] = (code, capsys.readouterr().out)
    code, seen = said["data check"]
    assert code == 2 and "Clients    6" in seen and "column 'pressure', is empty" in seen and "unlike scales" in seen
    assert 'missing = "fill"' in (tmp_path / "schema.toml").read_text()
    assert said["train --data"][0] == 0 and "PROVEN: epsilon 4" in said["train --data"][1]
    assert "1 run, epsilon 4" in said["train --data"][1] and "The limit is epsilon 10" in said["train --data"][1]
    assert said["verify run"][0] == 0 and "Verified" in said["verify run"][1]
    assert said["predict run"][1].splitlines()[0] == "prediction,ill,well"
    assert names["found"].labels == ("ill", "well")
    assert "## Guarantee" in (tmp_path / "card.md").read_text()
    accuracy = float(re.search(r"Accuracy +([\d.]+)%", said["train --data"][1])[1])
    guess = float(re.search(r"A guess +([\d.]+)%", said["train --data"][1])[1])
    assert accuracy > guess + 10
