"""Real Flower processes for minutes: the papers' data across hosts, and machines that are killed at random."""

from __future__ import annotations

import json
import signal
import time

import numpy as np
import pytest
from machines import Machines, namespaces_work
from safetensors.numpy import load_file

from sordino import EngineOptions, Federation, Plan, train
from sordino.assembly import complete
from sordino.engines.flower import pki
from sordino.models import build
from sordino.plan import read_toml
from sordino.privacy.ledger import Ledger
from sordino.privacy.randomness import stream

pytest.importorskip("flwr")
pytestmark = pytest.mark.slow


@pytest.fixture
def machines(tmp_path):
    made = Machines(tmp_path, 3, namespaces_work())
    pki.make(tmp_path / "pki", [made.address], ["n1", "n2", "n3"])
    try:
        yield made
    finally:
        made.close()


def deal(folder, federation):
    for k in range(federation.clients):
        x, y = federation.raw(k)
        (folder / f"data{k + 1}").mkdir()
        np.savez(folder / f"data{k + 1}" / "records.npz", x=x, y=y)


FASHION = {  # the rest suits the data set by itself
    "adact": 'observer = "secagg-server"\nepsilon = 4.0\nrounds = 40\n',
    "fedmap": 'observer = "secagg-server"\nepsilon = 8.0\nrounds = 6\nbatch_size = 2000\nlr = 0.5\n'
    'model = "cnn-tanh"\n',
}


@pytest.mark.parametrize("method", FASHION)
def test_fashion_mnist_reaches_the_accuracy_of_one_process(method, machines, tmp_path):
    try:
        federation = Federation.from_dataset("fashion-mnist", "dirichlet", 3, 1.0, 0)
    except ValueError:
        pytest.skip("fashion-mnist is not here: sordino data get fashion-mnist")
    text = f'data = "fashion-mnist"\nclients = 3\nmethod = "{method}"\nunit = "example"\n{FASHION[method]}'
    (tmp_path / "plan.toml").write_text(text)
    (tmp_path / "policy.toml").write_text("secure = false\nepsilon = 20.0\n")
    deal(tmp_path, federation)
    for k in (1, 2, 3):
        machines.join(k, "--policy", "policy.toml", "--once")
    machines.serve("plan.toml", "--out", "run", "--deadline", "600", "--wait", "300", "--json")
    assert machines.wait("serve", 3000) == 0
    there = json.loads(machines.said("serve", "out").strip().splitlines()[-1])
    plan = Plan.from_json(complete(read_toml(tmp_path / "plan.toml")))
    model = build(plan.model, federation.input_shape, federation.classes, plan.seed)
    here = train(model, federation, plan, out=tmp_path / "here", options=EngineOptions(evaluate_every=plan.rounds))
    print(method, "across machines", there["accuracy"], "in one process", here.accuracy, "epsilon", there["epsilon"])
    assert there["accuracy"] == pytest.approx(here.accuracy, abs=0.01)
    assert there["accuracy"] > 0.5 and there["epsilon"] == here.epsilon
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("here", there["run"]))
    print("largest difference of a weight", max(float(np.abs(a[key] - b[key]).max()) for key in a))
    for key in a:
        np.testing.assert_allclose(a[key], b[key], atol=1e-6)


def test_machines_killed_at_random_end_with_correct_ledgers(machines, tmp_path):
    """Holders and the server die by SIGKILL; fifty rounds later every ledger is right."""
    rounds, dice = 50, stream(11, 0, 0, "chaos")
    deal(tmp_path, Federation.from_dataset("digits", "dirichlet", 3, 1.0, 0))
    text = 'data = "digits"\nmethod = "adact"\nunit = "example"\nobserver = "secagg-server"\nepsilon = 4.0\n'
    (tmp_path / "plan.toml").write_text(text + f"clients = 3\nrounds = {rounds}\nsurvivors = 2\nsecure = true\n")
    for k in (1, 2, 3):
        machines.join(k)
    words = ("--deadline", "15", "--wait", "240", "--json", "--out", "run")
    machines.serve("plan.toml", *words)
    run, deaths = tmp_path / "run", {"serve": 0, "holder": 0}

    def finished():
        path = run / "metrics.jsonl"
        return 0 if not path.exists() else path.read_bytes().count(b"\n")

    machines.until(lambda: finished() >= 2, "the second round", 180)
    limit = time.monotonic() + 1800
    while machines.processes["serve"].poll() is None:
        assert time.monotonic() < limit, machines.said("serve")[-3000:]
        time.sleep(float(dice.uniform(4, 12)))
        if sum(deaths.values()) >= 12 or machines.processes["serve"].poll() is not None:
            continue
        if dice.random() < 0.35:
            machines.kill("serve", signal.SIGKILL)
            deaths["serve"] += 1
            machines.serve("--resume", "run", "--deadline", "15", "--wait", "240", "--json")
        else:
            k = int(dice.integers(1, 4))
            machines.kill(f"n{k}", signal.SIGKILL)
            deaths["holder"] += 1
            machines.join(k)
    code = machines.processes["serve"].returncode
    print(deaths, "exit", code, machines.said("serve", "out").strip()[-600:])
    assert code in (0, 3) and deaths["serve"] >= 1 and deaths["holder"] >= 3
    grants = list(Ledger.read(run / "ledger.jsonl"))
    done = [json.loads(line)["round"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert done == sorted(set(done)) and {g.round for g in grants} >= set(done)
    assert [g.round for g in grants] == list(range(1, rounds + 1)) and all(g.attempt == 1 for g in grants)
    statement = json.loads((run / "statement.json").read_text())
    assert statement["rounds"] == rounds - statement["lost"] and statement["epsilon"] <= 4.0
    for k in (1, 2, 3):
        (kept,) = (tmp_path / f"state{k}" / "runs").iterdir()
        assert len(list(Ledger.read(kept / "ledger.jsonl"))) <= len(grants)
