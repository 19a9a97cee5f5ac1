"""Whole runs: any number of workers, any crash, any budget, the same result or a clear refusal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from sordino import BadInput, Callback, EngineOptions, Federation, Plan, callbacks, train
from sordino.engines.workers import ClientFailed
from sordino.federation import sampling
from sordino.privacy.ledger import Ledger

HERE = EngineOptions(engine="in-process")
TWO = EngineOptions(engine="workers", workers=2)
THREE = EngineOptions(engine="workers", workers=3)


def plan(**settings):
    base = {
        "data": "toy", "clients": 12, "cohort": 6, "method": "quantile", "unit": "client", "observer": "public",
        "multiplier": 0.5, "rounds": 6, "batch_size": 8, "lr": 0.3,
    }  # fmt: skip
    return Plan(**(base | settings))


EVERY_WAY = {
    "client, central": {},
    "client, shares": {"observer": "secagg-server", "sampling": "fixed"},
    "client, local noise": {"observer": "server", "sampling": "fixed"},
    "client, two phases": {"method": "adact"},
    "example, pooled central": {"unit": "example", "cohort": None, "method": "dp-fedavg", "batch_size": 40},
    "example, pooled shares": {
        "unit": "example",
        "cohort": None,
        "observer": "secagg-server",
        "method": "adact",
        "batch_size": 40,
    },
    "example, local": {"unit": "example", "cohort": None, "observer": "server", "batch_size": 10},
    "no privacy": {"method": "fedavg", "multiplier": None},
}


@pytest.mark.parametrize("way", EVERY_WAY)
def test_one_two_or_three_workers_give_the_same_bits(way, federation, linear, tmp_path):
    p = plan(**EVERY_WAY[way])
    models = []
    for name, speed in (("a", HERE), ("b", TWO), ("c", THREE)):
        train(linear(), federation, p, out=tmp_path / name, options=speed)
        models.append(load_file(tmp_path / name / "model.safetensors"))
    for other in models[1:]:
        assert all(np.array_equal(models[0][key], other[key]) for key in other)


@pytest.mark.parametrize("way", EVERY_WAY)
def test_every_way_learns_with_little_noise(way, federation, linear, tmp_path):
    settings = EVERY_WAY[way]
    quiet = {} if settings.get("method") == "fedavg" else {"multiplier": 0.02}
    p = plan(**(settings | quiet | {"rounds": 25}))
    assert train(linear(), federation, p, out=tmp_path / "run", options=HERE).accuracy > 0.8


def test_the_run_folder_holds_what_it_should(federation, linear, tmp_path):
    result = train(linear(), federation, plan(), out=tmp_path / "run", options=HERE)
    for name in (
        "plan.toml",
        "ledger.jsonl",
        "metrics.jsonl",
        "model.safetensors",
        "statement.json",
        "statement.txt",
        "report.html",
    ):
        assert (tmp_path / "run" / name).stat().st_size > 0, name
    said = json.loads((tmp_path / "run" / "statement.json").read_text())
    assert said["epsilon"] == pytest.approx(result.epsilon) and said["simulated"] is True
    given = plan().replace(data="<toy>", partition="natural", model="<Linear>", classes=federation.classes)
    assert Plan.load(tmp_path / "run" / "plan.toml") == given
    row = result.to_json()
    for key in "method variant data unit relation observer epsilon delta epsilon_claimed reasons rounds multiplier accuracy".split():
        assert key in row
    assert len(Ledger.read(tmp_path / "run" / "ledger.jsonl", given.digest()).grants) == 6


def test_a_budget_stops_the_run_before_it_is_exceeded(federation, linear, tmp_path):
    p = plan(epsilon=30.0, multiplier=0.5, rounds=400)
    result = train(linear(), federation, p, out=tmp_path / "run", options=HERE)
    assert 0 < result.rounds < 400 and result.epsilon <= 30.0
    assert result.stopped and "refused" in result.stopped


def test_a_calibrated_run_spends_its_budget_and_no_more(federation, linear, tmp_path):
    p = plan(epsilon=5.0, multiplier=None, rounds=7)
    result = train(linear(), federation, p, out=tmp_path / "run", options=HERE)
    assert result.rounds == 7 and 4.9 < result.epsilon <= 5.0 and result.stopped is None


def test_a_finished_run_is_not_overwritten(federation, linear, tmp_path):
    train(linear(), federation, plan(rounds=1), out=tmp_path / "run", options=HERE)
    with pytest.raises(BadInput, match="holds a run already"):
        train(linear(), federation, plan(rounds=1), out=tmp_path / "run", options=HERE)


def test_a_run_is_not_resumed_under_another_plan(federation, linear, tmp_path):
    train(linear(), federation, plan(rounds=2), out=tmp_path / "run", options=HERE)
    with pytest.raises(BadInput, match="plan"):
        train(linear(), federation, plan(rounds=3), out=tmp_path / "run", resume=True, options=HERE)


def test_secure_noise_never_repeats(federation, linear, tmp_path):
    p = plan(secure=True, rounds=1)
    a, b = (train(linear(), federation, p, out=tmp_path / n, options=HERE).model.weight.detach().numpy() for n in "ab")
    assert not np.array_equal(a, b)


def test_a_clients_exception_reaches_the_user_with_its_traceback(federation, linear, tmp_path):
    def broken(logits, y):
        if torch.is_grad_enabled():  # not while it is rehearsed
            raise ZeroDivisionError("a loss of the user's own")
        return logits.sum(1)

    with pytest.raises(ClientFailed, match="ZeroDivisionError") as failed:
        train(linear(), federation, plan(), out=tmp_path / "run", options=TWO, loss=broken)
    assert "in broken" in str(failed.value.__cause__)


def test_a_model_that_does_not_fit_is_one_sentence(federation, linear, tmp_path):
    with pytest.raises(BadInput, match="does not take examples of shape"):
        train(linear(features=4), federation, plan(), out=tmp_path / "run", options=HERE)
    with pytest.raises(BadInput, match="give it 3 outputs"):
        train(linear(classes=2), federation, plan(), out=tmp_path / "run", options=HERE)
    norm = torch.nn.Sequential(torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3)).eval()
    with pytest.raises(BadInput, match="GroupNorm"):
        train(norm, federation, plan(), out=tmp_path / "run", options=HERE)


def test_a_million_clients_made_on_demand(linear, tmp_path):
    """A round with a cohort of a thousand; memory does not grow with the population."""
    import resource

    def make(k):
        rng = np.random.Generator(np.random.PCG64(k))
        return rng.normal(size=(4, 5)).astype(np.float32), rng.integers(0, 3, 4)

    population = Federation.on_demand(1_000_000, make, 4, 3)
    p = plan(clients=1_000_000, cohort=1000, rounds=2, multiplier=1.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    train(linear(), population, p, out=tmp_path / "run", options=HERE)
    assert time.perf_counter() - started < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KiB


SCRIPT = textwrap.dedent(
    """
    import sys
    sys.path.insert(0, sys.argv[3])
    import time
    import torch
    from populations import toy
    from sordino import Plan, EngineOptions, train
    model = torch.nn.Linear(5, 3)
    with torch.no_grad():
        model.weight.copy_(torch.linspace(-0.5, 0.5, 15).view(3, 5)); model.bias.zero_()
    plan = Plan(data="toy", clients=12, cohort=None, method="adact", unit="example", observer="secagg-server",
                multiplier=0.5, rounds=40, batch_size=40, lr=0.3, server_optimizer="momentum", secure=sys.argv[4] == "secure")
    from pathlib import Path
    out = Path(sys.argv[1])
    resume = (out / "ledger.jsonl").exists()
    result = train(model, toy(), plan, out=out, resume=resume, options=EngineOptions(engine="workers", workers=int(sys.argv[2])))
    print("rounds", result.rounds)
    """
)


def killed_again_and_again(out, kind, seed):
    """Run to the end, killing the process (and its workers) at random moments."""
    rng = np.random.Generator(np.random.PCG64(seed))
    here = os.path.dirname(os.path.dirname(__file__))
    deaths = 0
    for _ in range(40):
        command = [sys.executable, "-c", SCRIPT, str(out), str(int(rng.integers(1, 3))), here, kind]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        limit = time.monotonic() + 120
        target = None if deaths >= 4 else int(rng.integers(1, 38))
        while process.poll() is None and time.monotonic() < limit:
            if target is not None and (out / "ledger.jsonl").exists():
                if (out / "ledger.jsonl").read_bytes().count(b"\n") > target:
                    time.sleep(float(rng.random()) * 0.004)
                    os.killpg(process.pid, signal.SIGKILL)
                    deaths += 1
                    break
            time.sleep(0.0005)
        said, error = process.communicate()
        if process.returncode == 0:
            return deaths
        assert process.returncode == -signal.SIGKILL, error
    raise AssertionError("the run never finished")


def test_kill_9_at_any_moment_changes_no_bit(tmp_path):
    deaths = killed_again_and_again(tmp_path / "killed", "seeded", 1)
    assert deaths >= 2
    here = os.path.dirname(os.path.dirname(__file__))
    subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "whole"), "2", here, "seeded"], check=True, capture_output=True
    )
    killed, whole = (load_file(tmp_path / n / "model.safetensors") for n in ("killed", "whole"))
    assert all(np.array_equal(killed[k], whole[k]) for k in whole)
    rows = [
        [{k: v for k, v in json.loads(r).items() if k != "seconds"} for r in (tmp_path / n / "metrics.jsonl").open()]
        for n in ("killed", "whole")
    ]
    assert rows[0] == rows[1]


def test_a_crash_around_a_checkpoint_leaves_no_gap_and_no_second_line(federation, linear, tmp_path, monkeypatch):
    save = callbacks.checkpoint.save
    for name, died_before in (("before", True), ("after", False)):

        def dies(folder, state, *rest, died_before=died_before):
            if not died_before or state.round != 3:
                save(folder, state, *rest)
            if state.round == 3:
                raise KeyboardInterrupt

        with monkeypatch.context() as crash, pytest.raises(KeyboardInterrupt):
            crash.setattr(callbacks.checkpoint, "save", dies)
            train(linear(), federation, plan(), out=tmp_path / name, options=HERE)
        result = train(linear(), federation, plan(), out=tmp_path / name, options=HERE, resume=True)
        lines = [json.loads(line)["round"] for line in (tmp_path / name / "metrics.jsonl").open()]
        assert lines == [row["round"] for row in result.metrics] == [1, 2, 3, 4, 5, 6]


def test_what_a_callback_adds_to_a_row_is_in_the_result(federation, linear, tmp_path):
    class Squares(Callback):
        def on_round(self, run) -> None:
            run.row["square"] = run.row["round"] ** 2

    result = train(linear(), federation, plan(), out=tmp_path / "run", options=HERE, callbacks=[Squares()])
    assert [row["square"] for row in result.metrics] == [1, 4, 9, 16, 25, 36]


def test_secure_noise_never_runs_a_granted_round_twice(tmp_path):
    """The cohort is a function of the round, so new noise on it would be a second release on one draw."""
    deaths = killed_again_and_again(tmp_path / "run", "secure", 2)
    plan_digest = Plan.load(tmp_path / "run" / "plan.toml").digest()
    ledger = Ledger.read(tmp_path / "run" / "ledger.jsonl", plan_digest)
    assert deaths >= 2
    assert [g.round for g in ledger.grants] == list(range(1, 41)) and all(g.attempt == 1 for g in ledger.grants)
    said = json.loads((tmp_path / "run" / "statement.json").read_text())
    rows = [json.loads(line)["round"] for line in (tmp_path / "run" / "metrics.jsonl").open()]
    assert 1 <= said["lost"] <= deaths and said["rounds"] == 40 - said["lost"]
    assert ledger.lost == said["lost"] and len(rows) >= 40 - deaths and rows == sorted(set(rows))


def test_under_secure_noise_rounds_after_the_last_checkpoint_are_lost(federation, linear, tmp_path, monkeypatch):
    """No round is ever drawn or released twice, whatever a crash leaves behind; the lost ones are told."""
    wanted = plan(rounds=9, secure=True)
    speed = EngineOptions("in-process", checkpoint_every=4, evaluate_every=100)
    drawn, cohort = [], sampling.Draws.cohort

    def drawing(self, round):
        drawn.append(round)
        if len(drawn) == 7:
            raise KeyboardInterrupt
        return cohort(self, round)

    monkeypatch.setattr(sampling.Draws, "cohort", drawing)
    with pytest.raises(KeyboardInterrupt):
        train(linear(), federation, wanted, out=tmp_path / "run", options=speed)
    result = train(linear(), federation, wanted, out=tmp_path / "run", options=speed, resume=True)
    assert drawn == list(range(1, 10))  # 5 and 6 were finished but not kept, 7 was granted
    assert result.statement.lost == 3 and result.rounds == 6
    assert [row["round"] for row in result.metrics] == [1, 2, 3, 4, 8, 9]
    assert "were not run again: 3." in " ".join(result.statement.text().split())
