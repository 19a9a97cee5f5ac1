"""``sordino verify``."""

from __future__ import annotations

import json

import pytest

from sordino.cli.main import main
from sordino.verify import manifest


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "digits"
    words = ["train", "--out", str(out), "--rounds", "4", "--clients", "4", "--engine", "in-process", "--quiet"]
    assert main(words) == 0
    manifest.write(out)
    return out


def test_json_is_one_object_of_the_agreed_shape(run, capsys):
    assert main(["verify", str(run), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["run", "ok", "checks", "epsilon_printed", "epsilon_recomputed", "accountant"]
    assert told["ok"] is True and told["accountant"] == "pld" and told["run"] == str(run)
    assert all(set(one) == {"name", "ok", "said"} and one["ok"] is True for one in told["checks"])
    assert told["epsilon_recomputed"] == pytest.approx(told["epsilon_printed"], rel=1e-3)


def test_a_table_for_people(run, capsys):
    assert main(["verify", str(run)]) == 0
    out = capsys.readouterr().out
    assert "Verified: epsilon " in out and max(map(len, out.splitlines())) <= 100
    assert all(name in out for name in ("ledger", "plan digest", "model.safetensors", "promise", "rounds", "epsilon"))


def test_something_that_does_not_agree_is_exit_code_4(run, tmp_path, capsys):
    text = (run / "statement.txt").read_text()
    (run / "statement.txt").write_text(text + "And more.\n")
    try:
        assert main(["verify", str(run)]) == 4
        out = capsys.readouterr().out
        assert "FAILED" in out and "Not verified: statement.txt was changed after training" in out
        assert main(["verify", str(run), "--json"]) == 4
        assert json.loads(capsys.readouterr().out)["ok"] is False
    finally:
        (run / "statement.txt").write_text(text)


def test_no_run_is_one_sentence_and_exit_code_2(tmp_path, capsys):
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert main(["verify", str(folder), "--json"]) == 2
        told = capsys.readouterr()
        assert told.out == "" and told.err.count("\n") == 1
