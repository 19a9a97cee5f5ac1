"""What is trained on is what is recorded."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from populations import toy
from sordino import Federation, Plan, train
from sordino.assembly import assemble, population
from sordino.cli.main import main
from sordino.engines import EngineOptions
from sordino.errors import BadInput
from sordino.federation.binding import commitment
from sordino.federation.folder import claim

HERE = EngineOptions("in-process")
QUICK = {"epsilon": 8.0, "rounds": 2, "method": "dp-fedavg", "unit": "example", "observer": "secagg-server"}


def test_a_run_on_arrays_says_so_and_is_not_repeated_as_digits(linear, tmp_path, capsys):
    result = train(linear(), toy(clients=3), Plan(**QUICK), out=tmp_path / "run", options=HERE)
    assert (result.plan.data, result.plan.clients, result.plan.model) == ("<toy>", 3, "<Linear>")
    assert result.plan.partition == "natural" and result.to_json()["data"] == "<toy>"
    assert "on &lt;toy&gt;" in (tmp_path / "run" / "report.html").read_text()
    assert main(["train", "--plan", str(tmp_path / "run" / "plan.toml")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "<toy> was handed over in Python" in said
    with pytest.raises(BadInput, match="model '<Linear>' was handed over in Python"):
        assemble(result.plan.replace(data="digits", partition="iid"))


def test_the_record_has_names_versions_and_commitments(linear, tmp_path):
    federation = toy(clients=3)
    train(linear(), federation, Plan(**QUICK), out=tmp_path / "run", options=HERE)
    told = json.loads((tmp_path / "run" / "data.json").read_text())
    assert told["shape"] == [5] and told["classes"] == ["0", "1", "2"] and told["clients"] == 3
    assert {"python", "numpy", "torch", "sordino"} <= told["software"].keys() and told["date"].startswith("20")
    kept = tmp_path / "run" / "checkpoint" / "population.json"
    salt = bytes.fromhex(json.loads(kept.read_text())["salt"])
    assert salt.hex() not in json.dumps(told) and kept.stat().st_mode & 0o077 == 0
    assert told["commitments"] == {str(k): commitment(federation, k, salt) for k in range(3)}
    other = Federation.from_arrays(
        [federation[0], federation[1], (federation[2][0] + 1e-6, federation[2][1])], classes=3
    )
    assert commitment(other, 1, salt) == told["commitments"]["1"] != commitment(federation, 0, salt)
    assert commitment(other, 2, salt) != told["commitments"]["2"]


def test_a_named_set_and_a_named_model_are_repeated_to_the_last_bit(tmp_path):
    plan = Plan(data="digits", clients=4, model="linear", seed=3, partition_seed=1, partition="iid", **QUICK)
    model, federation, plan = assemble(plan)
    first = train(model, federation, plan, out=tmp_path / "a", options=HERE)
    again = Plan.load(tmp_path / "a" / "plan.toml")
    assert again == plan and (again.data, again.model, again.partition_seed) == ("digits", "linear", 1)
    model, federation, again = assemble(again)
    train(model, federation, again, out=tmp_path / "b", options=HERE)
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()
    assert first.plan.model == "linear"


def test_other_first_weights_are_another_model():
    model, federation, plan = assemble(Plan(data="digits", clients=4, model="linear", **QUICK))
    assert plan.model == "linear"
    from sordino.assembly import as_trained

    model.state_dict()["weight" if "weight" in model.state_dict() else next(iter(model.state_dict()))].add_(1.0)
    assert as_trained(plan, federation, model).model == "<Linear>"


def test_a_table_is_recorded_with_what_it_takes_to_read_it_again(tmp_path):
    (tmp_path / "t.csv").write_text("who,a,kind\n" + "".join(f"u{k % 3},{k},{'yn'[k % 2]}\n" for k in range(30)))
    plan = Plan(data=str(tmp_path / "t.csv"), client_column="who", label="kind", **QUICK)
    model, federation, plan = assemble(plan)
    assert (plan.clients, plan.partition, plan.client_column) == (3, "natural", "who")
    train(model, federation, plan, out=tmp_path / "run", options=HERE)
    again = population(Plan.load(tmp_path / "run" / "plan.toml"))
    assert again.fingerprint() == federation.fingerprint()
    assert 'classes = ["n", "y"]' in (tmp_path / "run" / "schema.toml").read_text()


def test_rows_without_clients_are_dealt_out(tmp_path):
    (tmp_path / "t.csv").write_text("a,label\n" + "".join(f"{k},{k % 2}\n" for k in range(40)))
    _, federation, plan = assemble(Plan(data=str(tmp_path / "t.csv"), partition="iid", clients=4, **QUICK))
    assert federation.sizes.tolist() == [10] * 4 and (plan.partition, plan.clients) == ("iid", 4)


def test_two_runs_at_once_get_two_folders(tmp_path):
    code = (
        "from sordino.federation.folder import claim; from sordino.plan import Plan\n"
        "for _ in range(40): print(claim(Plan(epsilon=1.0)))"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE) for _ in range(2)]
    claimed = [line for process in both for line in process.communicate()[0].decode().split()]
    assert len(claimed) == len(set(claimed)) == 80


def test_a_folder_that_is_in_use_is_refused(tmp_path, linear, monkeypatch):
    from sordino.federation.folder import RunFolder

    held = RunFolder.create(tmp_path / "run", Plan(epsilon=1.0))
    with pytest.raises(BadInput, match="another run is writing into"):
        RunFolder.create(tmp_path / "run", Plan(epsilon=1.0))
    held.close()
    RunFolder.create(tmp_path / "run", Plan(epsilon=1.0)).close()
    monkeypatch.chdir(tmp_path)
    assert claim(Plan(data="<toy>", epsilon=1.0)).name == "toy-adact-1"


def test_unlike_scales_are_said_before_training(linear, tmp_path):
    x = np.random.Generator(np.random.PCG64(0)).normal(size=(60, 5)).astype(np.float32) * [1, 1, 5000, 1, 1]
    y = np.arange(60) % 3
    wide = Federation.from_arrays([(x[:20], y[:20]), (x[20:40], y[20:40])], test=(x[40:], y[40:]))
    with pytest.warns(UserWarning, match=r"unlike scales \(column 2 is about"):
        result = train(linear(), wide, Plan(**QUICK), out=tmp_path / "run", options=HERE)
    assert "unlike scales" in result.to_json()["warnings"][0]
