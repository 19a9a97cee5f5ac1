"""The quickstart is run as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_own_model_and_data_in_twenty_lines(tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "quickstart.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(code, "quickstart.md", "exec"), names)
    assert names["result"].accuracy > 0.8
    assert names["result"].epsilon <= 2.0
    assert "PROVEN: epsilon 2" in capsys.readouterr().out
    assert (tmp_path / "run" / "report.html").exists()
