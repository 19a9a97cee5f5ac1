"""Every schedule moves as it is defined, once a round or once an epoch, in every scheme: bounds worked out by hand."""

from __future__ import annotations

import math

import pytest

from populations import toy
from sordino import EngineOptions, Plan, train
from sordino.methods import METHODS, Method

HERE = EngineOptions(engine="in-process")
ROUNDS = 3
PLACES = {
    "client, public": {"unit": "client", "observer": "public", "sampling": "fixed"},
    "client, secagg": {"unit": "client", "observer": "secagg-server", "sampling": "fixed"},
    "client, server": {"unit": "client", "observer": "server", "sampling": "fixed"},
    "example, pooled": {"unit": "example", "observer": "secagg-server"},
    "example, local": {"unit": "example", "observer": "server"},
}
EPOCHS = 2  # of 20 records in batches of 10: four steps a round at each local client
# Bounds of the releases of one client (or of the sum), from C_0 = 1. Where a client releases several times a round, all of them.
LINEAR = [1.0, 0.6, 0.2]  # from 1 to a fifth
DYNAMIC = [0.3 ** (t / 3) for t in (1, 2, 3)]
BY_HAND = {
    ("dp-fedamvc", "once"): LINEAR,
    ("dp-fedamvc", "example, local"): [c for c in LINEAR for _ in range(4)],
    ("dp-fedddc", "once"): DYNAMIC,
    ("dp-fedddc", "example, local"): [c for c in DYNAMIC for _ in range(4)],
    # gamma = 1/2, two local epochs a round: a release of a whole round passes over two epochs.
    ("noise-gamma", "once"): [1.0, 0.25, 0.0625],
    ("noise-gamma", "client, server"): [1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125],
    ("noise-gamma", "example, pooled"): [1.0, 0.5, 0.25],  # no local training: a round counts as an epoch
    ("noise-gamma", "example, local"): [1, 1, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.0625, 0.0625, 0.03125, 0.03125],
}


def watched(name: str, kept: list[float]) -> Method:
    """The method, with a note of every bound that a release was made under."""
    from dataclasses import replace

    line = METHODS[name]

    def build(setting, **options):
        rule = line.rule(setting, **options)
        kind = type(rule)

        class Watched(kind):
            def observe(self, state, seen):
                if seen.mean.size:  # a release, and not the server that works out the noise of a round
                    kept.append(seen.bound.size)
                return super().observe(state, seen)

        return Watched(**{name: getattr(rule, name) for name in kind.__dataclass_fields__})

    options = {"gamma": lambda setting, *, gamma=0.5: build(setting, gamma=gamma)}
    return replace(line, name=f"watched-{name}", rule=options["gamma"] if name == "noise-gamma" else build)


@pytest.mark.parametrize("name", ["dp-fedamvc", "dp-fedddc", "noise-gamma"])
@pytest.mark.parametrize("place", PLACES)
def test_schedules_in_every_scheme(linear, tmp_path, name, place):
    kept: list[float] = []
    one = {"clients": 2} if place.startswith("client") else {"clients": 1}
    plan = Plan(
        data="toy", method=watched(name, kept), rounds=ROUNDS, local_epochs=EPOCHS, batch_size=10, multiplier=1.0, bound=1.0,
        lr=0.1, **one, **PLACES[place],
    )  # fmt: skip
    result = train(linear(), toy(plan.clients), plan, out=tmp_path / "run", options=HERE)
    expected = BY_HAND.get((name, place)) or BY_HAND[name, "once"]
    by_clients = plan.scheme.rounds.__qualname__.startswith(("Local", "EpochRelease"))
    if by_clients and plan.clients > 1:  # round by round, first one client and then the other; both alike
        each = len(expected) // ROUNDS
        expected = [c for t in range(ROUNDS) for _ in range(2) for c in expected[t * each : (t + 1) * each]]
    assert kept == pytest.approx(expected)
    # What metrics say of a round is the bound that it begins with.
    told, times = [row["bound"] for row in result.metrics], len(expected) // ROUNDS
    assert told == pytest.approx(expected[::times])


def test_the_decay_of_dp_fedacn_is_by_rounds(linear, tmp_path):
    """Bits of so little noise that they are trusted; the tracker stands still where half of the norms lie within the bound."""
    import numpy as np

    from sordino.privacy.bounds import Flat
    from sordino.rules.base import RoundOutput
    from sordino.rules.dp_fedacn import Decaying
    from sordino.rules.quantile import Quantile
    from sordino.rules.query import Answer

    rule = Decaying(Quantile(1.0, 0.5))
    state, bounds = rule.init(), []
    for t in (1, 2, 3):
        for last in (False, False, True):
            half = Answer(np.zeros(1), 100.0, 0.0)
            bounds.append(state["bound"])
            state = rule.observe(state, RoundOutput(t, Flat(state["bound"]), half, np.zeros(1), 0.0, ends_round=last))
    two, three = math.sqrt(1 / 2), math.sqrt(2 / 3)
    assert bounds == pytest.approx([1] * 6 + [two] * 3)
    assert state["bound"] == pytest.approx(two * three)


def test_a_round_that_releases_nothing_moves_a_schedule_too(linear, tmp_path):
    """Coins of a tenth over three clients: most rounds are empty, and the bound falls all the same."""
    plan = Plan(
        data="toy", method="dp-fedamvc", unit="example", observer="server", clients=3, cohort=1, rounds=6, multiplier=1.0,
        bound=1.0, batch_size=10, seed=3,
    )  # fmt: skip
    result = train(linear(), toy(3), plan, out=tmp_path / "run", options=HERE)
    cohorts = [row["cohort"] for row in result.metrics]
    assert 0 in cohorts
    assert [row["bound"] for row in result.metrics] == pytest.approx([1 - 0.8 * t / 5 for t in range(6)])


@pytest.mark.parametrize("place", PLACES)
def test_dp_fedacn_as_printed_moves_once_a_round_in_every_scheme(linear, tmp_path, place):
    """C_{t+1} = exp(L_t) rho_t C_t (equation 14) after the last release of a round, and C_t until then."""
    from dataclasses import replace

    from sordino.rules.dp_fedacn import AsPrinted

    seen_by: list[tuple[int, bool, float, float]] = []

    class Watched(AsPrinted):
        def observe(self, state, seen):
            seen_by.append((seen.round, seen.ends_round, seen.bound.size, float(seen.answer.total.mean())))
            return super().observe(state, seen)

    line = METHODS["dp-fedacn"]
    method = replace(line, name="watched-dp-fedacn", published=lambda setting: Watched(setting.plan.bound))
    one = {"clients": 3} if place.startswith("client") else {"clients": 1}
    plan = Plan(
        data="toy", method=method, variant="published", rounds=4, local_epochs=EPOCHS, batch_size=10, multiplier=0.5, bound=0.3,
        lr=0.1, **one, **PLACES[place],
    )  # fmt: skip
    result = train(linear(), toy(plan.clients), plan, out=tmp_path / "run", options=HERE)
    expected, begins = seen_by[0][2], []
    for at, (t, ends, bound, low) in enumerate(seen_by):
        if at == 0 or seen_by[at - 1][1]:
            begins.append(expected)
        assert bound == pytest.approx(expected), (at, t)
        if ends:
            expected *= math.exp(low - 0.5) * (math.sqrt(1 - 1 / t) if t > 1 else 1.0)
    assert len(begins) == 4 and sum(ends for _, ends, _, _ in seen_by) == 4
    told = [row["bound"] for row in result.metrics]
    # In round 1 a client that releases by itself asks for norms, and the server never hears the answer.
    assert told == pytest.approx(begins if place != "example, local" else [None, *begins[1:]])


def test_metrics_of_clients_that_ask_for_norms_themselves_tell_a_bound_that_clipped(linear, tmp_path):
    """AdaCT as printed, one record at a time: the bound is a quantile of every batch; the last one of a round is told."""
    from dataclasses import replace

    from sordino.rules.exact import ExactQuantile

    kept: list[tuple[int, float]] = []

    class Watched(ExactQuantile):
        def observe(self, state, seen):
            kept.append((seen.round, seen.bound.size))
            return super().observe(state, seen)

    method = replace(METHODS["adact"], name="watched-adact", published=lambda setting: Watched(setting.plan.bound))
    plan = Plan(
        data="toy", method=method, variant="published", rounds=3, local_epochs=EPOCHS, batch_size=10, multiplier=0.5, bound=7.0,
        lr=0.1, clients=1, **PLACES["example, local"],
    )  # fmt: skip
    result = train(linear(), toy(1), plan, out=tmp_path / "run", options=HERE)
    last = {round: bound for round, bound in kept}
    assert [row["bound"] for row in result.metrics] == pytest.approx([last[1], last[2], last[3]])
