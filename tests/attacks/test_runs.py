"""Attacking run folders: open and private ones, with and without a control, once and again."""

from __future__ import annotations

import json
import math
import shutil

import pytest

from attacks.by_heart import make, plan, population, private_plan
from sordino import BadInput
from sordino.attacks import runs
from sordino.attacks.protocol import Protocol
from sordino.attacks.runs import Settings, attack_run, control_plan

OURS = {"make": make, "federation": population()}


def copied(run, to) -> None:
    """A run folder as training left it."""
    shutil.copytree(run, to, ignore=shutil.ignore_patterns("attack", "attack.json"))


def test_an_open_run_is_its_own_control(heart, tmp_path):
    copied(heart[0], tmp_path / "run")
    table = attack_run(tmp_path / "run", ["basic", "rf"], Settings(workers=1), **OURS)
    assert table["epsilon"] == "inf" and table["unit_protected"] == "none" and table["control"] is None
    assert [r["attack"] for r in table["results"]] == ["basic", "rf"]
    assert all(r["informative"] and r["control_auc"] == r["auc"] for r in table["results"])
    kept = json.loads((tmp_path / "run" / "attack.json").read_text())
    assert kept["results"] == table["results"]
    assert "basic" in (tmp_path / "run" / "report.html").read_text()


def test_lines_are_kept_until_something_changes(heart, tmp_path, monkeypatch):
    copied(heart[0], tmp_path / "run")
    first = attack_run(tmp_path / "run", ["basic", "rmia"], Settings(references=2, workers=2), **OURS)
    assert len(list((tmp_path / "run" / "attack").glob("reference-*/*.safetensors"))) == 2
    monkeypatch.setattr(runs, "play", lambda *_, **__: pytest.fail("played again"))
    again = attack_run(tmp_path / "run", ["basic", "rmia"], Settings(references=2), **OURS)
    assert again["results"] == first["results"]
    monkeypatch.undo()
    real, asked = runs.play, []

    def counted(target, one, *rest, **more):
        asked.append(one.name)
        return real(target, one, *rest, **more)

    monkeypatch.setattr(runs, "play", counted)
    attack_run(tmp_path / "run", ["basic"], Settings(fresh=True), **OURS)
    attack_run(tmp_path / "run", ["basic", "rmia"], Settings(protocol=Protocol(records=60), references=2), **OURS)
    assert asked == ["basic", "basic", "rmia"]
    kept = json.loads((tmp_path / "run" / "attack.json").read_text())["results"]
    assert [r["attack"] for r in kept] == ["basic", "rmia"]


def test_lines_of_other_attacks_stay_in_the_table(heart, tmp_path):
    copied(heart[0], tmp_path / "run")
    attack_run(tmp_path / "run", ["basic"], **OURS)
    attack_run(tmp_path / "run", ["basic-common"], **OURS)
    kept = json.loads((tmp_path / "run" / "attack.json").read_text())["results"]
    assert [r["attack"] for r in kept] == ["basic-common", "basic"]


def test_a_private_run_stands_beside_an_undefended_control(guarded, tmp_path):
    copied(guarded, tmp_path / "run")
    told = []
    say = lambda what, done, total: told.append(what)  # noqa: E731
    table = attack_run(tmp_path / "run", ["basic-common", "rf-label"], Settings(workers=1), say=say, **OURS)
    assert 3.9 < table["epsilon"] <= 4.0 and table["unit_protected"] == "example"
    for r in table["results"]:
        assert 0.98 < r["auc_ceiling"] < 0.983 and r["within_ceiling"] and r["auc_ci"][0] < 0.55
        assert r["control_auc"] is not None
    control = json.loads((tmp_path / "run" / "attack" / "control" / "statement.json").read_text())
    assert control["epsilon"] == "inf" and {"attacks", "control", "control: attacks"} <= set(told)
    told.clear()
    attack_run(tmp_path / "run", ["basic-common"], Settings(workers=1), say=say, **OURS)
    assert "control" not in told  # trained once


def test_another_run_may_be_the_control(guarded, heart, tmp_path):
    copied(guarded, tmp_path / "run")
    copied(heart[0], tmp_path / "open")
    table = attack_run(tmp_path / "run", ["basic-common"], Settings(control=str(tmp_path / "open")), **OURS)
    assert table["results"][0]["informative"] is True and "Every attack succeeds" in table["verdict"]
    with pytest.raises(BadInput, match="is private itself"):
        attack_run(tmp_path / "run", ["basic-common"], Settings(control=str(tmp_path / "run")), **OURS)
    none = attack_run(tmp_path / "run", ["basic-common"], Settings(control="none"), **OURS)
    assert none["control"] is None and "No undefended control" in none["verdict"]


def test_the_control_passes_over_the_data_as_often():
    pooled = private_plan(rounds=20, batch_size=40)
    bare = control_plan(pooled, examples=160)
    assert (
        bare.method == "fedavg"
        and not bare.private
        and bare.rounds == math.ceil(20 * 40 / 160)
        and bare.local_epochs == 1
    )
    whole = plan(
        method="dp-fedavg", variant="certified", multiplier=1.0, rounds=9, local_epochs=3, cohort=2, sampling="poisson"
    )
    bare = control_plan(whole, examples=160)
    assert (bare.rounds, bare.local_epochs, bare.cohort, bare.lr, bare.private) == (9, 3, 2, whole.lr, False)


def test_folders_that_hold_no_finished_run_are_refused(heart, tmp_path):
    with pytest.raises(BadInput, match="not a run folder"):
        attack_run(tmp_path, ["rf"])
    copied(heart[0], tmp_path / "run")
    (tmp_path / "run" / "statement.json").unlink()
    with pytest.raises(BadInput, match="has not ended; finish it with sordino train --resume"):
        attack_run(tmp_path / "run", ["rf"], **OURS)


def test_weights_of_another_model_are_refused(heart, tmp_path):
    import torch

    copied(heart[0], tmp_path / "run")
    with pytest.raises(BadInput, match="does not fit the model of the plan"):
        attack_run(tmp_path / "run", ["rf"], make=lambda seed: torch.nn.Linear(30, 4), federation=OURS["federation"])
