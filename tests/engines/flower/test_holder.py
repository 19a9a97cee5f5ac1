"""A holder answers everything, gives away nothing that it should not, and remembers what it has said."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np
import pytest
from hall import ANYTHING, Hall, toy

from sordino import Plan
from sordino.engines.flower import wire
from sordino.engines.flower.policy import Policy, Refused
from sordino.engines.flower.wire import Message
from sordino.federation.sampling import Draws
from sordino.privacy.ledger import Ledger
from sordino.schemes.request import CONTRIBUTE, QUERY


def plan(**settings):
    base = {"data": "toy", "clients": 3, "model": "linear", "method": "dp-fedavg", "unit": "client", "sampling": "none",
            "observer": "server", "multiplier": 2.0, "rounds": 4, "batch_size": 8, "lr": 0.3}  # fmt: skip
    return Plan(**(base | settings))


@pytest.fixture
def hall(tmp_path):
    made = Hall(toy(clients=3), tmp_path / "holders")
    yield made
    made.close()


class Tap:
    """Between the server and one holder: keeps what passes, and may change it."""

    def __init__(self, hall, name, change=None):
        self.passed, self.inner, self.change = [], hall.holders[name].handle, change
        hall.direct.handlers[name] = self

    def __call__(self, message):
        if self.change is not None:
            message = wire.to_bytes(self.change(wire.from_bytes(message)))
        reply = self.inner(message)
        self.passed.append((wire.from_bytes(message), wire.from_bytes(reply)))
        return reply

    def of(self, kind):
        return [(asked, reply) for asked, reply in self.passed if asked.kind == kind]


def again(hall, name, asked, **head):
    """The same message under a new number."""
    number = hall.holders[name]._last + 1
    return wire.from_bytes(hall.holders[name].handle(wire.to_bytes(asked.but(number=number, **head))))


def edited(asked, **fields):
    """A work message whose request says something else."""
    return asked.but(request=asked.head["request"] | fields)


def test_a_run_leaves_a_ledger_and_a_statement_at_every_holder(hall, tmp_path):
    result = hall.train(plan(), tmp_path / "run")
    for name in hall.names:
        (kept,) = (tmp_path / "holders" / name / "runs").iterdir()
        ledger = Ledger.read(kept / "ledger.jsonl")
        assert [grant.round for grant in ledger] == [1, 2, 3, 4]
        assert (kept / "statement.txt").read_text() == result.statement.text()
        assert hall.holders[name].allowance.runs == {kept.name: (result.epsilon, 1e-5)}
    assert "A deployment" in result.statement.text()


def test_a_plan_against_the_policy_is_refused_before_anything_is_sent(tmp_path):
    hall = Hall(toy(clients=3), tmp_path / "holders", dataclasses.replace(ANYTHING, epsilon=0.1))
    with pytest.raises(Refused, match="n0 refuses: epsilon .* is more than the 0.1"):
        hall.train(plan(), tmp_path / "run")
    assert not (tmp_path / "run" / "ledger.jsonl").exists()
    assert all(not holder.allowance.runs for holder in hall.holders.values())
    hall.close()


def test_what_one_holder_refuses_costs_the_others_nothing(tmp_path):
    hall = Hall(toy(clients=3), tmp_path / "holders")
    hall.holders["n2"].policy = dataclasses.replace(ANYTHING, units=("example",))
    taps = {name: Tap(hall, name) for name in hall.names}
    with pytest.raises(Refused, match="n2 refuses: unit client is not allowed"):
        hall.train(plan(), tmp_path / "run")
    for name, holder in hall.holders.items():
        assert taps[name].of("propose") and not taps[name].of("enrol") and not holder.allowance.runs
    hall.close()


def test_a_spent_budget_refuses_whatever_the_server_says(tmp_path):
    """Two runs fit the allowance, the third does not, though each would by itself."""
    first = plan(multiplier=8.0)
    hall = Hall(toy(clients=3), tmp_path / "holders")
    cost = hall.train(first, tmp_path / "run1").epsilon
    hall.close()
    hall = Hall(toy(clients=3), tmp_path / "holders", dataclasses.replace(ANYTHING, epsilon=2.5 * cost))
    hall.train(first.replace(seed=1), tmp_path / "run2")
    with pytest.raises(Refused, match="on top of"):
        hall.train(first.replace(seed=2), tmp_path / "run3")
    hall.close()


def test_a_replayed_message_is_refused_and_logged(hall, tmp_path, caplog):
    tap = Tap(hall, "n1")
    hall.train(plan(), tmp_path / "run")
    asked, _ = tap.of("work")[0]
    with caplog.at_level(logging.ERROR):
        reply = wire.from_bytes(hall.holders["n1"].handle(wire.to_bytes(asked)))
    assert reply.kind == "problem" and reply.head["class"] == "Untrusted"
    assert "played again" in caplog.text


def test_an_answered_phase_is_not_answered_again(hall, tmp_path):
    tap = Tap(hall, "n1")
    hall.train(plan(rounds=1), tmp_path / "run")
    asked, _ = tap.of("work")[0]
    reply = again(hall, "n1", asked)
    assert reply.head["class"] == "Refused" and "answered before" in reply.head["said"]


def test_another_try_is_charged_or_refused(hall, tmp_path):
    """Seeded noise may be sent again; secure noise is new, is charged, and ends with the budget."""
    tap = Tap(hall, "n1")
    hall.train(plan(rounds=2), tmp_path / "seeded")
    asked, first = tap.of("work")[0]
    reply = again(hall, "n1", asked, attempt="another")
    np.testing.assert_array_equal(reply.arrays["codes"], first.arrays["codes"])

    tap.passed.clear()
    hall.train(plan(rounds=2, secure=True, seed=1), tmp_path / "secure")
    asked, _ = tap.of("work")[0]
    reply = again(hall, "n1", asked, attempt="another")
    assert reply.head["class"] == "BudgetRefused"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"multiplier": 1.9}, "less noise"),
        ({"multiplier": None}, "add noise"),
        ({"bound": None}, "not sent without a bound"),
        ({"survivors": 2}, "divided among 2"),
        ({"round": 5}, "no round 5"),
        ({"query": {"kind": "RawNorm", "share": 0.0}}, "exact norms"),
        ({"query": {"kind": "CentredBit", "share": 0.05}, "query_multiplier": None}, "does not ask a CentredBit"),
        ({"bound": {"kind": "unscaled", "bound": 1e3, "reference": 1e-6}}, "clips by a flat bound"),
        ({"released": True}, "without a bound"),
        ({"grid": 2.0**60}, "another grid"),
        ({"multiplier": 5e5}, "more noise"),
    ],
)
def test_a_request_that_asks_for_more_than_the_plan_is_refused(fields, reason, hall, tmp_path):
    tap = Tap(hall, "n1")
    hall.train(plan(rounds=1), tmp_path / "run")
    asked, _ = tap.of("work")[0]
    reply = again(hall, "n1", edited(asked, **fields), attempt="greedy")
    assert reply.head["class"] == "Refused" and reason in reply.head["said"], reply.head


def test_two_phases_together_may_not_ask_for_more_than_the_round(tmp_path):
    """The question before takes its share; asking for the sum at the whole round's multiplier besides is too much."""
    hall = Hall(toy(clients=3), tmp_path / "holders")
    tap = Tap(hall, "n1")
    hall.train(plan(method="adact", options={"tau": 0.5}, rounds=1), tmp_path / "run")
    ask = next(a for a, _ in tap.of("work") if a.head["request"]["phase"] == QUERY)
    give = next(a for a, _ in tap.of("work") if a.head["request"]["phase"] == CONTRIBUTE)
    assert again(hall, "n1", ask, attempt="greedy").kind == "given"
    reply = again(hall, "n1", edited(give, multiplier=2.0), attempt="greedy")
    assert reply.head["class"] == "Refused" and "less noise" in reply.head["said"]
    hall.close()


def test_a_client_that_is_not_drawn_does_not_answer(tmp_path):
    hall = Hall(toy(clients=3), tmp_path / "holders")
    taps = {name: Tap(hall, name) for name in hall.names}
    hall.train(plan(sampling="fixed", cohort=1, rounds=1), tmp_path / "run")
    (drawn,) = [name for name, tap in taps.items() if tap.of("work")]
    asked, _ = taps[drawn].of("work")[0]
    other = next(name for name in hall.names if name != drawn)
    reply = again(hall, other, asked.but(to=other))
    assert reply.head["class"] == "Refused" and "not in the cohort" in reply.head["said"]
    hall.close()


def test_the_text_of_an_error_stays_with_its_operator(hall, tmp_path, caplog, monkeypatch):
    def broken(self, request, errand=None):
        raise ValueError("patient 4711 has no date of birth")

    monkeypatch.setattr("sordino.engines.flower.holder_run.HolderRun.compute", broken)
    tap = Tap(hall, "n1")
    with pytest.raises(Exception, match="clients are left"), caplog.at_level(logging.ERROR):
        hall.train(plan(), tmp_path / "run", options=None)
    problem = next(reply for _, reply in tap.passed if reply.kind == "problem")
    assert problem.head["class"] == "ValueError" and problem.head["client"] == "n1" and not problem.head["said"]
    assert "4711" not in wire.to_bytes(problem).decode(errors="replace")
    assert "4711" in caplog.text and "Traceback" in caplog.text


def test_garbage_is_answered_with_a_problem(hall):
    for message in (b"", b"nonsense", wire.to_bytes(Message("work")), wire.to_bytes(Message("steal", {"number": 1}))):
        assert wire.from_bytes(hall.holders["n0"].handle(message)).kind == "problem"


def test_a_message_about_an_unknown_run_is_told_apart(hall):
    for run in ("deadbeef", "../../etc"):
        reply = wire.from_bytes(
            hall.holders["n0"].handle(wire.to_bytes(Message("work", {"number": 10**19, "run": run})))
        )
        assert reply.head["class"] in ("NotEnrolled", "Untrusted")
        hall.holders["n0"]._last = 0


def test_a_run_cannot_change_its_plan(hall, tmp_path):
    tap = Tap(hall, "n1")
    hall.train(plan(), tmp_path / "run")
    asked, _ = tap.of("enrol")[0]
    for change in ({"rounds": 9}, {"multiplier": 1.0}):
        reply = again(hall, "n1", asked.but(plan=asked.head["plan"] | change))
        assert reply.head["class"] == "Refused" and "cannot change" in reply.head["said"]


@pytest.mark.parametrize("observer", ["server", "secagg-server"])
def test_a_holder_that_restarts_between_the_phases_goes_on_to_the_same_bits(observer, tmp_path):
    results = []
    for restarts in (False, True):
        folder = tmp_path / str(restarts)
        hall = Hall(toy(clients=3), folder / "holders")

        def handle(message, hall=hall, restarts=restarts):
            if restarts:
                hall.restart("n1")
                hall.direct.handlers["n1"] = handle
            return hall.holders["n1"].handle(message)

        hall.direct.handlers["n1"] = handle
        hall.train(plan(method="adact", observer=observer, rounds=2), folder / "run")
        results.append((folder / "run" / "model.safetensors").read_bytes())
        hall.close()
    assert results[0] == results[1]


def test_under_secure_noise_draws_are_the_holders_secret(tmp_path):
    """The server knows the plan's seed; it must not know from it which records were drawn."""
    hall = Hall(toy(clients=3), tmp_path / "holders")
    hall.train(plan(unit="example", observer="secagg-server", multiplier=1.0, secure=True), tmp_path / "run")
    draws = [next(iter(holder._runs.values())).site.draws for holder in hall.holders.values()]
    drawn = {tuple(one.records(1, 0, 500, 0.5)) for one in draws}
    assert len(drawn) == 3 and tuple(Draws(plan()).records(1, 0, 500, 0.5)) not in drawn
    hall.close()
    hall = Hall(toy(clients=3), tmp_path / "open")
    hall.train(plan(unit="example", observer="secagg-server", multiplier=1.0), tmp_path / "run2")
    draws = [next(iter(holder._runs.values())).site.draws for holder in hall.holders.values()]
    assert {tuple(one.records(1, 0, 500, 0.5)) for one in draws} == {tuple(Draws(plan()).records(1, 0, 500, 0.5))}
    hall.close()


def test_under_secure_aggregation_nothing_leaves_without_a_mask(tmp_path):
    hall = Hall(toy(clients=3), tmp_path / "holders")
    tap = Tap(hall, "n1")
    hall.train(plan(method="adact", options={"tau": 0.5}, observer="secagg-server", rounds=2), tmp_path / "run")
    replies = [reply for _, reply in tap.of("work")]
    assert len(replies) >= 3 and all(set(reply.arrays) == {"masked"} for reply in replies)
    asked = next(asked for asked, _ in tap.of("work") if "theta" in asked.arrays)
    asked = Message("work", {k: v for k, v in asked.head.items() if k != "letters"}, asked.arrays)
    bare = {k: v for k, v in asked.head.items() if k != "session"}
    reply = again(hall, "n1", Message("work", bare, asked.arrays), attempt="bare")
    assert reply.kind == "problem"
    reply = again(hall, "n1", asked, attempt="another")
    assert reply.kind == "problem" and reply.head["class"] == "Broken"  # masked before
    hall.close()


def test_a_roster_with_too_low_a_threshold_is_refused(tmp_path):
    hall = Hall(toy(clients=3), tmp_path / "holders", dataclasses.replace(ANYTHING, least=3))
    tap = Tap(hall, "n1")
    hall.train(plan(observer="secagg-server", rounds=1), tmp_path / "run")
    asked, _ = tap.of("keys")[0]
    low = asked.head["roster"] | {"threshold": 2, "session": asked.head["roster"]["session"] + "x"}
    reply = again(hall, "n1", asked.but(roster=low))
    assert reply.head["class"] == "Refused" and "opened with 2" in reply.head["said"]
    hall.close()


def test_towards_the_public_a_client_is_charged_for_rounds_it_was_not_drawn_for(tmp_path):
    hall = Hall(toy(clients=3), tmp_path / "holders")
    taps = {name: Tap(hall, name) for name in hall.names}
    p = plan(observer="public", sampling="poisson", cohort=1, rounds=8, multiplier=3.0)
    hall.train(p, tmp_path / "run")
    for name, tap in taps.items():
        drawn = [asked.head["request"]["round"] for asked, _ in tap.of("work")]
        (kept,) = (tmp_path / "holders" / name / "runs").iterdir()
        charged = [grant.round for grant in Ledger.read(kept / "ledger.jsonl")]
        assert charged == list(range(1, max(drawn, default=0) + 1))
    hall.close()


def test_the_default_policy_does_not_trust_the_server(tmp_path):
    hall = Hall(toy(clients=3), tmp_path / "holders", Policy())
    with pytest.raises(Refused, match="observer public is not allowed"):
        hall.train(plan(observer="public", sampling="poisson"), tmp_path / "run")
    hall.close()
