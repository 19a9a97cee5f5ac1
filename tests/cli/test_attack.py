"""``sordino attack`` and ``sordino attacks``."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sordino.attacks.table import TABLE
from sordino.cli.main import main

KEYS = {"attack", "auc", "auc_ci", "tpr_at_1pct", "tpr_at_0.1pct", "asr", "auc_ceiling"}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    """A short private run on the embedded digits."""
    out = str(tmp_path_factory.mktemp("runs") / "digits")
    words = [
        "train",
        "--out",
        out,
        "--recipe",
        "none",
        "--rounds",
        "6",
        "--clients",
        "4",
        "--engine",
        "in-process",
        "--quiet",
    ]
    assert main(words) == 0
    return out


def test_attacks_prints_the_agreed_shape(capsys):
    assert main(["attacks", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["attacks"] and [row["name"] for row in told["attacks"]] == [e.name for e in TABLE]
    assert all(set(row) == {"name", "kind", "paper", "knows"} and all(row.values()) for row in told["attacks"])
    named = {row["name"] for row in told["attacks"]}
    assert {"rf", "gb", "dt", "basic", "cs", "ml-leaks", "white-box", "shadow-lr", "quantile", "lira", "rmia"} <= named


def test_attacks_prints_every_name_and_paper(capsys):
    assert main(["attacks"]) == 0
    text = capsys.readouterr().out
    words = " ".join(text.split())
    assert all(e.name in text and e.paper in words for e in TABLE) and max(map(len, text.splitlines())) <= 120


def test_attack_prints_one_object_and_keeps_it(run, capsys):
    words = ["attack", run, "--attack", "rf,gb,rmia", "--references", "2", "--workers", "2", "--json"]
    assert main(words) == 0
    told = capsys.readouterr()
    table = json.loads(told.out)
    assert told.err == "" and [row["attack"] for row in table["results"]] == ["rf", "gb", "rmia"]
    for row in table["results"]:
        assert set(row) >= KEYS and 0 <= row["auc_ci"][0] <= row["auc"] <= row["auc_ci"][1] <= 1
        assert row["auc_ceiling"] < 0.983 and row["within_ceiling"] and row["control_auc"] is not None
    assert "information about the defence" in table["verdict"] or "tells about the defence" in table["verdict"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["results"] == table["results"]  # kept


def test_attack_prints_a_table_for_people(run, capsys):
    assert main(["attack", run, "--attack", "basic", "--control", "none"]) == 0
    told = capsys.readouterr()
    assert "Attacked: example.  Protected: example (epsilon 4 is proven" in told.out and "basic" in told.out
    assert (
        "carries no information about the defence" in told.out
        and "Judged records (members + others): " in told.out
        and told.err == ""
    )
    assert max(map(len, told.out.splitlines()[:6])) <= 120


def test_inversion_prints_lines_of_its_own_and_keeps_them(run, capsys):
    words = ["attack", run, "--attack", "dlg,ig,gi", "--images", "1", "--steps", "5", "--json"]
    assert main(words) == 0
    told = capsys.readouterr()
    table = json.loads(told.out)
    assert told.err == "" and [row["attack"] for row in table["results"]] == ["dlg", "dlg", "ig", "ig", "gi", "gi"]
    keys = {
        "kind",
        "attack",
        "model",
        "batch",
        "mse",
        "psnr",
        "ssim",
        "control_ssim",
        "informative",
        "pictures",
        "notes",
    }
    assert all(set(row) >= keys | {"reconstruction_bound", "prior_chance"} for row in table["results"])
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["results"] == table["results"]


def test_both_kinds_in_one_object_and_what_is_refused_below(run, capsys):
    words = ["attack", run, "--attack", "rf,dlg,ked-mi", "--control", "none", "--images", "1", "--steps", "3"]
    assert main([*words, "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert [row["attack"] for row in table["results"]] == ["rf", "dlg", "dlg"]
    assert [one["attack"] for one in table["refused"]] == ["ked-mi"] and "16 pixels" in table["refused"][0]["why"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "SSIM" in text and "ked-mi was not possible" in text and "No undefended control was attacked" in text
    assert max(map(len, [line for line in text.splitlines() if line.startswith(("dlg", "attack", "rf"))])) <= 120


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["RUN", "--attack", "dlg", "--batch", "0"], "batch must be a whole number of at least 1"),
        (["RUN", "--attack", "ig", "--batch", "100000"], "ask for a smaller --batch"),
        (["RUN", "--attack", "ked-mi", "--public", "mnist"], "16 pixels"),
        (["nowhere"], "nowhere is not a run folder"),
        (["RUN", "--attack", "nope"], "attack 'nope' is not known; choose among rf,"),
        (["RUN", "--records", "few"], "--records must be a number, not 'few'"),
        (["RUN", "--own", "2"], "own must lie between 0 and 1"),
        (["RUN", "--control", "nowhere"], "nowhere is not a run folder"),
    ],
)
def test_mistakes_are_one_sentence(words, sentence, run, capsys):
    assert main(["attack", *(run if w == "RUN" else w for w in words), "--json"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and sentence in told.err and len(told.err.strip().splitlines()) == 1


def test_nothing_heavy_is_imported_for_the_table():
    code = (
        "import sys, sordino.cli.attacks, sordino.cli.attack; "
        "print([m for m in ('torch', 'scipy', 'dp_accounting', 'sklearn', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
