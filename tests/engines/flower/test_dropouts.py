"""Clients that vanish, dawdle or send rubbish at any step; servers that die. Nobody else suffers, nothing is under-counted."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from hall import Hall, odds, toy
from safetensors.numpy import load_file

from sordino import EngineOptions, Plan
from sordino.engines import Aborted
from sordino.engines.flower import wire
from sordino.engines.flower.engine import Patience
from sordino.engines.flower.wire import Message
from sordino.privacy.ledger import Ledger
from sordino.privacy.randomness import stream

SOON = Patience(deadline=1.0, wait=0.3)


def plan(**settings):
    base = {"data": "toy", "clients": 4, "model": "linear", "method": "dp-fedavg", "unit": "client", "sampling": "none",
            "observer": "secagg-server", "multiplier": 0.5, "rounds": 4, "batch_size": 8, "lr": 0.3, "survivors": 3}  # fmt: skip
    return Plan(**(base | settings))


class Fate:
    """What becomes of one holder's messages: `fate(kind, count)` says lost, or gives the answer to send instead."""

    def __init__(self, hall, name, fate):
        self.hall, self.name, self.fate, self.count = hall, name, fate, {}
        hall.direct.handlers[name] = self

    def __call__(self, message):
        kind = wire.from_bytes(message).kind
        self.count[kind] = self.count.get(kind, 0) + 1
        verdict = self.fate(kind, self.count[kind])
        if verdict == "deaf":
            return None
        reply = self.hall.holders[self.name].handle(message)
        if verdict == "mute":
            return None
        return verdict(reply) if callable(verdict) else reply


def on(which, number, verdict):
    return lambda kind, count: verdict if (kind, count) == (which, number) else None


def flat(folder):
    """All weights of the run's model."""
    tensors = load_file(folder / "run" / "model.safetensors")
    return np.concatenate([tensors[name].ravel() for name in sorted(tensors)])


@pytest.fixture
def hall(tmp_path):
    made = Hall(toy(clients=4), tmp_path / "holders")
    yield made
    made.close()


@pytest.mark.parametrize("verdict", ["deaf", "mute"])
@pytest.mark.parametrize("kind", ["keys", "letters", "work", "confirm", "reveal"])
def test_a_client_lost_at_any_step_of_a_secure_sum_costs_no_round(kind, verdict, hall, tmp_path):
    Fate(hall, "n2", on(kind, 1, verdict))
    result = hall.train(plan(), tmp_path / "run", patience=SOON)
    assert result.rounds == 4 and result.stopped is None
    ledger = Ledger.read(tmp_path / "run" / "ledger.jsonl")
    assert [grant.round for grant in ledger] == [1, 2, 3, 4] and all(grant.attempt == 1 for grant in ledger)


def test_the_sum_of_the_survivors_is_exact(tmp_path):
    """With next to no noise, losing a client changes the first step to the mean of the others' updates over all four."""
    models = {}
    for lost in (None, "n2"):
        folder = tmp_path / str(lost)
        hall = Hall(toy(clients=4), folder / "holders")
        if lost:
            Fate(hall, lost, on("work", 1, "mute"))
        hall.train(plan(rounds=1, multiplier=1e-9, bound=10.0), folder / "run", patience=SOON)
        models[lost] = flat(folder)
        hall.close()
    alone = Hall(toy(clients=4), tmp_path / "alone" / "holders")
    for name in ("n0", "n1", "n3"):
        Fate(alone, name, lambda kind, count: "mute" if kind == "work" else None)
    p = plan(rounds=1, multiplier=1e-9, bound=10.0, observer="server", survivors=None)
    alone.train(p, tmp_path / "alone" / "run", patience=SOON)
    np.testing.assert_allclose(
        models[None] - models["n2"], flat(tmp_path / "alone"), atol=1e-6
    )  # linear starts at zero
    alone.close()


def test_too_few_survivors_abort_and_open_nothing(hall, tmp_path, caplog):
    """Two of four are lost where the noise is cut for three: no share is ever asked for."""
    asked = []

    def watch(kind, count):
        asked.append(kind)
        return None

    for name in ("n0", "n1"):
        Fate(hall, name, watch)
    for name in ("n2", "n3"):
        Fate(hall, name, lambda kind, count: "mute" if kind == "work" else None)
    with pytest.raises(Aborted), caplog.at_level(logging.WARNING):
        hall.train(plan(), tmp_path / "run", patience=SOON, options=EngineOptions(patience=2))
    assert "work" in asked and "confirm" not in asked and "reveal" not in asked
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert "nothing was opened" in caplog.text


def test_an_aborted_round_is_tried_again_unless_its_noise_is_secure(tmp_path):
    for secure in (False, True):
        folder = tmp_path / str(secure)
        hall = Hall(toy(clients=4), folder / "holders")
        for name in ("n2", "n3"):
            Fate(hall, name, on("work", 2, "mute"))
        result = hall.train(plan(secure=secure), folder / "run", patience=SOON)
        grants = list(Ledger.read(folder / "run" / "ledger.jsonl"))
        assert len(grants) == 4
        assert [(g.round, g.attempt) for g in grants] == [(1, 1), (2, 1), (3, 1), (4, 1)]
        assert (result.rounds, result.statement.lost) == ((3, 1) if secure else (4, 0))
        for name in hall.names:
            (kept,) = (folder / "holders" / name / "runs").iterdir()
            assert len(list(Ledger.read(kept / "ledger.jsonl"))) == 4
        hall.close()


def rubbish(reply, make):
    """The same answer with other arrays."""
    parcel = wire.from_bytes(reply)
    return wire.to_bytes(Message(parcel.kind, parcel.head, make(parcel.arrays)))


SENDS = {
    "the wrong shape": lambda arrays: {"codes": arrays["codes"][:-1]},
    "the wrong type": lambda arrays: {"codes": arrays["codes"].astype(np.float64)},
    "not a number": lambda arrays: {"codes": np.full(arrays["codes"].size, np.nan)},
    "a huge vector": lambda arrays: {"codes": np.full(arrays["codes"].size, 2**61, np.int64)},
    "a vector beyond the bound": lambda arrays: {"codes": arrays["codes"] * 10**6},
    "nothing": lambda arrays: {},
}


@pytest.mark.parametrize("observer", ["public", "server"])
@pytest.mark.parametrize("what", SENDS)
def test_a_client_that_sends_rubbish_is_left_out_and_named(what, observer, hall, tmp_path, caplog):
    p = plan(observer=observer, survivors=None, rounds=1, multiplier=1e-9)
    Fate(hall, "n2", on("work", 1, lambda reply: rubbish(reply, SENDS[what])))
    with caplog.at_level(logging.ERROR):
        hall.train(p, tmp_path / "bad")
    other = Hall(toy(clients=4), tmp_path / "others")
    Fate(other, "n2", on("work", 1, "mute"))
    other.train(p, tmp_path / "none", patience=SOON)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("bad", "none"))
    for key in a:
        np.testing.assert_array_equal(a[key], b[key])
    assert "n2 was refused" in caplog.text
    other.close()


def test_masked_rubbish_of_the_wrong_shape_is_left_out(hall, tmp_path, caplog):
    Fate(hall, "n2", on("work", 1, lambda reply: rubbish(reply, lambda arrays: {"masked": arrays["masked"][1:]})))
    with caplog.at_level(logging.ERROR):
        assert hall.train(plan(), tmp_path / "run").rounds == 4
    assert "n2 was refused" in caplog.text


def test_wrong_shares_are_found_out_and_the_liar_is_named(hall, tmp_path, caplog):
    def lie(reply):
        parcel = wire.from_bytes(reply)
        return wire.to_bytes(parcel.but(shares=dict.fromkeys(parcel.head["shares"], "00" * 32)))

    Fate(hall, "n0", on("reveal", 1, lie))
    with caplog.at_level(logging.ERROR):
        assert hall.train(plan(), tmp_path / "run").rounds == 4
    assert "n0 handed out wrong shares" in caplog.text


def test_tampered_letters_are_logged_where_they_arrive(hall, tmp_path, caplog):
    def tamper(reply):
        parcel = wire.from_bytes(reply)
        letters = {k: text[:-2] + ("00" if text[-2:] != "00" else "01") for k, text in parcel.head["letters"].items()}
        return wire.to_bytes(parcel.but(letters=letters))

    Fate(hall, "n0", on("letters", 1, tamper))
    with caplog.at_level(logging.WARNING), pytest.raises(Aborted):
        hall.train(plan(rounds=1), tmp_path / "run", patience=SOON, options=EngineOptions(patience=1))
    assert "letter of client 0 was tampered with" in caplog.text


def test_a_late_client_is_not_waited_for_and_comes_back(hall, tmp_path):
    fate = Fate(hall, "n2", on("work", 2, "mute"))
    result = hall.train(plan(observer="server", survivors=None, rounds=5), tmp_path / "run", patience=SOON)
    assert result.rounds == 5
    assert fate.count["work"] == 5 and fate.count["hello"] >= 2  # greeted again after it was late, and back


def test_fewer_than_the_least_abort(hall, tmp_path):
    for name in ("n1", "n2", "n3"):
        Fate(hall, name, lambda kind, count: "mute" if kind == "work" else None)
    p = plan(observer="public", sampling="poisson", survivors=None)
    with pytest.raises(Aborted, match="1 of 4|only 1|only 0"):
        hall.train(p, tmp_path / "run", patience=Patience(1.0, 0.3, least=2), options=EngineOptions(patience=1))


def test_a_missing_client_is_named_before_anything_starts(hall, tmp_path):
    del hall.direct.handlers["n3"]
    with pytest.raises(Exception, match="did not come within 0.3 s: n3"):
        hall.train(plan(), tmp_path / "run", patience=SOON)


def test_a_threshold_counts_those_in_league_with_the_server(hall):
    from sordino.engines.flower.secure import SecureSums

    def need(members, survivors, colluders):
        return SecureSums(hall.post, Patience(colluders=colluders), 10).threshold(members, survivors)

    assert need(10, 6, 0) == 6 and need(10, 6, 2) == 8  # honest noise beside theirs
    assert need(10, 1, 0) == 6 and need(10, 1, 3) == 7  # and no two stories


# ---- servers that die ----------------------------------------------------------------------------


class Killed(BaseException):
    """As good as kill -9: nothing of the program's own handling sees it coming."""


@pytest.mark.parametrize("observer", ["server", "secagg-server"])
@pytest.mark.parametrize("moment", [("work", 2), ("work", 3), ("confirm", 1), ("enrol", 1)])
def test_a_killed_server_goes_on_to_the_same_model(observer, moment, tmp_path):
    if observer == "server" and moment[0] == "confirm":
        pytest.skip("nothing is confirmed without secure aggregation")
    p = plan(observer=observer, survivors=3 if observer == "secagg-server" else None)
    whole = Hall(toy(clients=4), tmp_path / "whole" / "holders")
    whole.train(p, tmp_path / "whole" / "run")
    hall = Hall(toy(clients=4), tmp_path / "cut" / "holders")

    def fate(kind, count):
        if (kind, count) == moment:
            raise Killed
        return None

    Fate(hall, "n1", fate)
    with pytest.raises(Killed):
        hall.train(p, tmp_path / "cut" / "run")
    hall.direct.handlers["n1"] = hall.holders["n1"].handle
    hall.train(p, tmp_path / "cut" / "run", resume=True)
    a, b = (load_file(tmp_path / name / "run" / "model.safetensors") for name in ("whole", "cut"))
    for key in a:
        np.testing.assert_allclose(a[key], b[key], atol=1e-6)
    for name in hall.names:
        (kept,) = (tmp_path / "cut" / "holders" / name / "runs").iterdir()
        assert [g.round for g in Ledger.read(kept / "ledger.jsonl")] == [1, 2, 3, 4]
    hall.close()
    whole.close()


def test_chaos(tmp_path):
    """Messages lost, holders restarted and the server killed at random; the ledgers end up right on both sides."""
    p = plan(method="adact", rounds=50, secure=True, multiplier=2.0)
    hall = Hall(toy(clients=4), tmp_path / "holders")
    dice = stream(7, 0, 0, "chaos")

    fate = odds(dice, Killed)
    deaths, result = hall.outlive(p, tmp_path / "run", Killed, dice, lambda name: Fate(hall, name, fate))
    assert deaths >= 3, "the seed should kill the server a few times"
    grants = list(Ledger.read(tmp_path / "run" / "ledger.jsonl"))
    assert len(grants) <= 50 and result.rounds <= 50
    finished = [row["round"] for row in map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())]
    assert [g.round for g in grants] == list(range(1, 51)) and all(g.attempt == 1 for g in grants)
    assert result.rounds == 50 - result.statement.lost and result.statement.lost >= 1
    assert len(set(finished)) == len(finished) >= 50 - deaths - result.statement.lost
    for name in hall.names:
        (kept,) = (tmp_path / "holders" / name / "runs").iterdir()
        own = list(Ledger.read(kept / "ledger.jsonl"))
        assert len(own) <= len(grants)  # a holder never counts more tries than the server made
        assert hall.holders[name].allowance.epsilon == result.epsilon
    hall.close()
