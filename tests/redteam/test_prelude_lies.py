"""A server that lies about the prelude: it asks twice, asks for other noise, skips it, or tells holders other statistics."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "engines" / "flower"))

from hall import QUICK, Hall, toy  # noqa: E402
from test_holder import Tap, again, edited  # noqa: E402

from sordino import EngineOptions, Plan, train  # noqa: E402
from sordino.engines.flower.engine import Patience  # noqa: E402
from sordino.models import build  # noqa: E402
from sordino.privacy.ledger import Ledger  # noqa: E402

SCHEMES = {
    "pooled": {"unit": "example"},
    "local": {"unit": "example", "observer": "server"},
    "client": {"unit": "client", "sampling": "fixed", "cohort": 3, "survivors": 2},
}


def plan(**settings) -> Plan:
    base = {"data": "toy", "clients": 4, "model": "linear", "method": "dp-fedavg", "epsilon": 3.0, "rounds": 2,
            "batch_size": 40, "lr": 0.3, "prepare": "standard"}  # fmt: skip
    return Plan(**(base | settings))


def statistics(tap):
    return [asked for asked, _ in tap.of("work") if asked.head["request"]["phase"] == "prelude"]


def grants(hall, name):
    (kept,) = (hall.folder / name / "runs").iterdir()
    return [(grant.round, grant.step) for grant in Ledger.read(kept / "ledger.jsonl")]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_across_machines_the_model_has_the_same_bits(scheme, hall, tmp_path):
    wanted = plan(**SCHEMES[scheme])
    here = train(
        build("linear", (5,), 3),
        hall.federation,
        wanted,
        out=tmp_path / "here",
        options=EngineOptions(isolate_clients=True),
    )
    there = hall.train(wanted, tmp_path / "there")
    for one, other in zip(here.model.parameters(), there.model.parameters()):
        assert np.array_equal(one.detach().numpy(), other.detach().numpy())
    assert grants(hall, "n1")[:2] == [(0, 0), (0, 1)]


def test_with_secure_noise_a_statistic_is_answered_once(hall, tmp_path):
    tap = Tap(hall, "n1")
    hall.train(plan(observer="server", secure=True), tmp_path / "run")
    before = grants(hall, "n1")
    for asked in statistics(tap):
        reply = again(hall, "n1", asked, attempt="again")
        assert reply.kind == "problem" and "granted before" in reply.head["said"]
    assert grants(hall, "n1") == before


def test_a_seeded_statistic_asked_twice_is_the_same_answer(hall, tmp_path):
    tap = Tap(hall, "n1")
    hall.train(plan(observer="server"), tmp_path / "run")
    for asked, reply in tap.of("work")[:2]:
        assert np.array_equal(again(hall, "n1", asked).arrays["codes"], reply.arrays["codes"])


LIES = {
    "multiplier": [None, 0, 1e-3, 1.0, float("nan"), True, "7"],
    "survivors": [0, 2, 10**6, None, True],
    "grid": [1.0, 2.0**60, None],
    "bound": [
        None,
        {"kind": "flat", "bound": 1e-6},
        {"kind": "flat", "bound": 1e6},
        {"kind": "unscaled", "bound": 1.0},
    ],
    "step": [-1, 2, 10**6, None, True, 0.5],
    "round": [1, -1, 3],
    "phase": ["contribute", "query", "prelude ", None],
    "released": [True, None],
    "query": [{"kind": "RawNorm", "share": 0.0}, {"kind": "CentredBit", "share": 0.5}],
    "state": [{"bound": 1.0}],
}


@pytest.mark.parametrize("scheme", ["local", "client-server"])
def test_every_lie_about_a_statistic_is_refused(scheme, hall, tmp_path):
    """The plan is seeded, so an honest request would be answered again: whatever is refused is refused for the lie."""
    unit = {"local": "example", "client-server": "client"}[scheme]
    tap = Tap(hall, "n1")
    hall.train(plan(unit=unit, observer="server", sampling="none"), tmp_path / "run")
    honest = statistics(tap)[0]
    before = grants(hall, "n1")
    assert again(hall, "n1", honest).kind == "given"
    for field, values in LIES.items():
        for i, value in enumerate(values):
            reply = again(hall, "n1", edited(honest, **{field: value}), attempt=f"{field}-{i}")
            assert reply.kind == "problem", (field, value)
    assert grants(hall, "n1") == before


def test_rounds_without_a_prelude_are_charged_with_it(hall, tmp_path):
    """A server that skips the statistics and makes some up gains nothing: the schedule is the plan's."""
    tap = Tap(hall, "n1")
    hall.train(plan(observer="server"), tmp_path / "run")
    asked = next(asked for asked, _ in tap.of("work") if asked.head["request"]["phase"] != "prelude")
    told, _ = next(iter(tap.of("prepare")))
    enrolment, _ = next(iter(tap.of("enrol")))
    other = "ab" * 8  # a run of its own
    assert again(hall, "n1", enrolment, run=other).kind == "enrolled"
    assert again(hall, "n1", asked, run=other).head["class"] == "NotEnrolled"  # not prepared
    assert again(hall, "n1", told, run=other).kind == "prepared"
    assert again(hall, "n1", asked, run=other).kind == "given"
    ledger = Ledger.read(hall.folder / "n1" / "runs" / other / "ledger.jsonl")
    assert [(grant.round, grant.step) for grant in ledger] == [(0, 0), (0, 1), (1, 0)]


def test_what_was_released_cannot_be_told_twice_or_in_another_shape(hall, tmp_path):
    tap = Tap(hall, "n1")
    hall.train(plan(observer="server"), tmp_path / "run")
    told, _ = next(iter(tap.of("prepare")))
    assert again(hall, "n1", told).kind == "prepared"
    for change in (
        {"released.0": told.arrays["released.0"] + 1.0},
        {"released.0": np.full_like(told.arrays["released.0"], np.nan)},
        {"released.1": told.arrays["released.1"][:3]},
        {"released.1": told.arrays["released.1"].astype(np.float32)},
    ):
        lie = type(told)(told.kind, told.head, {**told.arrays, **change})
        assert again(hall, "n1", lie).kind == "problem"
    fewer = type(told)(told.kind, told.head, {"released.0": told.arrays["released.0"]})
    assert again(hall, "n1", fewer).kind == "problem"


def test_lies_about_earlier_statistics_change_no_length(hall, tmp_path):
    """The second statistic clips within the ranges of the first; a server that makes them up gets bounded contributions."""
    tap = Tap(hall, "n1")
    hall.train(plan(observer="server"), tmp_path / "run")
    asked = statistics(tap)[1]
    run = next(iter(hall.holders["n1"]._runs.values()))
    for ends in (np.zeros(10), np.concatenate([np.full(5, 1e300), np.full(5, -1e300)]), np.full(10, 1e-300)):
        for rows in run.stages.contributions(1, run.part.raw(run.me)[0], [ends]):
            assert np.isfinite(rows).all() and np.linalg.norm(rows, axis=1).max() <= 1 + 1e-9
        lie = type(asked)(asked.kind, asked.head, {**asked.arrays, "released.0": ends})
        assert again(hall, "n1", lie).kind in ("given", "problem")


def test_a_holder_that_restarts_after_the_prelude_goes_on(hall, tmp_path):
    wanted = plan(rounds=3)
    whole = hall.train(wanted, tmp_path / "whole")
    second = Hall(hall.federation, tmp_path / "others")
    inner = second.direct.handlers["n2"]
    seen = []

    def restarting(message):
        reply = inner(message) if not seen else second.holders["n2"].handle(message)
        if b'"kind": "prepare"' in message and not seen:
            seen.append(1)
            second.restart("n2")
            second.direct.handlers["n2"] = restarting
        return reply

    second.direct.handlers["n2"] = restarting
    result = second.train(wanted, tmp_path / "run")
    assert seen
    for one, other in zip(whole.model.parameters(), result.model.parameters()):
        assert np.array_equal(one.detach().numpy(), other.detach().numpy())
    second.close()


def test_a_client_that_is_away_during_the_prelude_may_come_later(tmp_path):
    """Three of four are enough for the noise; the fourth is charged for the statistics all the same."""
    hall = Hall(toy(clients=4), tmp_path / "holders")
    inner, away = hall.direct.handlers["n3"], [True]

    def handler(message):
        if b'"kind": "work"' in message and b'"prelude"' in message and away[0]:
            return None
        return inner(message)

    hall.direct.handlers["n3"] = handler
    hall.train(plan(survivors=3, rounds=2), tmp_path / "run", patience=Patience(1.0, QUICK.wait))
    assert grants(hall, "n3") == [(0, 0), (0, 1), (1, 0), (2, 0)]
    hall.close()
