"""Presets: a plan for every experiment of the four papers."""

from __future__ import annotations

import json

import pytest

from sordino import presets
from sordino.assembly import complete
from sordino.cli.main import main
from sordino.data.sets import ENTRIES
from sordino.errors import BadInput
from sordino.models import MODELS, paper_network
from sordino.plan import Plan

NAMES = (
    "acn-cifar10 acn-cifar100 acn-mnist acn-shakespeare adact-cifar10 adact-rail fedmap-cifar10 fedmap-fashion-mnist fedmap-svhn "
    "gamma-mnist"
).split()


def plan(name, **more):
    return Plan.from_json(complete(presets.read(name) | more))


def test_there_is_one_for_every_paper_and_data_set():
    assert presets.names() == NAMES
    with pytest.raises(BadInput, match="there is no preset 'acn'; choose one of acn-cifar10, "):
        presets.read("acn")


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_a_published_plan_that_departs_from_its_paper_in_nothing(name):
    made = plan(name)
    assert made.published and made.data in ENTRIES and made.model in MODELS
    assert made.method_spec.departures(made) == made.method_spec.differs(made)  # what no setting changes
    assert (
        paper_network(made.method, made.data) == made.model
    )  # the paper's network is also what auto picks as published
    wanted = json.loads(json.dumps(presets.read(name)))
    assert {key: made.to_json()[key] for key in wanted} == wanted


def test_the_papers_numbers():
    """AdaCT 5.2; DP-FedACN table II; FedMAP 4.1; noise_gamma 4.1."""
    of = {name: plan(name) for name in NAMES}

    def told(name, *fields):
        return tuple(getattr(of[name], field) for field in fields)

    assert told("adact-cifar10", "clients", "rounds", "local_epochs", "batch_size", "lr") == (10, 30, 4, 64, 1e-3)
    assert told("adact-rail", "clients", "rounds", "local_epochs", "batch_size", "lr") == (10, 40, 5, 16, 1e-3)
    table2 = {"mnist": (100, 200, 128, 0.1), "cifar10": (100, 500, 128, 0.05), "cifar100": (100, 500, 128, 0.05)}
    table2["shakespeare"] = (715, 1000, 4, 1.0)
    for data, row in table2.items():
        assert told(f"acn-{data}", "clients", "rounds", "batch_size", "lr") == row
        assert told(f"acn-{data}", "cohort", "delta") == (10, 0.001)
    for data, row in {"fashion-mnist": (3, 0.01), "cifar10": (8, 0.001), "svhn": (5, 0.1)}.items():
        assert told(f"fedmap-{data}", "local_epochs", "lr") == row
        assert told(f"fedmap-{data}", "clients", "cohort", "alpha", "batch_size", "seed") == (100, 10, 0.5, 64, 42)
    assert told("gamma-mnist", "clients", "bound", "delta") == (4, 0.1, 1e-5)


def test_options_override_a_preset_and_certified_runs_it_privately():
    made = plan("adact-cifar10", epsilon=8.0, variant="certified")
    assert made.epsilon == 8.0 and not made.published and made.rounds == 30


def test_plan_takes_a_preset(capsys):
    assert main(["plan", "--preset", "adact-cifar10", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["clients"], told["rounds"], told["dimension"], told["unit"]) == (10, 30, 343_946, "client")
    assert main(["plan", "--preset", "acn-mnist", "--epsilon", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] <= 4


def test_train_takes_a_preset(capsys, tmp_path):
    words = ["--preset", "adact-rail", "--rounds", "1", "--local-epochs", "1", "--clients", "3"]
    assert main(["train", *words, "--out", str(tmp_path / "run"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["epsilon"] == "inf" and told["unit"] == "client" and told["data"] == "rail-simulated"
    assert told["departures"] == ["local_epochs is 1; the paper has 4 or 5."]
    assert any("exact norm of its update" in reason for reason in told["reasons"])
    text = (tmp_path / "run" / "statement.txt").read_text()
    assert "Where the run departs from the paper" in text
