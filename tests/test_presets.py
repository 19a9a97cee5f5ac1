"""Presets: a plan for every experiment of the four papers."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from sordino import presets
from sordino.assembly import complete
from sordino.cli.main import main
from sordino.data import speeches, store
from sordino.data.catalogue import ENTRIES
from sordino.data.dataset import PIXELS, Dataset
from sordino.errors import BadInput
from sordino.models import MODELS, paper_network
from sordino.plan import Plan

SLOW = os.environ.get("SORDINO_SLOW_TESTS")
NAMES = (
    "acn-cifar10 acn-cifar100 acn-mnist acn-shakespeare adact-cifar10 adact-rail fedmap-cifar10 fedmap-fashion-mnist fedmap-svhn "
    "gamma-mnist"
).split()


@pytest.fixture(autouse=True)
def no_data(monkeypatch, tmp_path):
    """Presets are plans without looking at data."""
    monkeypatch.setenv("SORDINO_DATA", str(tmp_path / "none"))


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
    of = {name: Plan(**presets.read(name)) for name in NAMES}

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


@pytest.mark.parametrize("name", NAMES if SLOW else ["gamma-mnist", "fedmap-fashion-mnist"])
def test_every_preset_is_planned(capsys, name):
    assert main(["plan", "--preset", name, "--json"]) == 0
    told, wanted = json.loads(capsys.readouterr().out), presets.read(name)
    assert (told["clients"], told["rounds"], told["unit"]) == (wanted["clients"], wanted["rounds"], wanted["unit"])


def test_plan_takes_a_preset_and_options_over_it(capsys):
    assert main(["plan", "--preset", "adact-cifar10", "--epsilon", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["clients"], told["rounds"], told["dimension"], told["unit"]) == (10, 30, 343_946, "client")
    assert told["epsilon"] <= 2


SHAPES = {
    "mnist": ((1, 28, 28), 10),
    "fashion-mnist": ((1, 28, 28), 10),
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
    "svhn": ((3, 32, 32), 10),
}


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """Data sets under the names of the real ones, with their shapes and classes: noise, a few records."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SORDINO_DATA", str(folder))
        rng = np.random.Generator(np.random.PCG64(0))
        for name, (shape, classes) in SHAPES.items():
            n = max(24, 2 * classes)
            x, y = rng.integers(0, 255, (n + 10, *shape), np.uint8), np.arange(n + 10) % classes
            store.save(Dataset(name, x[:n], y[:n], x[n:], y[n:], classes, normalise=PIXELS))
        lines = "".join(f"ROLE {r}.\n{'word ' * (20 + i)}\n\n" for r in "ABC" for i in range(6))
        store.save(speeches.federation({"play": "ACT I.\n\n" + lines}))
        yield folder


FEW = ["--rounds", "1", "--local-epochs", "1", "--clients", "3"]


HEAVY = ("fedmap-cifar10", "fedmap-svhn")  # ten seconds each: per-example gradients of a ResNet-18


@pytest.mark.parametrize("name", [name for name in NAMES if name != "adact-rail" and (SLOW or name not in HEAVY)])
def test_every_preset_is_trained(stand_ins, monkeypatch, capsys, tmp_path, name):
    """One round with three clients, through the command line: method, network and data set of the preset fit each other."""
    monkeypatch.setenv("SORDINO_DATA", str(stand_ins))
    wanted = presets.read(name)
    cohort = ["--cohort", "2"] if "cohort" in wanted else []
    small = ["--batch-size", "8"] if name.startswith("fedmap") else []
    assert main(["train", "--preset", name, *FEW, *cohort, *small, "--out", str(tmp_path / "run"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["method"], told["variant"], told["data"]) == (wanted["method"], "published", wanted["data"])
    assert told["rounds"] == 1 and 0 <= told["accuracy"] <= 1
    assert bool(told["reasons"]) == (told["epsilon"] == "inf")
    assert Plan.load(tmp_path / "run" / "plan.toml").model == wanted["model"]
    changed = {"local_epochs", "batch_size"}
    assert {d.split()[0] for d in told["departures"] if " is " in d} <= changed


def test_a_preset_says_what_was_changed(capsys, tmp_path):
    assert main(["train", "--preset", "adact-rail", *FEW, "--out", str(tmp_path / "run"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["epsilon"] == "inf" and told["unit"] == "client" and told["data"] == "rail-simulated"
    simulated, epochs = told["departures"]
    assert "simulated" in simulated and epochs == "local_epochs is 1; the paper has 4 or 5."
    assert any("exact norm of its update" in reason for reason in told["reasons"])
    text = (tmp_path / "run" / "statement.txt").read_text()
    assert "Where the run departs from the paper" in text
