"""``sordino audit`` and ``sordino conformance``: what they print, and how they end."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from sordino.cli.main import main  # noqa: E402


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit") / "run"
    words = "train --method dp-fedavg --unit client --observer public --sampling none --rounds 3 --canaries 80 --multiplier 0.8"
    assert main([*words.split(), "--quiet", "--engine", "in-process", "--out", str(folder)]) == 0
    return folder


def printed(capsys):
    out = capsys.readouterr().out
    return json.loads(out)


def test_json(run, capsys):
    capsys.readouterr()
    assert main(["audit", str(run), "--json"]) == 0
    found = printed(capsys)
    assert {"epsilon_lower", "confidence", "epsilon_proven", "epsilon_claimed", "largest_provable"} <= set(found)
    assert 0 <= found["epsilon_lower"] < found["epsilon_proven"] and found["canaries"] == 80
    assert found["epsilon_claimed"] is None and found["confidence"] == 0.95
    assert {k: v for k, v in found.items() if k != "run"} == json.loads((run / "audit.json").read_text())
    assert (run / "report.html").exists()


def test_page_and_confidence(run, capsys):
    assert main(["audit", str(run), "--confidence", "0.8"]) == 0
    page = capsys.readouterr().out
    assert "Measured   epsilon of at least" in page and "80% confidence" in page and "Estimate" in page
    assert json.loads((run / "audit.json").read_text())["confidence"] == 0.8


def test_a_bound_above_the_proven_epsilon_is_exit_code_4(run, capsys):
    statement = run / "statement.json"
    before = statement.read_text()
    try:
        statement.write_text(json.dumps(json.loads(before) | {"epsilon": 1e-9}))
        capsys.readouterr()
        assert main(["audit", str(run), "--json"]) == 4
        told = capsys.readouterr()
        assert json.loads(told.out)["contradicted"] and "do not release this model" in told.err
        assert "Contradicted" in (run / "report.html").read_text()
    finally:
        statement.write_text(before)


@pytest.mark.parametrize(
    ("break_it", "sentence"),
    [
        (lambda run, folder: folder.mkdir(), "not a run folder"),
        (lambda run, folder: (folder.mkdir(), (folder / "plan.toml").write_text("")), "--canaries N"),
        (
            lambda run, folder: (
                folder.mkdir(),
                (folder / "plan.toml").write_text(""),
                (folder / "canaries.json").write_text("{}"),
            ),
            "not finished",
        ),
    ],
)
def test_a_folder_that_cannot_be_audited(run, break_it, sentence, tmp_path, capsys):
    break_it(run, tmp_path / "other")
    assert main(["audit", str(tmp_path / "other")]) == 2
    assert sentence in capsys.readouterr().err


def test_a_bad_confidence_is_one_sentence(run, capsys):
    assert main(["audit", str(run), "--confidence", "1.5"]) == 2
    assert "confidence must lie between 0 and 1" in capsys.readouterr().err


def test_conformance_tells_what_fails(monkeypatch, capsys):
    from sordino.audit import conformance

    row = conformance.Row("mutation", "a bug", 2.0, None, 1.0, 0.95, 0.1, 10, "sum", False)
    held = conformance.Row("certified", "a case", 2.0, None, 1.0, 0.95, 0.1, 10, "sum", True)
    for rows, code in (([held], 0), ([held, row], 4)):
        found = conformance.summary(rows) | {"seconds": 1.0}
        monkeypatch.setattr(conformance, "conformance", lambda *_, found=found: found)
        assert main(["conformance", "--small", "--json"]) == code
        told = printed(capsys)
        assert told["methods_failed"] == [] and told["mutations"] - told["mutations_caught"] == len(rows) - 1
        assert {"methods_checked", "methods_failed", "mutations", "mutations_caught", "rows"} <= set(told)
        assert main(["conformance", "--small"]) == code
        assert ("MISSED" in capsys.readouterr().out) == (code == 4)
