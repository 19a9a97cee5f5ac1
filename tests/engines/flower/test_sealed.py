"""FedMAP under secure aggregation, with clients elsewhere: what they keep, what the server is told, and what is lost with a round."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hall import Hall, odds, toy
from safetensors.numpy import load_file

from fedmap_runs import spent
from sordino import EngineOptions, Plan, train
from sordino.engines import Aborted
from sordino.engines.flower import wire
from sordino.engines.flower.account import Account
from sordino.engines.flower.engine import Patience
from sordino.engines.flower.policy import Policy, Refused
from sordino.engines.flower.wire import Message
from sordino.errors import BadInput
from sordino.federation import checkpoint, sampling
from sordino.models import build
from sordino.privacy import rdp
from sordino.privacy.ledger import Ledger
from sordino.privacy.randomness import stream
from sordino.schemes.fedmap.scheme import REPORT_LENGTH

SOON = Patience(deadline=1.0, wait=0.3)
HERE = EngineOptions(engine="in-process")


def plan(**settings):
    base = {"data": "toy", "clients": 5, "model": "linear", "method": "fedmap", "observer": "secagg-server",
            "epsilon": 4.0, "rounds": 5, "batch_size": 8, "lr": 0.3}  # fmt: skip
    return Plan(**(base | settings))


class Fate:
    """Hears all messages of one holder; `fate(parcel)` may make it deaf or mute."""

    def __init__(self, hall, name, fate=lambda asked: None):
        self.hall, self.name, self.fate, self.asked, self.said = hall, name, fate, [], []
        hall.direct.handlers[name] = self

    def __call__(self, message):
        self.asked.append(wire.from_bytes(message))
        verdict = self.fate(self.asked[-1])
        if verdict == "deaf":
            return None
        reply = self.hall.holders[self.name].handle(message)
        self.said.append(wire.from_bytes(reply))
        return None if verdict == "mute" else reply


def in_round(kind, round, verdict):
    def fate(asked):
        at = asked.head.get("request", {}).get("round")
        return verdict if asked.kind == kind and at == round else None

    return fate


@pytest.fixture
def hall(tmp_path):
    made = Hall(toy(clients=5), tmp_path / "holders")
    yield made
    made.close()


def flat(folder):
    tensors = load_file(folder / "model.safetensors")
    return np.concatenate([tensors[name].ravel() for name in sorted(tensors)])


def here(p, folder):
    federation = toy(clients=p.clients)
    model = build("linear", federation.input_shape, federation.classes, p.seed)
    return train(model, federation, p, out=folder, options=HERE)


@pytest.mark.parametrize("cohort", [5, 3])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_very_same_bits_as_in_one_process(cohort, optimizer, hall, tmp_path):
    p = plan(cohort=cohort, rounds=8, server_optimizer=optimizer, server_lr=0.5)
    one, many = here(p, tmp_path / "here"), hall.train(p, tmp_path / "there")
    np.testing.assert_array_equal(flat(tmp_path / "here"), flat(tmp_path / "there"))
    assert np.abs(flat(tmp_path / "here")).max() > 1e-3
    for key in ("bound", "multiplier", "spent_mean", "spent", "cohort"):
        assert [row[key] for row in one.metrics] == [row[key] for row in many.metrics]
    grants = [
        [np.broadcast_to(g.costs, g.clients.shape).tolist() for g in Ledger.read(tmp_path / name / "ledger.jsonl")]
        for name in ("here", "there")
    ]
    assert grants[0] == grants[1]


def test_of_a_single_client_the_server_is_told_nothing_but_masked_numbers(hall, tmp_path):
    heard = [Fate(hall, name) for name in hall.names]
    hall.train(plan(), tmp_path / "run")
    size = flat(tmp_path / "run").size
    works = [said for fate in heard for said in fate.said if said.kind == "masked"]
    assert len(works) == 25
    seals = {"run", "number", "seal", "signature", "client", "name", "said"}
    for said in works:
        assert set(said.arrays) == {"masked"} and said.arrays["masked"].size == size + REPORT_LENGTH
        assert set(said.head) <= seals | {"noise", "answer_noise"} and not {"report", "state"} & set(said.head)
    kinds = {said.kind for fate in heard for said in fate.said}
    assert "given" not in kinds
    asked = [asked for fate in heard for asked in fate.asked if asked.kind == "work"]
    assert all("task" not in parcel.head and "own.net" not in parcel.arrays for parcel in asked)
    assert all(set(p.head["request"]["state"]) == {"bound", "moved", "order", "lost"} for p in asked)
    kept, _ = checkpoint.load(tmp_path / "run" / "checkpoint")
    assert kept.clients == {} and set(kept.rule) == {"bound", "moved", "spent"}
    statement = (tmp_path / "run" / "statement.txt").read_text()
    assert "hides single messages in addition" in " ".join(statement.split()) and "A deployment" in statement


def test_masked_numbers_do_not_show_the_update(hall, tmp_path, monkeypatch):
    """What one client sends is as good as uniform: it is not the codes that it computed."""
    from sordino.engines.flower.holder_run import HolderRun

    codes, real = [], HolderRun.compute

    def compute(self, request, errand=None):
        made = real(self, request, errand)
        codes.append(made.codes.copy())
        return made

    monkeypatch.setattr(HolderRun, "compute", compute)
    heard = [Fate(hall, name) for name in hall.names]
    hall.train(plan(rounds=1), tmp_path / "run")
    sent = [said.arrays["masked"] for fate in heard for said in fate.said if said.kind == "masked"]
    assert len(sent) == len(codes) == 5
    for masked, clear in zip(sent, codes):
        assert not (masked[: clear.size].view(np.int64) == clear).any()


def test_too_few_survivors_lose_the_round_and_the_budgets_stay_spent(hall, tmp_path, paid):
    p = plan(secure=True, survivors=4)
    for name in ("n3", "n4"):
        Fate(hall, name, in_round("work", 2, "mute"))
    result = hall.train(p, tmp_path / "run", patience=SOON)
    assert result.statement.lost == 1 and result.rounds == 4 and result.stopped is None
    assert "are paid for and were not run again: 1." in " ".join(result.statement.text().split())
    ledger = Ledger.read(tmp_path / "run" / "ledger.jsonl")
    assert [g.round for g in ledger] == [1, 2, 3, 4, 5] and ledger.lost == 1
    assert [row["round"] for row in result.metrics] == [1, 3, 4, 5]
    room = rdp.budget(4.0, 1e-5, result.terms.order)
    assert max(spent(paid, result.terms.order).values()) <= room
    for k, name in enumerate(hall.names):
        (run,) = hall.holders[name]._runs.values()
        assert run.grants.account.after.spent > spent(paid, result.terms.order)[k] * 1.01, (
            "the lost budget counts in full"
        )
        (kept,) = (tmp_path / "holders" / name / "runs").iterdir()
        own = Ledger.read(kept / "ledger.jsonl")
        assert own.spending.largest() <= room and len(list(own)) == 5


def test_too_few_for_good_end_the_run_and_open_nothing(hall, tmp_path):
    watched = [Fate(hall, name) for name in ("n0", "n1")]
    for name in ("n2", "n3", "n4"):
        Fate(hall, name, lambda asked: "mute" if asked.kind == "work" else None)
    with pytest.raises(Aborted):
        hall.train(plan(secure=True), tmp_path / "run", patience=SOON, options=EngineOptions(patience=2))
    kinds = {asked.kind for fate in watched for asked in fate.asked}
    assert "work" in kinds and not {"confirm", "reveal"} & kinds
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize("verdict", ["deaf", "mute"])
def test_a_seeded_round_that_was_aborted_is_tried_again_to_the_same_bits(verdict, hall, tmp_path):
    p = plan(survivors=5)
    here(p, tmp_path / "here")
    once = []

    def fate(asked):
        if asked.kind == "work" and asked.head["request"]["round"] == 3 and not once:
            once.append(asked)
            return verdict
        return None

    Fate(hall, "n2", fate)
    result = hall.train(p, tmp_path / "there", patience=SOON)
    assert once and result.statement.lost == 0
    np.testing.assert_array_equal(flat(tmp_path / "here"), flat(tmp_path / "there"))


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("verdict", ["deaf", "mute"])
def test_one_who_is_lost_knows_what_it_has_spent(secure, verdict, hall, tmp_path, paid):
    """The others' sum is opened without it. What it spent in vain it keeps account of; a round it never heard of cost nothing."""
    Fate(hall, "n2", in_round("work", 2, verdict))
    result = hall.train(plan(secure=secure), tmp_path / "run", patience=SOON)
    assert result.rounds == 5 and result.statement.lost == 0
    true = spent(paid, result.terms.order)
    assert max(true.values()) <= rdp.budget(4.0, 1e-5, result.terms.order)
    (run,) = hall.holders["n2"]._runs.values()
    assert true[2] <= run.grants.account.after.spent == pytest.approx(true[2], rel=1e-3)  # costs come from a table


@pytest.mark.parametrize("secure", [False, True])
def test_holders_that_restart_go_on(secure, hall, tmp_path, paid):
    p = plan(secure=secure)
    here(p.replace(secure=False), tmp_path / "here")
    paid.clear()

    def fate(asked):
        hall.restart("n1")  # before every message
        Fate(hall, "n1", fate)
        return None

    Fate(hall, "n1", fate)
    result = hall.train(p, tmp_path / "there")
    assert result.rounds == 5
    assert max(spent(paid, result.terms.order).values()) <= rdp.budget(4.0, 1e-5, result.terms.order)
    if not secure:
        np.testing.assert_array_equal(flat(tmp_path / "here"), flat(tmp_path / "there"))


class Killed(BaseException):
    """As good as kill -9."""


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("kind", ["work", "confirm", "reveal"])
def test_a_killed_server_goes_on(secure, kind, hall, tmp_path, paid):
    p, count = plan(secure=secure), []
    here(p.replace(secure=False), tmp_path / "here")
    paid.clear()

    def fate(asked):
        if asked.kind == kind:
            count.append(asked)
            if len(count) == 3:
                raise Killed
        return None

    Fate(hall, "n1", fate)
    with pytest.raises(Killed):
        hall.train(p, tmp_path / "there")
    result = hall.train(p, tmp_path / "there", resume=True)
    assert result.statement.lost == secure
    if secure:
        assert max(spent(paid, result.terms.order).values()) <= rdp.budget(4.0, 1e-5, result.terms.order)
    else:  # steps that are taken again release what they released before
        np.testing.assert_array_equal(flat(tmp_path / "here"), flat(tmp_path / "there"))


def test_chaos(hall, tmp_path, paid):
    """Messages lost, holders restarted, the server killed at random: nobody spends more than its budget, or than it knows of."""
    p, dice = plan(secure=True, rounds=30), stream(5, 0, 0, "chaos")

    fate = odds(dice, Killed)
    deaths, result = hall.outlive(p, tmp_path / "run", Killed, dice, lambda name: Fate(hall, name, fate))
    assert deaths >= 2 and result.statement.lost >= 1 and result.rounds == 30 - result.statement.lost
    true = spent(paid, result.terms.order)
    assert set(true) == set(range(5)) and max(true.values()) <= rdp.budget(4.0, 1e-5, result.terms.order)
    for k, name in enumerate(hall.names):
        for run in hall.holders[name]._runs.values():
            if run.grants.account.after is not None:
                assert true[k] <= run.grants.account.after.spent <= result.terms.budget * (1 + 1e-9)


def test_an_update_that_ran_away_spoils_no_round(hall, tmp_path, monkeypatch):
    """It counts up to a public limit, and not at all where it is no number; the sum of the others is as it was."""
    from sordino.engines.flower.holder_run import HolderRun

    start = HolderRun._start_work

    def wild(self, part):
        start(self, part)
        if self.me == 1:
            load, flats = self.site.flat.load, self.site.flat

            def broken(theta):
                load(theta)
                flats.theta[0], flats.theta[1] = 1e38, math.nan

            self.site.flat.load = broken

    monkeypatch.setattr(HolderRun, "_start_work", wild)
    result = hall.train(plan(rounds=1), tmp_path / "run")
    assert result.rounds == 1
    assert np.isfinite(flat(tmp_path / "run")).all()


# ---- what a holder refuses -----------------------------------------------------------------------------


def test_a_holder_says_among_how_many_it_hides(tmp_path):
    hall = Hall(toy(clients=5), tmp_path / "holders", Policy(epsilon=8.0, secure=False, least=3))
    with pytest.raises(Refused, match="sums are opened for 2 clients; at least 3 are asked for"):
        hall.train(plan(), tmp_path / "run")
    assert hall.train(plan(survivors=3), tmp_path / "again").rounds == 5
    hall.close()


def test_an_account_goes_forward_only(hall, tmp_path):
    hall.train(plan(secure=True), tmp_path / "run")
    (run,) = hall.holders["n0"]._runs.values()
    assert run.grants.account.round == 5
    for t in (3, 5):
        with pytest.raises(Refused, match="not drawn twice"):
            run.grants.account.task(t, [], run.grants.ledger)
    seeded = Account(run.folder / "account", run.terms.__class__(plan(), run.terms.public, 1.0, 5, run.terms.order), 0)
    assert seeded.round == 5 and seeded.after.spent == run.grants.account.after.spent
    assert seeded.after.net.size and np.array_equal(seeded.after.rows, run.grants.account.after.rows)
    again = seeded.task(5, [], run.grants.ledger)
    assert again.own.turns == 5 and again.round_budget == pytest.approx(again.own.unspent + again.grant)


@pytest.mark.parametrize("damage", ["old", "empty"])
@pytest.mark.parametrize("secure", [False, True])
def test_an_account_that_fell_behind_counts_what_the_ledger_knows(secure, damage, hall, tmp_path, paid):
    """The machine went down, and of what was written last the disk has the ledger alone."""
    p, old = plan(secure=secure, rounds=6), []

    def fate(asked):
        at = asked.head.get("request", {}).get("round")
        (path,) = (tmp_path / "holders" / "n1" / "runs").glob("*/account") if at and at > 1 else (None,)
        if at == 3:
            old.append(path.read_bytes())
        if at == 5:
            path.write_bytes(old[0] if damage == "old" else b"")
            hall.restart("n1")
            Fate(hall, "n1", lambda asked: None)
        return None

    Fate(hall, "n1", fate)
    result = hall.train(p, tmp_path / "run")
    assert old and result.rounds == 6
    true, (run,) = spent(paid, result.terms.order), hall.holders["n1"]._runs.values()
    assert true[1] <= run.grants.account.after.spent <= result.terms.budget * (1 + 1e-9)
    assert true[1] < 0.98 * run.grants.account.after.spent, "what was left in the budgets is given up"


def test_a_server_that_cries_wolf_gains_nothing(hall, tmp_path, paid):
    """It says that every round was lost: what clients count as spent is more than they spent, never less."""

    class Liar(Fate):
        def __call__(self, message):
            parcel = wire.from_bytes(message)
            if parcel.kind == "work":
                request = parcel.head["request"]
                request["state"]["lost"] = list(range(1, request["round"]))
                message = wire.to_bytes(Message(parcel.kind, parcel.head, parcel.arrays))
            return super().__call__(message)

    for name in hall.names:
        Liar(hall, name)
    result = hall.train(plan(), tmp_path / "run")
    assert result.rounds == 5
    for k, cost in spent(paid, result.terms.order).items():
        (run,) = hall.holders[f"n{k}"]._runs.values()
        assert cost < run.grants.account.after.spent <= result.terms.budget * (1 + 1e-9)


def test_accounts_go_back_one_round_only(hall, tmp_path):
    with pytest.raises(BadInput, match="use checkpoint_every 1"):
        hall.train(plan(), tmp_path / "run", options=EngineOptions(checkpoint_every=2))


def test_cohorts_that_are_too_small_are_not_called(tmp_path):
    p = plan(cohort=2, rounds=10)
    sizes = [len(sampling.public_cohort(p, t)) for t in range(1, 11)]
    assert 0 in sizes and 1 not in sizes and max(sizes) >= 2
    hall = Hall(toy(clients=5), tmp_path / "holders")
    result = hall.train(p, tmp_path / "there")
    here(p, tmp_path / "here")
    assert result.rounds == 10
    np.testing.assert_array_equal(flat(tmp_path / "here"), flat(tmp_path / "there"))
    hall.close()


# ---- the other observer --------------------------------------------------------------------------------


def test_where_the_server_keeps_accounts_a_report_that_never_came_counts_as_spent(hall, tmp_path, paid):
    p = plan(observer="server", rounds=6)
    Fate(hall, "n2", in_round("work", 3, "mute"))
    result = hall.train(p, tmp_path / "run", patience=SOON)
    assert result.rounds == 6
    true = spent(paid, result.terms.order)
    kept, _ = checkpoint.load(tmp_path / "run" / "checkpoint")
    told = dict(zip(kept.clients["ids"].tolist(), kept.clients["sums"].tolist()))
    for k, (_, budget, granted, counted) in told.items():
        assert counted >= true[k] * (1 - 1e-5) and budget + counted == pytest.approx(granted)
    refused = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["cohort"] for row in refused] == [5, 5, 4, 5, 5, 5], "it is back, and its own ledger agrees"
