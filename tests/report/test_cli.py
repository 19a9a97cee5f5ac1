"""``sordino report``."""

from __future__ import annotations

import json
import subprocess
import sys

from sordino.cli.main import main

from .conftest import STATEMENT, rounds


def test_json_is_one_object(make, tmp_path, capsys):
    folder, out = make(metrics=rounds(20)), tmp_path / "page.html"
    assert main(["report", str(folder), "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "run": str(folder),
        "report": str(out),
        "verdict": "proven",
        "epsilon": 3.98712,
        "delta": 1e-5,
        "reasons": [],
        "rounds": 20,
    }
    assert "Proven: epsilon 3.988" in out.read_text() and not (folder / "report.html").exists()


def test_not_private_is_infinite_and_unknown_is_null(make, capsys):
    bad, unknown = make(statement=STATEMENT | {"epsilon": "inf", "reasons": ["r"]}), make(statement=None, name="b")
    for folder, epsilon, verdict in ((bad, "inf", "not private"), (unknown, None, "not established")):
        assert main(["report", str(folder), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["epsilon"], told["verdict"]) == (epsilon, verdict)


def test_plain_output_names_verdict_and_file(make, capsys):
    folder = make()
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out == f"Proven: epsilon 3.988, delta 1e-5\n{folder / 'report.html'}\n"


def test_refusal_is_one_sentence_and_exit_code_2(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "plan.toml" in said.err


def test_no_heavy_imports(make):
    heavy = "torch dp_accounting sklearn rich"
    code = "import sys; from sordino.cli.main import main; main(sys.argv[1:]); "
    code += f"print(*(set(sys.modules) & set({heavy.split()!r})))"
    command = [sys.executable, "-c", code, "report", str(make())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""
