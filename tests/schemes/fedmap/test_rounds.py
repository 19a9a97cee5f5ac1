"""Whole runs of FedMAP: the budget is approached and never passed, on disk before data is touched, through crashes too."""

from __future__ import annotations

import json
import math
from collections import defaultdict

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import fedmap_runs  # noqa: E402
from fedmap_runs import HERE, Crash, crashing, spent  # noqa: E402
from sordino.engines import EngineOptions  # noqa: E402
from sordino.federation.folder import RunFolder  # noqa: E402
from sordino.plan import Plan  # noqa: E402
from sordino.privacy import rdp  # noqa: E402
from sordino.privacy.ledger import Ledger  # noqa: E402
from sordino.schemes.fedmap.client import ClientState, ControlledSteps  # noqa: E402
from sordino.schemes.fedmap.rounds import pack, unpack  # noqa: E402
from sordino.schemes.fedmap.rule import PrintedLedger  # noqa: E402


def plan(**changes):
    base = {"data": "toy", "clients": 12, "cohort": 4, "method": "fedmap", "observer": "server", "epsilon": 2.0}
    return Plan(**(base | {"rounds": 8, "batch_size": 10, "lr": 0.5} | changes))


def run(linear, folder, wanted=None, **more):
    return fedmap_runs.run(linear, folder, wanted or plan(), **more)


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 5.0])
def test_the_budget_is_approached_and_never_passed(linear, tmp_path, paid, epsilon):
    result = run(linear, tmp_path / "run", plan(epsilon=epsilon))
    terms = result.terms
    assert result.epsilon == epsilon and result.rounds == 8 and result.stopped is None
    true = spent(paid, terms.order)
    epsilons = [rdp.to_epsilon(cost, terms.order, 1e-5) for cost in true.values()]
    assert max(epsilons) <= epsilon
    shares = [row["spent"] for row in result.metrics]
    assert shares == sorted(shares) and max(shares) <= 1.0
    assert shares[-1] > 0.95, "the client that comes closest has used its budget"
    means = [row["spent_mean"] for row in result.metrics]
    assert means == sorted(means) and means[-1] > 0.75
    done = [k for k, turns in enumerate(terms.turns) if turns]
    assert set(true) == set(done)
    assert np.median([true[k] / terms.budget for k in done]) > 0.9
    used = [z for steps in paid.values() for _, z in steps]
    assert result.statement.multiplier == (min(used), max(used)) and len(set(used)) > 50


@pytest.mark.parametrize("seed", range(3))
def test_no_network_moves_a_whole_run_past_its_budget(linear, tmp_path, paid, monkeypatch, seed):
    """Anything but NaN, which is refused, comes out of every controller; ledger, accounts and true cost agree."""
    from sordino.schemes.fedmap.metanet.net import MetaNet

    rng = np.random.Generator(np.random.PCG64(seed))
    wild = [0.0, math.inf, -math.inf, 1e308, -1e308, 1e-308, 3.0, -3.0, 0.1]
    monkeypatch.setattr(MetaNet, "decide", lambda self, steps, valid: rng.choice(wild, (len(steps), 2)))
    result = run(linear, tmp_path / "run")
    true, room = spent(paid, result.terms.order), rdp.budget(2.0, 1e-5, result.terms.order)
    assert result.rounds == 8 and 0 < max(true.values()) <= room
    assert Ledger.read(tmp_path / "run" / "ledger.jsonl").spending.largest() <= room
    assert max(row["spent"] for row in result.metrics) <= 1.0


def test_the_statement_of_a_certified_run(linear, tmp_path):
    text = " ".join(run(linear, tmp_path / "run").statement.text().split())
    assert (
        "PROVEN: epsilon 2, delta 1e-05" in text and "Renyi filter at an order that was fixed before round one" in text
    )
    told = json.loads((tmp_path / "run" / "statement.json").read_text())
    assert told["proven"] and told["epsilon"] == 2.0 and told["reasons"] == []


def test_a_round_budget_is_on_disk_before_any_data_is_touched(linear, tmp_path, monkeypatch):
    real, seen = ControlledSteps.contribute, []

    def give(self, request, item, out):
        grant = Ledger.read(tmp_path / "run" / "ledger.jsonl").granted(request.round)
        costs = dict(zip(grant.clients.tolist(), np.broadcast_to(grant.costs, grant.clients.shape).tolist()))
        seen.append(item.round_budget <= costs[item.client] + item.own.unspent)
        return real(self, request, item, out)

    monkeypatch.setattr(ControlledSteps, "contribute", give)
    run(linear, tmp_path / "run")
    assert len(seen) > 10 and all(seen)


def test_grants_stay_within_every_clients_budget(linear, tmp_path):
    result = run(linear, tmp_path / "run")
    ledger = Ledger.read(tmp_path / "run" / "ledger.jsonl")
    granted = defaultdict(float)
    for grant in ledger.grants:
        for k, cost in zip(grant.clients, np.broadcast_to(grant.costs, grant.clients.shape)):
            granted[int(k)] += cost
    room = rdp.budget(2.0, 1e-5, result.terms.order)
    assert max(granted.values()) <= room and min(granted.values()) > 0.999 * room
    assert ledger.spending is not None and ledger.spending.largest() <= room


def test_workers_and_one_process_agree_to_the_bit(linear, tmp_path):
    one = run(linear, tmp_path / "one")
    two = run(linear, tmp_path / "two", options=EngineOptions("workers", 2, evaluate_every=100))
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), two.model.parameters()))
    assert [row["spent"] for row in one.metrics] == [row["spent"] for row in two.metrics]


@pytest.mark.parametrize("every", [1, 3])
def test_a_seeded_run_goes_on_bit_for_bit(linear, tmp_path, monkeypatch, every):
    speed = EngineOptions("in-process", evaluate_every=100, checkpoint_every=every)
    whole = run(linear, tmp_path / "whole")
    with crashing(monkeypatch, 17):
        run(linear, tmp_path / "cut", options=speed)
    resumed = run(linear, tmp_path / "cut", resume=True, options=speed)
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), resumed.model.parameters()))
    keys = ("round", "bound", "multiplier", "spent", "spent_mean")
    assert [[r[k] for k in keys] for r in whole.metrics] == [[r[k] for k in keys] for r in resumed.metrics]
    ledger = Ledger.read(tmp_path / "cut" / "ledger.jsonl")
    assert all(grant.attempt == 1 for grant in ledger.grants)


@pytest.mark.parametrize(("every", "round"), [(1, 3), (4, 4)])
def test_under_secure_noise_a_round_cut_short_is_lost_and_the_budget_holds(
    linear, tmp_path, monkeypatch, paid, every, round
):
    """Three crashes, and rounds that no checkpoint kept: what all attempts spent together is within every budget."""
    wanted, speed = plan(secure=True, rounds=9), EngineOptions("in-process", evaluate_every=100, checkpoint_every=every)
    folder = tmp_path / "run"
    with crashing(monkeypatch, 1, round):
        run(linear, folder, wanted, options=speed)
    for _ in range(2):
        with crashing(monkeypatch, 1):
            run(linear, folder, wanted, resume=True, options=speed)
    result = run(linear, folder, wanted, resume=True, options=speed)
    assert result.statement.lost >= 3 and result.rounds == 9 - result.statement.lost >= 1
    assert all(grant.attempt == 1 for grant in Ledger.read(folder / "ledger.jsonl"))
    room = rdp.budget(2.0, 1e-5, result.terms.order)
    assert max(spent(paid, result.terms.order).values()) <= room
    ledger = Ledger.read(folder / "ledger.jsonl")
    assert ledger.spending.largest() <= room
    assert max(row["spent"] for row in result.metrics) <= 1.0


def test_budgets_are_at_most_twice_the_even_share(linear, tmp_path, monkeypatch):
    seen = []
    real = ControlledSteps.contribute

    def give(self, request, item, out):
        seen.append((item.round_budget, item.later, item.turns))
        return real(self, request, item, out)

    monkeypatch.setattr(ControlledSteps, "contribute", give)
    run(linear, tmp_path / "run")
    for budget, later, turns in seen:
        assert budget <= 2 * (budget + later) / turns * (1 + 1e-9) or turns == 1
        assert turns > 1 or later == 0


def test_accounts_round_trip_as_arrays():
    rng = np.random.Generator(np.random.PCG64(0))
    accounts = {
        3: ClientState(
            rng.normal(size=642).astype(np.float32), rng.normal(size=(5, 7)).astype(np.float32), 1.5, 0.1, 0.2, 0.05, 4
        ),
        1: ClientState.blank(),
        7: ClientState(np.zeros(0, np.float32), rng.normal(size=(2, 7)).astype(np.float32), 0.5, 0.0, 0.3, 0.3, 1),
    }
    back = unpack(pack(accounts))
    assert list(back) == [1, 3, 7] and unpack(pack({})) == {}
    for k, own in accounts.items():
        assert np.array_equal(own.net, back[k].net) and np.array_equal(own.rows, back[k].rows)
        assert (own.bound, own.unspent, own.granted, own.spent, own.turns) == (
            back[k].bound, back[k].unspent, back[k].granted, back[k].spent, back[k].turns
        )  # fmt: skip


def test_a_controller_that_is_broken_ends_in_one_sentence(linear, tmp_path):
    """Weights that are not numbers: through the workers too."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    from sordino.errors import SordinoError
    from sordino.schemes.fedmap.metanet.net import SHIPPED

    tensors = load_file(SHIPPED)
    tensors["certified.head.bias"] += math.nan
    with safe_open(SHIPPED, "pt") as file:
        facts = file.metadata()
    broken = tmp_path / "broken.safetensors"
    save_file(tensors, broken, facts)
    for name, speed in (("one", HERE), ("two", EngineOptions("workers", 2))):
        with pytest.raises(
            SordinoError, match="holds no MetaNet .certified.head.bias holds values that are not finite"
        ):
            run(linear, tmp_path / name, plan(metanet=str(broken)), options=speed)
        assert not (tmp_path / name / "ledger.jsonl").exists()  # nothing was charged
    with pytest.raises(SordinoError, match="holds no MetaNet"):
        run(linear, tmp_path / "none", plan(metanet=str(tmp_path / "missing")))
    assert not (tmp_path / "none" / "ledger.jsonl").exists()


def test_a_run_does_not_go_on_with_other_weights(linear, tmp_path):
    """A seeded round is run again under the grant that stands; with other controllers it would be another release."""
    from sordino.errors import BadInput
    from sordino.schemes.fedmap.metanet.net import SHIPPED, fresh, save

    mine = tmp_path / "mine.safetensors"
    mine.write_bytes(SHIPPED.read_bytes())
    run(linear, tmp_path / "run", plan(metanet=str(mine), rounds=3))
    save({kind: fresh(kind) for kind in ("certified",)}, mine, {})
    with pytest.raises(BadInput, match="another plan"):
        run(linear, tmp_path / "run", plan(metanet=str(mine), rounds=3), resume=True)


# --- as published -----------------------------------------------------------------------------------------------------


def test_the_published_variant_says_what_it_is(linear, tmp_path, monkeypatch):
    sigmas = []
    real = PrintedLedger.charge
    monkeypatch.setattr(PrintedLedger, "charge", lambda self, who, s: (sigmas.append((who, s)), real(self, who, s))[1])
    result = run(linear, tmp_path / "run", plan(variant="published"))
    told = result.to_json()
    assert told["epsilon"] == "inf" and len(told["reasons"]) == 11
    text = result.statement.text()
    assert text.startswith("PRIVACY STATEMENT: fedmap (published)") and "NOT PRIVATE" in text
    rho = defaultdict(float)
    for who, each in sigmas:
        for k, sigma in zip(who.tolist(), each.tolist()):
            rho[k] += (4 / 12) ** 2 / (2 * sigma**2)
    by_hand = max(min(a * r + math.log(1e5) / (a - 1) for a in (2, 4, 8, 16, 32, 64)) for r in rho.values())
    assert told["epsilon_claimed"] == pytest.approx(by_hand, rel=0.02)
    assert result.accuracy > 0.5


def test_the_published_variant_resumes(linear, tmp_path):
    whole = run(linear, tmp_path / "whole", plan(variant="published"))

    def stop(progress):
        if progress.round == 4:
            raise Crash

    with pytest.raises(Crash):
        run(linear, tmp_path / "cut", plan(variant="published"), on_round=stop)
    resumed = run(linear, tmp_path / "cut", plan(variant="published"), resume=True)
    assert resumed.to_json()["epsilon_claimed"] == whole.to_json()["epsilon_claimed"]
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), resumed.model.parameters()))


def test_the_command_line_runs_both(tmp_path, capsys):
    from sordino.cli.main import main

    common = [
        "--data",
        "digits",
        "--method",
        "fedmap",
        "--rounds",
        "2",
        "--batch-size",
        "64",
        "--json",
        "--engine",
        "in-process",
    ]
    for variant, epsilon in (("certified", 4.0), ("published", "inf")):
        assert main(["train", *common, "--variant", variant, "--out", str(tmp_path / variant)]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["epsilon"] == epsilon and told["observer"] == "server" and told["unit"] == "example"
    assert Plan.load(RunFolder.reopen(tmp_path / "certified").plan).method == "fedmap"
