"""``sordino metanet pretrain``."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from sordino.cli.main import main  # noqa: E402
from sordino.schemes.fedmap.metanet.net import load  # noqa: E402

QUICK = ["--sequences", "200", "--steps", "2", "--encoder-steps", "2"]


def test_it_writes_controllers_that_can_be_loaded(tmp_path, capsys):
    file = tmp_path / "mine.safetensors"
    assert main(["metanet", "pretrain", "--out", str(file), "--json", *QUICK]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(file) and told["bytes"] == file.stat().st_size < 1_000_000
    assert 150_000 < told["parameters"] < 250_000 and told["trained"] == 642
    assert load("certified", file).personal.shape == (642,) and load("published", file).personal.shape == (450,)


def test_the_same_command_writes_the_same_bytes(tmp_path, capsys):
    files = [tmp_path / name for name in ("one", "two", "other")]
    for file, seed in zip(files, ("3", "3", "4")):
        assert main(["metanet", "pretrain", "--out", str(file), "--seed", seed, *QUICK]) == 0
    one, two, other = (file.read_bytes() for file in files)
    assert one == two != other
    assert "of them trained" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--out", "/no/such/folder/x.safetensors"], "cannot be written"),
        (["--out", "x.safetensors", "--backbone", "/no/such/bert"], "cannot be read"),
        (["--out", "x.safetensors", "--sequences", "0"], "sequences must be"),
        (["--out", "x.safetensors", "--sequences", "1"], "sequences must be a whole number of at least 2"),
    ],
)
def test_mistakes_are_one_sentence(more, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["metanet", "pretrain", *more]) == 2
    told = capsys.readouterr().err.strip()
    assert said in told and "\n" not in told and "Traceback" not in told


def test_the_papers_learning_rate_and_error_can_be_asked_for(tmp_path, capsys):
    """Adam at 1e-4, and the error of (C, sigma) themselves (equation 5)."""
    from safetensors import safe_open

    files = [tmp_path / "ours", tmp_path / "paper"]
    assert main(["metanet", "pretrain", "--out", str(files[0]), *QUICK]) == 0
    assert main(["metanet", "pretrain", "--out", str(files[1]), "--lr", "1e-4", "--plain-error", *QUICK]) == 0
    capsys.readouterr()
    facts = []
    for file in files:
        with safe_open(file, "np") as opened:
            facts.append(json.loads(opened.metadata()["facts"]))
    assert facts[1]["settings"]["lr"] == 1e-4 and facts[1]["settings"]["logarithms"] is False
    assert facts[1]["errors"]["published"] != facts[0]["errors"]["published"]
