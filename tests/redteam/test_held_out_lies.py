"""Attacks on the test of held-out records: a server that asks twice or lies, a holder that lies, a neighbour chosen to hurt."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "engines" / "flower"))

from hall import toy  # noqa: E402
from test_holder import Tap, again, edited  # noqa: E402
from torch import nn  # noqa: E402

from sordino import EngineOptions, Plan, train  # noqa: E402
from sordino.clients.alone import Alone  # noqa: E402
from sordino.engines.flower import wire  # noqa: E402
from sordino.federation import held_out as share  # noqa: E402
from sordino.federation.sizes import PublicSizes  # noqa: E402
from sordino.models import build  # noqa: E402
from sordino.noisy_figures import Measure  # noqa: E402
from sordino.privacy.ledger import Ledger  # noqa: E402
from sordino.schemes import held_out, settle  # noqa: E402

SCHEMES = {
    "pooled": {},
    "local": {"observer": "server"},
    "client": {"unit": "client", "sampling": "fixed", "cohort": 3, "survivors": 2},
}


def plan(**settings) -> Plan:
    base = {"data": "toy", "clients": 4, "model": "linear", "method": "dp-fedavg", "epsilon": 3.0, "rounds": 2,
            "batch_size": 40, "lr": 0.3, "test": "holdout=0.2"}  # fmt: skip
    return Plan(**(base | settings))


def asked_of(tap):
    return [asked for asked, _ in tap.of("work") if asked.head["request"]["phase"] == "held-out"]


def grants(hall, name):
    (kept,) = (hall.folder / name / "runs").iterdir()
    return [(grant.round, grant.attempt) for grant in Ledger.read(kept / "held_out.jsonl")]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_across_machines_the_figures_are_the_same(scheme, hall, tmp_path):
    wanted = plan(**SCHEMES[scheme])
    alone = EngineOptions(isolate_clients=True)
    here = train(build("linear", (5,), 3), hall.federation, wanted, out=tmp_path / "here", options=alone)
    there = hall.train(wanted, tmp_path / "there")
    assert there.held_out == here.held_out and there.epsilon == here.epsilon
    assert all(grants(hall, name) == [(0, 1)] for name in hall.names)


def test_with_secure_noise_the_test_is_answered_once(hall, tmp_path):
    tap = Tap(hall, "n1")
    hall.train(plan(observer="server", secure=True), tmp_path / "run")
    (asked,) = asked_of(tap)
    other = type(asked)(asked.kind, asked.head, {**asked.arrays, "theta": asked.arrays["theta"] * 2})
    for lie in (asked, other):
        reply = again(hall, "n1", lie, attempt="again")
        assert reply.kind == "problem" and "granted before" in reply.head["said"]
    hall.restart("n1")
    assert again(hall, "n1", asked).kind == "problem"
    assert grants(hall, "n1") == [(0, 1)]


LIES = {
    "multiplier": [None, 0, 1e-3, float("nan"), True],
    "survivors": [0, 2, 10**6],
    "grid": [1.0, 2.0**60],
    "bound": [None, {"kind": "flat", "bound": 1e6}, {"kind": "unscaled", "bound": 1.0}],
    "step": [1, -1, True],
    "round": [1, -1],
    "phase": ["contribute", "prelude"],
    "released": [True],
    "query": [{"kind": "RawNorm", "share": 0.0}],
    "state": [{"bound": 1.0}],
}


def test_every_lie_about_the_test_is_refused(hall, tmp_path):
    """The plan is seeded, so an honest request would be answered again: whatever is refused is refused for the lie."""
    tap = Tap(hall, "n1")
    hall.train(plan(observer="server"), tmp_path / "run")
    (honest,) = asked_of(tap)
    assert again(hall, "n1", honest).kind == "given"
    for field, values in LIES.items():
        for i, value in enumerate(values):
            reply = again(hall, "n1", edited(honest, **{field: value}), attempt=f"{field}-{i}")
            assert reply.kind == "problem", (field, value)
    blind = type(honest)(honest.kind, honest.head, {})
    assert again(hall, "n1", blind).kind == "problem"
    enrolment, _ = next(iter(tap.of("propose")))
    facts = enrolment.head["facts"]
    for held in ([], [0] * 4, [n + 1 for n in facts["held_out"]], [10**6] * 4, [-1] * 4):
        lie = enrolment.but(run="ab" * 8, facts=facts | {"held_out": held})
        assert again(hall, "n1", lie).kind == "problem", held
    without = enrolment.but(run="cd" * 8, plan=enrolment.head["plan"] | {"test": None})
    assert again(hall, "n1", without).kind == "problem"  # records put aside that no plan asks for


def test_a_holder_that_shouts_is_not_heard(hall, tmp_path, caplog):
    """A holder counts its records a thousand times over; the others' figures are not drowned by it."""
    inner = hall.holders["n2"].handle

    def shout(message):
        reply = inner(message)
        if b'"held-out"' not in message:
            return reply
        said = wire.from_bytes(reply)
        return wire.to_bytes(type(said)(said.kind, said.head, {"codes": said.arrays["codes"] + (1 << 52)}))

    hall.direct.handlers["n2"] = shout
    loud = hall.train(plan(observer="server"), tmp_path / "run").held_out
    assert "the contribution of n2 was refused: it is longer" in caplog.text
    assert loud.tested == 16 and "1 of 4 clients" in loud.warnings[0]  # divided by the public number all the same


class Mixes(nn.Module):
    """Its scores follow the whole batch, and a count of all records that it ever saw."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)
        self.seen, self.log = 0, []

    def forward(self, x):
        self.seen += int((x > 50).any())
        self.log.append(x.mean().item())
        return self.layer(x) + 1e3 * torch.tensor([x.mean(), float(self.seen), sum(self.log)])


@pytest.mark.parametrize("network", [Mixes, lambda: build("linear", (5,), 3)])
def test_one_held_out_record_moves_the_sum_by_at_most_one(network):
    """The model is the attacker's own. A neighbour differs in one held-out record; or in a trained one, which moves nothing."""
    whole, wanted, measure = toy(clients=4), plan(observer="public"), Measure("classification", ("0", "1", "2"))
    apart = share.hold_out(whole, 0.2, 0)
    terms = settle(wanted, PublicSizes.of(apart))
    request, model = held_out.request_for(terms), Alone(network())

    def total(federation):
        codes = np.zeros(measure.length, np.int64)
        for k in range(4):
            held_out.contribute(request, wanted, measure, model, k, *federation.held_out[k], codes)
        return request.grid.decode(codes)

    def without(row):
        """Zero-out: what this record contributes is left out, and nothing else."""
        codes = np.zeros(measure.length, np.int64)
        for k in range(4):
            ax, ay = apart.held_out[k]
            keep = np.arange(len(ay)) != (row if k == 0 else -1)
            held_out.contribute(request, wanted, measure, model, k, ax[keep], ay[keep], codes)
        return request.grid.decode(codes)

    with_all = total(apart)
    for row in range(apart.held_out.size(0)):
        assert 0.99 < np.linalg.norm(with_all - without(row)) <= 1 + 1e-9
    pairs = [[np.array(a) for a in whole.raw(k)] for k in range(4)]
    place = int(np.flatnonzero(~share.places(0.2, 0, 0, whole.size(0)))[0])
    pairs[0][0][place] = 100.0  # one that is trained on
    other = share.hold_out(type(whole).from_arrays(pairs, classes=3), 0.2, 0)
    assert np.array_equal(total(other), with_all)


def test_a_lost_answer_is_not_asked_for_again_with_secure_noise(hall, tmp_path):
    """The server dies with the answers in its hands: it neither has the figures nor gets others."""
    tap = Tap(hall, "n1")
    hall.train(plan(observer="server", secure=True), tmp_path / "run")
    assert len(asked_of(tap)) == 1
    (tmp_path / "run" / "held_out.json").unlink()
    again_there = hall.train(plan(observer="server", secure=True), tmp_path / "run", resume=True)
    assert again_there.held_out is None and len(asked_of(tap)) == 1


@pytest.mark.parametrize("scheme", ["local", "client"])
def test_figures_between_clients_are_the_same_across_machines_and_cost_no_second_release(scheme, hall, tmp_path):
    wanted, alone = plan(fairness="noisy", **SCHEMES[scheme]), EngineOptions(isolate_clients=True)
    here = train(build("linear", (5,), 3), hall.federation, wanted, out=tmp_path / "here", options=alone)
    tap = Tap(hall, "n1")
    there = hall.train(wanted, tmp_path / "there")
    assert there.held_out == here.held_out and there.held_out.between is not None
    without = settle(wanted.replace(fairness="public"), here.terms.public)
    assert there.epsilon == without.spent.epsilon and without.held_out == here.terms.held_out
    (asked,) = asked_of(tap)
    assert all(grants(hall, name) == [(0, 1)] for name in hall.names)
