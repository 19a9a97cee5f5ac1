"""A server that lies: every field of every request to a data holder is changed, and nothing leaves below the granted noise.

The harness takes an honest request out of a real run, puts one or several lies into it, and hands it to the holder as a
new try. The holder refuses, or what it sends carries the noise of its own plan for the bound that it clipped to.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "engines" / "flower"))

from hall import Hall, toy  # noqa: E402
from test_holder import Tap, again, edited  # noqa: E402

from sordino import Plan  # noqa: E402
from sordino.engines.flower import wire  # noqa: E402
from sordino.errors import SordinoError  # noqa: E402
from sordino.privacy.randomness import stream  # noqa: E402
from sordino.secagg.collector import Collector, SecureSum  # noqa: E402
from sordino.secagg.member import Member  # noqa: E402
from sordino.secagg.roster import Broken, Roster  # noqa: E402

Z, WIDE = 2.0, 200  # features, so that the size of noise can be measured on one message
BOUNDS = [
    None, {"kind": "flat", "bound": 1e-9}, {"kind": "flat", "bound": 1e9}, {"kind": "flat", "bound": -1.0},
    {"kind": "flat", "bound": float("nan")}, {"kind": "unscaled", "bound": 1e3, "reference": 1e-6}, {"kind": "l1", "bound": 1.0},
    {"kind": "automatic", "bound": 1.0, "gamma": 1e-9}, {"kind": "l2-for-laplace", "bound": 1.0}, {"kind": "nothing"}, 7, "flat",
    {"kind": "grouped", "sizes": [603], "bounds": [1e6]},
]  # fmt: skip
QUERIES = [
    {"kind": "RawNorm", "share": 0.0}, {"kind": "RawBit", "share": 0.0}, {"kind": "CentredBit", "share": 0.05},
    {"kind": "CentredBit", "share": 1.5}, {"kind": "HistogramBin", "edges": [1.0, 2.0], "share": 0.5}, {"kind": "FixedPoint"},
    {"kind": "BoundedValue", "cap": 1e-9, "share": 0.99}, {"kind": "Query"}, 3,
]  # fmt: skip
NUMBERS = [None, 0, -1, 1e-9, 0.5, 1.9, 2.1, 5e5, 1e300, float("nan"), float("inf"), True, "2", [2.0]]
LIES = {
    "bound": BOUNDS,
    "query": QUERIES,
    "multiplier": NUMBERS,
    "query_multiplier": NUMBERS,
    "grid": [1.0, 2.0**60, 2.0**-60, 3.0, 0.0, None, "1"],
    "query_grid": [1.0, 2.0**60, 3.0, "1"],
    "survivors": [0, 2, 1000, 10**9, -1, 1.5, None, True],
    "released": [True, 1, None, "no"],
    "round": [0, -1, 10**6, 2.5, None, True, "1"],
    "phase": ["ask", "query", "contribute", "", None, 3],
    "state": [{"bound": 1e9}, None, [], {"order": 2}],
}
SCHEMES = {
    "client": {"unit": "client", "observer": "server"},
    "adact": {"unit": "client", "observer": "server", "method": "adact"},
    "local": {"unit": "example", "observer": "server"},
}


def plan(**settings) -> Plan:
    base = {"data": "toy", "clients": 3, "model": "linear", "method": "dp-fedavg", "sampling": "none", "multiplier": Z,
            "rounds": 2, "batch_size": 8, "lr": 0.3}  # fmt: skip
    return Plan(**(base | settings))


def sent_noise(hall, request, reply):
    """The noise in a message of whole updates, in standard deviations of what is due."""
    holder = next(iter(hall.holders["n1"]._runs.values()))
    said = wire.request_from_plain(request.head["request"], request.arrays)
    codes = reply.array("codes", np.int64)
    clean = said.bound.clip(holder.work.update(said.round, holder.me))
    due = said.bound.std(holder.terms.multiplier_of(said.round))
    return (said.grid.decode(codes) - clean) / due


def told_lies(hall, tap):
    """Every lie about every field of the first requests: (the lie, the reply)."""
    honest = [asked for asked, _ in tap.of("work")]
    for number, (field, values) in enumerate(LIES.items()):
        for i, value in enumerate(values):
            for k, asked in enumerate(honest[:2]):
                if "theta" in asked.arrays:
                    told = edited(asked, **{field: value})
                    yield told, again(hall, "n1", told, attempt=f"lie-{number}-{i}-{k}")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_lie_is_refused_or_paid_for(scheme, tmp_path):
    hall = Hall(toy(clients=3, features=WIDE), tmp_path / "holders")
    tap = Tap(hall, "n1")
    hall.train(plan(**SCHEMES[scheme]), tmp_path / "run")
    tried = answered = 0
    for told, reply in told_lies(hall, tap):
        tried += 1
        if reply.kind != "problem":
            answered += 1
            check(hall, told, reply, scheme)
    assert tried > 80 and answered < tried / 2
    print(f"{scheme}: {tried} lies, {answered} answered with the noise that is due")
    hall.close()


def check(hall, told, reply, scheme):
    head = told.head["request"]
    if head["phase"] != "contribute" or scheme == "local":
        # Answers carry evidence of their noise; local steps are held against the grant where they are made.
        assert scheme == "local" or reply.head["answer_noise"] > 0 or head["query"] is None
        return
    noise = sent_noise(hall, told, reply)
    assert 0.8 < float(np.std(noise)) / np.sqrt(1.0) < 2.5, (head, float(np.std(noise)))


def test_random_lies_together(tmp_path):
    """Several fields at once, by chance."""
    hall = Hall(toy(clients=3, features=WIDE), tmp_path / "holders")
    tap = Tap(hall, "n1")
    hall.train(plan(**SCHEMES["client"]), tmp_path / "run")
    asked = next(asked for asked, _ in tap.of("work") if "theta" in asked.arrays)
    dice = stream(5, 0, 0, "lies")
    for i in range(300):
        fields = dice.choice(list(LIES), size=int(dice.integers(1, 4)), replace=False)
        lie = {str(name): LIES[name][int(dice.integers(len(LIES[name])))] for name in fields}
        reply = again(hall, "n1", edited(asked, **lie), attempt=f"chance-{i}")
        if reply.kind != "problem":
            check(hall, edited(asked, **lie), reply, "client")
    hall.close()


@pytest.mark.parametrize(
    "change", [{"model": "os:system"}, {"method": "os:system"}, {"model": "evil.module:make", "method": "adact"}]
)
def test_a_plan_cannot_make_a_holder_import_code(change, tmp_path):
    hall = Hall(toy(clients=3), tmp_path / "holders")
    tap = Tap(hall, "n1")
    hall.train(plan(unit="client", observer="server", rounds=1), tmp_path / "run")
    asked, _ = tap.of("propose")[0]
    reply = again(hall, "n1", asked.but(plan=asked.head["plan"] | change, run="other"))
    assert reply.kind == "problem" and "policy must list it under code" in reply.head["said"]
    hall.close()


# ---- secure sums -----------------------------------------------------------------------------------------------------


class Signing:
    """Signatures by a table: good enough to tell members apart."""

    def __init__(self, me):
        self.me = me

    def sign(self, text):
        return bytes([self.me]) + text[-40:]

    def verify(self, member, text, signature):
        return signature == bytes([member]) + text[-40:]


def members(count=5, threshold=4):
    roster = Roster("session", tuple(range(count)), threshold)
    made = {k: Member(roster, k, Signing(k)) for k in roster.members}
    collector = Collector(roster)
    adverts = collector.advertised({k: m.advertise() for k, m in made.items()})
    letters = collector.shared({k: m.share(adverts) for k, m in made.items()})
    for k, m in made.items():
        m.receive(letters[k])
    return made, collector


def test_members_that_were_told_different_things_open_nothing():
    """A skewed bound for the others left 0.29 of the noise: epsilon 40 in the place of 4."""
    made, collector = members()
    values = {k: np.full(64, k, np.int64) for k in made}
    told = {k: b"bound 1" if k else b"bound 1000" for k in made}  # the victim is told another bound
    total = SecureSum(collector, 0, 64, b"bound 1")
    for k, m in made.items():
        total.add(k, m.mask(0, values[k], told[k]))
    signatures = {k: m.confirm(0, total.closed()) for k, m in made.items()}
    with pytest.raises(Broken):
        made[0].reveal(0, signatures)  # the victim sees nobody who agrees
    shares = {}
    for k in (1, 2, 3, 4):  # four are enough to open, and were told the same
        shares[k] = made[k].reveal(0, signatures)
    opened = total.open(shares)
    assert np.abs(opened.astype(float)).min() > 2.0**32  # 64 random bits, not a sum of small numbers


def test_members_that_agree_open_the_sum():
    made, collector = members()
    total = SecureSum(collector, 0, 64, b"bound 1")
    for k, m in made.items():
        total.add(k, m.mask(0, np.full(64, k, np.int64), b"bound 1"))
    signatures = {k: m.confirm(0, total.closed()) for k, m in made.items()}
    assert (total.open({k: m.reveal(0, signatures) for k, m in made.items()}) == 10).all()


@pytest.mark.parametrize("field", ["bound", "facts", "plan"])
def test_a_server_that_tells_holders_different_things_learns_nothing(field, tmp_path):
    hall = Hall(toy(clients=4), tmp_path / "holders")

    def skew(message):
        if field == "bound" and message.kind == "work":
            return (
                edited(message, bound={"kind": "flat", "bound": 0.01}) if message.head["request"]["bound"] else message
            )
        if field in ("facts", "plan") and message.kind in ("propose", "enrol"):
            changed = dict(message.head[field])
            if field == "facts":
                changed["sizes"] = [n if i == 2 else 10 * n for i, n in enumerate(changed["sizes"])]
            else:
                changed["delta"] = 2e-5
            return message.but(**{field: changed})
        return message

    Tap(hall, "n2", change=skew)
    wanted = plan(clients=4, unit="client", observer="secagg-server", rounds=1, bound=1.0)
    try:
        result = hall.train(wanted, tmp_path / "run")
    except SordinoError:
        return  # refused, or nothing could be opened
    finally:
        hall.close()
    weights = np.concatenate([p.detach().numpy().ravel() for p in result.model.parameters()])
    assert np.abs(weights).max() > 1e3  # masks that do not cancel: nothing but random bits
