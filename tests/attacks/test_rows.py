"""Lines of the table: ceilings by what the proof covers, notes, and what a failed control does."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from attacks.by_heart import plan, population, private_plan
from sordino.attacks.game import Guess
from sordino.attacks.protocol import Protocol, deal
from sordino.attacks.rows import Guarantee, ranked, row, succeeds, with_control
from sordino.attacks.table import TABLE, entry
from sordino.report.attacked import verdict

EXAMPLE = Guarantee(4.0, 1e-5, "example", "add-remove", "secagg-server")


def line(name="rf", guarantee=EXAMPLE, p=None, offset=0.8) -> dict:
    cast = deal(population(), Protocol())
    noise = np.random.Generator(np.random.PCG64(0)).normal(size=len(cast.judged))
    guess = Guess(noise + offset * cast.member[cast.judged], 0.4, notes=("said so",))
    return row(entry(name), guess, cast, guarantee, p or private_plan())


def test_a_line_holds_what_was_promised():
    made = line()
    for key in ("attack", "auc", "auc_ci", "tpr_at_1pct", "tpr_at_0.1pct", "asr", "auc_ceiling"):
        assert key in made
    assert made["members"] == made["non_members"] == 80
    assert made["unit_attacked"] == "example" and made["unit_protected"] == "example" and made["within_ceiling"]
    assert made["auc_ceiling"] == pytest.approx(0.98201, abs=1e-4) and made["tpr_at_1pct_ceiling"] == pytest.approx(
        0.546, abs=1e-3
    )
    for name in ("tpr_at_1pct", "tpr_at_0.1pct", "asr"):
        low, high = made[f"{name}_ci"]
        assert low <= made[name] <= high
    assert made["notes"][0] == "said so" and any(
        "80 non-members were judged, 10000 would do" in n for n in made["notes"]
    )


def test_too_strong_an_attack_is_told():
    strong = line(guarantee=replace(EXAMPLE, epsilon=0.1), offset=3.0)
    assert not strong["within_ceiling"] and strong["auc_ci"][0] > strong["auc_ceiling"]


def test_clients_protected_records_attacked():
    made = line(guarantee=Guarantee(1.0, 1e-5, "client", "zero-out", "public"))
    assert made["unit_protected"] == "client" and made["unit_attacked"] == "example"
    assert made["auc_ceiling"] == pytest.approx(math.exp(2) / (1 + math.exp(2)), abs=1e-4)
    assert any("epsilon counts twice" in note for note in made["notes"])


local = private_plan(observer="server", batch_size=10)
central = plan(method="dp-fedavg", variant="certified", multiplier=1.0)


@pytest.mark.parametrize(
    ("name", "observer", "p", "covered"),
    [
        ("rmia", "public", central, True),
        ("white-box", "public", central, True),
        ("white-box-active", "public", central, True),
        ("white-box-server", "public", central, False),
        ("white-box-active-server", "public", central, False),
        ("white-box-server", "server", local, True),
        ("white-box-active-server", "server", local, True),
        ("white-box-server", "secagg-server", private_plan(), True),
        ("white-box-active-server", "secagg-server", private_plan(), True),
        ("white-box-active-server", "public", private_plan(observer="public"), False),
    ],
)
def test_a_proof_covers_the_observers_that_it_names(name, observer, p, covered):
    made = line(name, Guarantee(1.0, 1e-5, "example", "add-remove", observer), p)
    assert (made["auc_ceiling"] < 1) == covered
    assert any("does not cover this attacker" in note for note in made["notes"]) != covered


def test_sums_are_all_that_a_server_sees_under_secure_aggregation():
    assert any("sums only" in note for note in line("white-box-server")["notes"])
    assert not any("sums only" in note for note in line("white-box-server", p=local)["notes"])


def test_nothing_proven_nothing_limited():
    made = line(guarantee=Guarantee())
    assert made["auc_ceiling"] == made["asr_ceiling"] == made["tpr_at_0.1pct_ceiling"] == 1.0
    assert made["unit_protected"] == "none"


def test_a_control_that_fails_makes_the_line_worthless():
    weak, strong = line(offset=0.0), line("rmia", offset=1.5)
    assert not succeeds(weak) and succeeds(strong)
    rows = [line(), line("rmia")]
    told = with_control(rows, [weak, strong])
    assert [r["informative"] for r in told] == [False, True] and told[0]["control_auc"] == weak["auc"]
    assert verdict(told) == "On the undefended control rf failed: those lines carry no information about the defence."
    assert "carries no information" in verdict(with_control(rows[:1], [weak]))
    assert "Every attack succeeds" in verdict(with_control(rows[1:], [strong]))
    assert "No undefended control" in verdict(with_control(rows, None))
    assert with_control(rows, None)[0]["informative"] is None


def test_a_trace_above_chance_is_no_success():
    assert not succeeds({"auc": 0.52, "auc_ci": [0.51, 0.53]})
    assert not succeeds({"auc": 0.6, "auc_ci": [0.49, 0.7]})
    assert succeeds({"auc": 0.6, "auc_ci": [0.55, 0.65]})


def test_attacks_that_train_models_come_last():
    order = [e.name for e in ranked(TABLE)]
    assert order[0] == "rf" and set(order[-6:]) == {
        "ml-leaks", "shadow-lr", "shadow-lr-unseen", "lira", "lira-offline", "rmia",
    }  # fmt: skip
