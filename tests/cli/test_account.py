"""``sordino account``: three questions, one JSON object, one sentence when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from sordino.cli.main import main
from sordino.privacy import accounting, calibration, events
from sordino.privacy.vocabulary import Relation, Sampling


def ask(capsys, line: str) -> dict:
    assert main(["account", *line.split(), "--json"]) == 0
    out, err = capsys.readouterr()
    assert not err and out.count("\n") == 1
    return json.loads(out)


def test_epsilon(capsys):
    answer = ask(capsys, "--rate 0.1 --rounds 200 --multiplier 1.4 --delta 1e-5")
    event = events.repeated(events.poisson(0.1, events.gaussian(1.4)), 200)
    spent = accounting.epsilon(event, 1e-5)
    assert answer["epsilon"] == spent.epsilon and answer["epsilon_rdp"] == spent.epsilon_rdp
    assert answer["epsilon"] < answer["epsilon_rdp"]
    expected = {"accountant": "pld", "relation": "add-remove", "unit": "client", "delta": 1e-5, "multiplier": 1.4}
    expected |= {"rounds": 200, "rate": 0.1, "sampling": "poisson"}
    assert {key: answer[key] for key in expected} == expected


def test_multiplier(capsys):
    answer = ask(capsys, "--rounds 30 --epsilon 4 --delta 1e-5")
    assert answer["multiplier"] == calibration.multiplier_for(4.0, 1e-5, 30) == pytest.approx(5.92, abs=0.005)
    assert (
        answer["epsilon"] <= 4.0 == answer["budget"]
        and answer["accountant"] == "gdp"
        and answer["asked"] == "multiplier"
    )


def test_rounds(capsys):
    answer = ask(capsys, "--rate 0.1 --multiplier 1.4 --epsilon 4")
    assert answer["rounds"] == calibration.rounds_for(4.0, 1e-5, 1.4, 0.1) and answer["epsilon"] <= 4.0
    assert ask(capsys, "--multiplier 0.5 --epsilon 0.1")["rounds"] == 0


def test_fixed_size_samples(capsys):
    by_count = ask(capsys, "--sampling fixed --clients 100 --cohort 10 --rounds 50 --multiplier 2 --delta 1e-5")
    by_rate = ask(capsys, "--sampling fixed --rate 0.1 --rounds 50 --multiplier 2 --delta 1e-5")
    for answer in (by_count, by_rate):
        assert answer["epsilon"] == pytest.approx(9.43, abs=0.005)
        assert (answer["relation"], answer["accountant"], answer["rate"]) == ("replace-one", "rdp", 0.1)


def test_clients_and_cohort_make_a_rate(capsys):
    answer = ask(capsys, "--clients 1000 --cohort 100 --rounds 50 --multiplier 2")
    assert answer["rate"] == 0.1 and answer["epsilon"] == pytest.approx(1.65, abs=0.005)


def test_none_relations_units_and_laplace(capsys):
    assert ask(capsys, "--sampling none --rounds 5 --multiplier 2 --relation replace-one")["epsilon"] == pytest.approx(
        11.48, abs=0.005
    )
    answer = ask(capsys, "--rate 0.1 --rounds 50 --multiplier 2 --laplace --unit example --relation zero-out")
    event = events.repeated(events.poisson(0.1, events.laplace(2.0)), 50)
    assert answer["epsilon"] == accounting.epsilon(event, 1e-5, Relation.ZERO_OUT).epsilon
    assert (answer["unit"], answer["mechanism"], answer["relation"]) == ("example", "laplace", "zero-out")


@pytest.mark.parametrize("form", ["list", "runs", "file", "json"])
def test_schedules(capsys, tmp_path, form):
    text = {"list": "2,2,2,1.5,1.5", "runs": "2*3,1.5*2", "file": "2\n2 2\n1.5, 1.5\n", "json": "[2, 2, 2, 1.5, 1.5]"}[
        form
    ]
    if form in ("file", "json"):
        (tmp_path / "schedule.txt").write_text(text)
        text = str(tmp_path / "schedule.txt")
    answer = ask(capsys, f"--rate 0.1 --schedule {text}")
    rounds = [accounting.round_event(Sampling.POISSON, 0.1, z) for z in (2.0, 2.0, 2.0, 1.5, 1.5)]
    assert answer["epsilon"] == accounting.epsilon(events.composed(rounds), 1e-5).epsilon
    assert answer["rounds"] == 5 and answer["schedule"] == [2, 2, 2, 1.5, 1.5] and answer["multiplier"] is None


def test_a_schedule_is_scaled_to_a_budget(capsys):
    answer = ask(capsys, "--rate 0.1 --schedule 2*30,1.5*30 --epsilon 1")
    assert 0.999 < answer["epsilon"] <= 1.0 and answer["asked"] == "scale"
    assert answer["schedule"][0] == pytest.approx(2 * answer["scale"])


def test_check_asks_the_library(capsys):
    answer = ask(capsys, "--rate 0.1 --rounds 20 --multiplier 1.4 --check")
    assert answer["epsilon_library"] <= answer["epsilon"] == pytest.approx(answer["epsilon_library"], rel=5e-3)


def test_text(capsys):
    assert main("account --rate 0.1 --rounds 200 --multiplier 1.4".split()) == 0
    out = capsys.readouterr().out
    assert "epsilon     5.61" in out and "delta 1e-05" in out and "add-remove" in out and "Renyi" in out
    assert main("account --rounds 30 --epsilon 4".split()) == 0
    assert capsys.readouterr().out.startswith("multiplier  5.922\n")
    assert main("account --multiplier 0.5 --epsilon 0.1".split()) == 0
    assert "not one fits" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line, names",
    [
        ("--epsilon 0 --rounds 3", "epsilon"),
        ("--epsilon -1 --rounds 3", "epsilon"),
        ("--epsilon nan --rounds 3", "epsilon"),
        ("--delta 1 --rounds 3 --multiplier 1", "delta"),
        ("--delta 0 --rounds 3 --multiplier 1", "delta"),
        ("--delta nan --rounds 3 --multiplier 1", "delta"),
        ("--rate 1.5 --rounds 3 --multiplier 1", "rate"),
        ("--rate 0 --rounds 3 --multiplier 1", "rate"),
        ("--rate nan --rounds 3 --multiplier 1", "rate"),
        ("--rate many --rounds 3 --multiplier 1", "rate"),
        ("--multiplier 0 --rounds 3", "multiplier"),
        ("--multiplier inf --rounds 3", "multiplier"),
        ("--rounds 0 --multiplier 1", "rounds"),
        ("--rounds 1.5 --multiplier 1", "rounds"),
        ("--rounds nan --multiplier 1", "rounds"),
        ("--schedule ,", "empty"),
        ("--schedule 1,x", "'x'"),
        ("--schedule 1,-2", "'-2'"),
        ("--schedule missing.txt", "missing.txt"),
        ("--schedule 1,2 --rounds 3", "schedule"),
        ("--schedule 1,2 --multiplier 3", "schedule"),
        ("--rounds 3", "two of"),
        ("--epsilon 1 --rounds 3 --multiplier 1", "two of"),
        ("", "two of"),
        ("--sampling shuffled --rounds 3 --multiplier 1", "shuffled"),
        ("--relation swap --rounds 3 --multiplier 1", "swap"),
        ("--unit record --rounds 3 --multiplier 1", "record"),
        ("--sampling fixed --rounds 3 --multiplier 1", "--cohort"),
        ("--sampling fixed --rate 0.1 --relation add-remove --rounds 3 --multiplier 1", "replace-one"),
        ("--sampling none --rate 0.1 --rounds 3 --multiplier 1", "none"),
        ("--clients 10 --rounds 3 --multiplier 1", "--cohort"),
        ("--clients 10 --cohort 11 --rounds 3 --multiplier 1", "cohort"),
        ("--clients 10 --cohort 1 --rate 0.1 --rounds 3 --multiplier 1", "not both"),
    ],
)
def test_bad_input_gets_one_sentence(capsys, line, names):
    assert main(["account", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and names in err and err.rstrip().endswith(".")


def test_infinity_is_a_word(capsys):
    from sordino.cli.numbers import plain

    assert json.dumps(plain(float("inf"))) == '"inf"' and plain(1.5) == 1.5


@pytest.mark.parametrize("line", ["--rate 0.1 --rounds 200 --epsilon 4", "--help"])
def test_the_command_is_light(line):
    code = (
        "import sys; from sordino.cli.main import main\n"
        f"try: main(['account', *{line.split()!r}])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'dp_accounting', 'scipy.stats', 'rich') if m in sys.modules])"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert time.perf_counter() - start < 4.0  # 0.6 s on a quiet machine
