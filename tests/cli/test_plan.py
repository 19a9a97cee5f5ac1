"""``sordino plan``: the forecast on the command line."""

from __future__ import annotations

import json

import pytest

from sordino.assembly import complete
from sordino.cli.main import main, parser
from sordino.cli.plan import SETS
from sordino.cli.plan_options import given_in
from sordino.plan import Plan


def ask(capsys, line: str) -> dict:
    assert main(["plan", *line.split(), "--json"]) == 0
    out, err = capsys.readouterr()
    assert not err and out.count("\n") == 1
    return json.loads(out)


def test_adact_own_setting(capsys):
    line = "--clients 10 --rounds 30 --epsilon 4 --delta 1e-5 --unit client --dimension 344000 --examples 5000"
    answer = ask(capsys, line)
    assert answer["multiplier"] == pytest.approx(5.92, abs=0.005)
    assert answer["noise_to_bound"] == pytest.approx(347, abs=1)
    assert answer["verdict"] == "implausible" and answer["plausible"] is False
    assert answer["remedies"][0]["change"] == "the example unit"
    assert main(["plan", *line.split()]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "hundreds of times the signal" in text
        and "The way out is the example unit." in text
        and "--unit example" in text
    )


def test_defaults_are_those_of_train(capsys):
    answer = ask(capsys, "")
    expected = {"clients": 10, "unit": "example", "observer": "secagg-server", "delta": 1e-5, "plausible": True}
    assert {key: answer[key] for key in expected} == expected
    assert answer["epsilon"] <= 4.0 and answer["dimension"] == 3040 and answer["remedies"] == []


def test_models_and_data_stand_for_numbers(capsys):
    answer = ask(capsys, "--data cifar10 --clients 5 --rounds 100 --model cnn-cifar")
    assert (answer["examples"], answer["dimension"]) == (10_000, 343_946)
    answer = ask(capsys, "--data mnist --model cnn-mnist --examples 50 --multiplier 2")
    assert (answer["examples"], answer["dimension"], answer["multiplier"]) == (50, 80_202, 2.0)


def test_the_facts_of_data_sets_are_their_own():
    from sordino.data import sets

    here = [name for name in SETS if sets.status(name).present != "no"]
    assert "digits" in here
    for name in here:
        data = sets.load(name)
        assert (len(data), tuple(data.x.shape[1:]), data.classes) == SETS[name], name


@pytest.mark.parametrize("line", ["", "--clients 3 --epsilon 8", "--unit client --clients 40 --cohort 10"])
def test_its_defaults_are_those_of_training(capsys, line):
    assert main(["plan", "--json", *line.split()]) == 0
    told = json.loads(capsys.readouterr().out)
    plan = Plan.from_json(complete(given_in(parser("train").parse_args(["train", *line.split()]))))
    for name in ("rounds", "clients", "cohort", "delta", "unit", "observer", "sampling"):
        assert told[name] == getattr(plan, name), name
    assert told["batch_size"] in (None, plan.batch_size) and told["epsilon"] == pytest.approx(plan.epsilon, rel=1e-3)


@pytest.mark.parametrize(
    "line, names",
    [
        ("--clients 0", "clients"),
        ("--clients ten", "--clients"),
        ("--epsilon -1", "epsilon"),
        ("--epsilon nan", "epsilon"),
        ("--delta 1", "delta"),
        ("--epsilon 1 --multiplier 1", "one of the two"),
        ("--unit record", "record"),
        ("--observer everyone", "everyone"),
        ("--model vgg", "vgg"),
        ("--data imagenet", "imagenet"),
        ("--cohort 11 --unit client", "cohort"),
        ("--rounds 2.5", "--rounds"),
        ("--rounds 0", "rounds"),
    ],
)
def test_bad_input_gets_one_sentence(capsys, line, names):
    assert main(["plan", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and names in err and err.rstrip().endswith(".")


def test_a_preset_is_not_promised_what_only_a_proof_of_another_method_gives(capsys):
    """The forecast is of a fixed bound; a preset runs its paper's method, whose epsilon is another one, or none."""
    assert main(["plan", "--preset", "adact-cifar10"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "As published adact is not private: no epsilon is proven for such a run" in text
    assert main(["plan", "--preset", "adact-cifar10", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["as_published"]
    assert told["epsilon"] == "inf" and told["epsilon_claimed"] == pytest.approx(4.0) and len(told["reasons"]) == 5
    assert main(["plan", "--preset", "gamma-mnist"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "As published noise-gamma has multiplier 9.69, claims epsilon 0.5 and proves 6.825." in text
    assert main(["plan", "--preset", "fedmap-svhn", "--unit", "client", "--json"]) == 0  # FedMAP has no such unit
    assert "as_published" not in json.loads(capsys.readouterr().out)
    assert main(["plan", "--json"]) == 0
    assert "as_published" not in json.loads(capsys.readouterr().out)
