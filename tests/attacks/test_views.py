"""Whole runs of several kinds under attack: what is seen of them, what is refused, and what the table says about it."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

from attacks.by_heart import CLIENTS, SPEED, make, plan, population, private_plan
from sordino import BadInput, EngineOptions, Federation, Plan, train
from sordino.attacks import metrics
from sordino.attacks.game import Game
from sordino.attacks.protocol import Protocol
from sordino.attacks.runs import Settings, attack_run
from sordino.attacks.table import entry
from sordino.cli.attack import text

OURS = {"make": make, "federation": population()}
ALONE = Settings(references=2, control="none", workers=1)
SHORT = {"rounds": 4, "local_epochs": 1}


@pytest.fixture(autouse=True)
def short_lessons(monkeypatch):
    """What is asked here is whether an attack can be played, not how far it gets."""
    from sordino.attacks.membership import white_box

    monkeypatch.setattr(white_box, "LESSON", replace(white_box.LESSON, epochs=2))


def ran(tmp_path, p: Plan, keep: int = 0):
    speed = EngineOptions("in-process", checkpoint_every=1000, evaluate_every=1000, keep_models=keep) if keep else SPEED
    train(make(p.seed), population(), p, out=tmp_path / "run", options=speed)
    return tmp_path / "run"


def lines(table) -> dict[str, dict]:
    return {line["attack"]: line for line in table["results"]}


@pytest.mark.parametrize("keep", [0, 1])
def test_fedmap_is_attacked_by_what_it_released(tmp_path, keep):
    p = Plan(
        data="by-heart", clients=CLIENTS, method="fedmap", epsilon=20.0, rounds=3, batch_size=10, model="own",
        observer="server",
    )  # fmt: skip
    table = attack_run(ran(tmp_path, p, keep), ["basic", "cs", "white-box", "rmia", "cs-server"], ALONE, **OURS)
    assert set(lines(table)) == {"basic", "cs", "white-box", "rmia"}
    assert all(0 < line["auc_ceiling"] <= 1 and line["within_ceiling"] for line in table["results"])
    (refused,) = table["refused"]
    assert refused["attack"] == "cs-server" and "method fedmap; attack what it released" in refused["why"]


def test_what_cannot_be_seen_of_a_run_with_secure_noise_is_refused_in_a_sentence(tmp_path):
    run = ran(tmp_path, private_plan(rounds=3, secure=True, observer="server", batch_size=10))
    table = attack_run(run, ["basic", "cs", "white-box-server", "white-box-active"], ALONE, **OURS)
    why = {one["attack"]: one["why"] for one in table["refused"]}
    assert list(lines(table)) == ["basic"] and set(why) == {"cs", "white-box-server", "white-box-active"}
    assert "kept no models of its rounds" in why["cs"] and "--keep-models" in why["cs"]
    assert "secure source, so it cannot be replayed" in why["white-box-server"]
    assert f"cs was not possible: {why['cs']}" in text(table)
    with pytest.raises(BadInput, match="kept no models of its rounds"):
        attack_run(run, ["cs"], ALONE, **OURS)


def test_models_that_a_run_with_secure_noise_kept_are_enough(tmp_path):
    run = ran(tmp_path, private_plan(rounds=3, secure=True), keep=1)
    table = attack_run(run, ["cs", "white-box", "cs-server"], ALONE, **OURS)
    assert not table["refused"] and set(lines(table)) == {"cs", "white-box", "cs-server"}
    assert any("sums only" in note for note in lines(table)["cs-server"]["notes"])


def test_a_run_with_canaries_is_attacked_as_it_was(tmp_path):
    """The honest replay has the canaries too, or it would end in another model; the attacker's own models have none."""
    p = plan(**SHORT, method="dp-fedavg", variant="certified", multiplier=1.0, canaries=10)
    table = attack_run(ran(tmp_path, p), ["basic", "cs", "white-box-server", "rmia"], ALONE, **OURS)
    assert not table["refused"] and set(lines(table)) == {"basic", "cs", "white-box-server", "rmia"}


def test_a_calibrated_rule_is_replayed_with_an_attacker_who_listens(tmp_path):
    p = plan(**SHORT, method="quantile", variant="certified", epsilon=20.0, observer="server")
    table = attack_run(ran(tmp_path, p), ["cs-server", "white-box-active"], ALONE, **OURS)
    assert not table["refused"] and len(table["results"]) == 2
    assert all(line["within_ceiling"] for line in table["results"])


def test_the_unit_attacked_stands_beside_the_unit_protected(tmp_path):
    p = plan(**SHORT, method="dp-fedavg", variant="certified", epsilon=1.0)
    table = attack_run(ran(tmp_path, p), ["basic"], ALONE, **OURS)
    assert (table["unit_attacked"], table["unit_protected"]) == ("example", "client")
    assert (lines(table)["basic"]["unit_attacked"], lines(table)["basic"]["unit_protected"]) == ("example", "client")
    assert "Attacked: example.  Protected: client (epsilon 1 is proven" in text(table)
    assert any("clients are protected" in note for note in lines(table)["basic"]["notes"])


def test_a_table_whose_control_fails_says_that_it_carries_no_information(guarded, tmp_path):
    weak = ran(tmp_path, plan(rounds=1, local_epochs=1, lr=1e-6, optimizer="sgd"))  # has learnt nothing
    shutil.copytree(guarded, tmp_path / "private", ignore=shutil.ignore_patterns("attack", "attack.json"))
    table = attack_run(tmp_path / "private", ["basic-common"], Settings(control=str(weak)), **OURS)
    assert lines(table)["basic-common"]["informative"] is False
    assert "carries no information about the defence" in table["verdict"] and table["verdict"] in text(table)


@pytest.mark.parametrize("name", ["lira", "lira-offline", "rmia", "rf"])
def test_what_the_table_says_agrees_with_scikit_learn_on_the_recorded_scores(name, target):
    from sklearn.metrics import roc_auc_score, roc_curve

    attack = entry(name).build(**({} if name == "rf" else {"models": 4}))
    guess = attack.guess(Game(target, attack.reach))
    members = target.cast.member[target.cast.judged]
    false, true, _ = roc_curve(members, guess.scores, drop_intermediate=False)
    assert abs(metrics.auc(guess.scores, members) - roc_auc_score(members, guess.scores)) < 1e-9
    for rate in metrics.RATES.values():
        assert abs(metrics.found_at(guess.scores, members, rate).rate - true[false <= rate].max()) < 1e-9


@pytest.mark.parametrize(
    "settings",
    [{"references": 1}, {"references": 0}, {"shadows": 0}, {"workers": -1}],
)
def test_numbers_that_cannot_be_are_refused(settings):
    with pytest.raises(BadInput, match="must be a whole number of at least"):
        Settings(**settings)


def test_labels_that_hardly_occur_and_few_records_are_still_attacked(tmp_path):
    """All labels but one are the same; there are more members than non-members."""
    rng = np.random.Generator(np.random.PCG64(0))
    x, test = rng.normal(size=(90, 30)).astype(np.float32), rng.normal(size=(100, 30)).astype(np.float32)
    labels = (np.arange(90) == 0).astype(np.int64)
    parts = list(zip(np.array_split(x, CLIENTS), np.array_split(labels, CLIENTS)))
    few = Federation.from_arrays(parts, test=(test, np.zeros(100, np.int64)), classes=4, name="by-heart")
    train(make(0), few, plan(**SHORT), out=tmp_path / "run", options=SPEED)
    names = ["rf", "gb", "dt", "basic", "cs", "white-box", "ml-leaks", "shadow-lr", "quantile", "lira", "rmia"]
    table = attack_run(tmp_path / "run", names, ALONE, make=make, federation=few)
    assert not table["refused"] and {line["non_members"] for line in table["results"]} == {25}
    with pytest.raises(BadInput, match="knows 1 of 50 members and is judged on 49"):
        attack_run(tmp_path / "run", ["rf"], Settings(Protocol(own=0.02)), make=make, federation=few)
