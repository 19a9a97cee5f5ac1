"""What the papers would print, against the tools they used; and that it is not what holds."""

from __future__ import annotations

import math

import pytest
from stage import PLAN, replace

from sordino.methods import METHODS, method
from sordino.privacy import accounting, events
from sordino.privacy.vocabulary import Relation
from sordino.rules import claims


def proven(rate, multipliers, delta=1e-5):
    rounds = [events.gaussian(z) if rate == 1 else events.poisson(rate, events.gaussian(z)) for z in multipliers]
    return accounting.epsilon(events.composed(rounds), delta, Relation.ADD_REMOVE).epsilon


@pytest.mark.parametrize(("z", "cohort", "rounds"), [(1.0, 100, 100), (2.36, 1000, 30), (0.8, 10, 500)])
def test_adact_prints_what_opacus_prints(z, cohort, rounds):
    opacus = pytest.importorskip("opacus.accountants")
    theirs = opacus.RDPAccountant()
    theirs.history = [(z, cohort / 1000, rounds)]
    plan = replace(PLAN, cohort=cohort, rounds=rounds)
    assert method("adact").claim(plan, z) == pytest.approx(theirs.get_epsilon(1e-5), rel=0.01)


def test_rate_and_releases_can_be_told():
    told = claims.rdp(PLAN, 2.0, 0.01, 400)
    assert told == pytest.approx(claims.rdp(replace(PLAN, cohort=10, rounds=400), 2.0))
    assert claims.taking_part(replace(PLAN, cohort=None)) == 1.0


def test_dp_fedacn_prints_its_label():
    """Whatever the noise."""
    plan = replace(PLAN, epsilon=0.1)
    assert method("dp-fedacn").claim(plan, 0.5) == method("dp-fedacn").claim(plan, 50.0) == 0.1
    assert method("dp-fedacn").claim(PLAN, 1.0) is None


def test_geyer_prints_the_moments_accountant():
    """By the definition, for sampling rate 1: min over orders of T a/(2 z^2) + ln(1/delta)/(a - 1)."""
    plan = replace(PLAN, cohort=1000, rounds=10)
    by_hand = min(10 * a / (2 * 9) + math.log(1e5) / (a - 1) for a in range(2, 34))
    assert method("geyer").claim(plan, 3.0) == pytest.approx(by_hand)
    assert method("geyer").claim(PLAN, 1.0) > claims.rdp(PLAN, 1.0)  # the older conversion is looser


def test_noise_gamma_prints_one_release():
    """Equation 2 for epsilon 0.5 and delta 1e-5: z = 9.69. A hundred releases at that z cost 4.5."""
    z = math.sqrt(2 * math.log(1.25e5)) / 0.5
    assert method("noise-gamma").claim(PLAN, z) == pytest.approx(0.5)
    assert proven(1.0, [z] * 100) == pytest.approx(4.5, abs=0.1)
    assert method("noise-gamma").claim(replace(PLAN, mechanism="laplace"), 10.0) == pytest.approx(0.1)


@pytest.mark.parametrize(("mu", "mu_start", "said"), [(0.5, 0.8, 2.49), (1.0, 0.5, 13.1)])
def test_dp_fedddc_prints_less_than_holds(mu, mu_start, said):
    plan = replace(PLAN, rounds=100 if mu == 0.5 else 50, options={"mu_start": mu_start})
    ddc = method("dp-fedddc")
    claimed = ddc.claim(plan, 1 / mu)
    assert claimed == pytest.approx(said, abs=0.05)
    assert proven(0.1, [r / mu for r in ddc.schedule(plan)]) > 1.02 * claimed


@pytest.mark.parametrize("name", [m.name for m in METHODS.values() if m.claim not in (None, claims.label)])
def test_claims_fall_as_noise_grows(name):
    plan = replace(PLAN, method=name, epsilon=1.0)
    said = [method(name).claim(plan, z) for z in (1e-3, 0.1, 0.7, 1, 3, 100, 1e4)]
    assert all(a > b or a == b == math.inf or b == 0 for a, b in zip(said, said[1:])) and said[-1] < 0.02


def test_where_nothing_differs_nothing_is_claimed():
    silent = {m.name for m in METHODS.values() if m.claim is None}
    assert silent == {
        "fedavg", "dp-fedavg", "dp-fedamvc", "dp-fedggc", "quantile", "adaclip", "automatic", "fedmap",
            "dp-bandmf",
    }  # fmt: skip
