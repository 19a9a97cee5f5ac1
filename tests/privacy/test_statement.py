"""An epsilon that is proven, or none at all."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.errors import BadInput
from sordino.privacy.assumptions import assumptions
from sordino.privacy.in_numbers import rounded_up
from sordino.privacy.phrases import NOUN
from sordino.privacy.statement import Statement
from sordino.privacy.vocabulary import Noise, Observer, Relation, Sampling, Unit, Variant, noise_for

PROVEN = Statement(
    method="adact",
    variant=Variant.CERTIFIED,
    unit=Unit.EXAMPLE,
    relation=Relation.ADD_REMOVE,
    observer=Observer.SECAGG_SERVER,
    epsilon=4.0,
    delta=1e-5,
    accountant="pld",
    sampling=Sampling.POISSON,
    rate=0.05,
    rounds=200,
    noise=Noise.SHARES,
    simulated=True,
    multiplier=1.25,
    rule="the 0.9 quantile of a noisy histogram of norms, in the same round",
    epsilon_claimed=3.5,
    claim="the noise on the sum alone",
    assumptions=assumptions("example", "add-remove", "secagg-server", "poisson", "shares", True, False, survivors=8),
    budget=4.0,
    spent=2 / 3,
    rounds_planned=300,
    stopped="the target accuracy was reached",
    dimension=344_000,
    noise_to_bound=3.21,
)
REASONS = ("Raw norms are sent to the server.", "The bound is an exact order statistic of the cohort.")
LEAK = "The norms of all clients were disclosed because the published rule needs them."
BROKEN = replace(
    PROVEN,
    variant=Variant.PUBLISHED,
    epsilon=math.inf,
    reasons=REASONS,
    disclosures=(LEAK,),
    sampling=Sampling.NONE,
    rate=None,
    budget=None,
    spent=None,
)


def test_the_text_of_a_proven_run():
    text = PROVEN.text()
    for words in (
        "PROVEN: epsilon 4, delta 1e-05",
        "one single record",
        "REHEARSAL: noise and draws follow from a seed; anyone who knows the seed can remove them.",
        "add-remove",
        "secure aggregation",
        "right more often than 98.21% of the time",
        "privacy loss distributions",
        "200 rounds",
        "probability 0.05",
        "1.25",
        "0.9 quantile",
        "344,000",
        "3.21 times",
        "66.67% of it was spent",
        "stopped after 200 of 300 rounds: the target accuracy was reached.",
        "nothing is subtracted",
        "would print epsilon 3.5",
        "at least 8 clients",
        "A simulation: all data was in one place",
    ):
        assert words in " ".join(text.split()), words
    assert "NOT PRIVATE" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_text_of_a_run_that_is_not_private():
    text = BROKEN.text()
    flat = " ".join(text.split())
    assert "NOT PRIVATE" in text and "PROVEN" not in text
    for number, reason in enumerate((*REASONS, LEAK), 1):
        assert f"{number}. {reason}" in flat
    assert (
        "would print epsilon 3.5" in flat
        and "guesses right" not in flat
        and "REHEARSAL" not in flat
        and "epsilon inf" not in flat
    )
    assert max(map(len, text.splitlines())) <= 100


def test_json_has_what_the_command_line_prints():
    row = json.loads(json.dumps(PROVEN.to_json(), allow_nan=False))
    for key in (
        "method variant unit relation observer epsilon delta epsilon_claimed reasons accountant sampling rate rounds "
        "multiplier assumptions simulated"
    ).split():
        assert key in row
    assert (row["epsilon"], row["reasons"], row["unit"], row["proven"]) == (4.0, [], "example", True)
    assert Statement.from_json(row) == PROVEN
    broken = json.loads(json.dumps(BROKEN.to_json(), allow_nan=False))
    assert broken["epsilon"] == "inf" and broken["reasons"] == [*REASONS, LEAK] and broken["proven"] is False
    assert Statement.from_json(broken).text() == BROKEN.text()


def test_a_schedule_of_multipliers():
    changing = replace(PROVEN, multiplier=(2.0, 1.5, 1.0))
    assert "1 to 2." in changing.text() and changing.to_json()["multiplier"] == [2.0, 1.5, 1.0]
    assert Statement.from_json(changing.to_json()) == changing


@pytest.mark.parametrize(
    "change",
    [
        {"reasons": ("raw norms",)},  # a finite epsilon in spite of a reason
        {"disclosures": ("raw norms",)},
        {"epsilon": math.inf},  # not private, and no word why
        {"epsilon": math.nan},
        {"epsilon": -1.0},
        {"epsilon": "4"},
        {"epsilon": None},
        {"delta": 1.0},
        {"delta": math.nan},
        {"unit": "level"},
        {"observer": "nobody"},
        {"rate": None},
        {"rate": 1.5},
        {"rounds": -1},
        {"epsilon_claimed": math.nan},
    ],
)
def test_there_is_no_third_kind_of_number(change):
    with pytest.raises(BadInput):
        replace(PROVEN, **change)


@settings(deadline=None)
@given(st.floats(1e-6, 1e6))
def test_what_is_printed_is_never_less_than_what_is_proven(epsilon):
    printed = float(rounded_up(epsilon))
    assert epsilon <= printed <= epsilon * 1.0011
    assert f"epsilon {rounded_up(epsilon)}," in replace(PROVEN, epsilon=epsilon).text()


def test_a_huge_epsilon_can_be_printed():
    assert "than 100% of the time" in replace(PROVEN, epsilon=5000.0).text()


# --- assumptions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit, relation, observer, sampling", product(Unit, Relation, Observer, Sampling))
def test_assumptions_follow_the_setting(unit, relation, observer, sampling):
    noise = noise_for(observer)
    said = assumptions(unit, relation, observer, sampling, noise, simulated=False, secure=True)
    flat = " ".join(said)
    assert len(set(said)) == len(said) >= 6 and all(s.endswith(".") and len(s) <= 120 for s in said)
    assert ("stays secret" in flat) == ("drawn honestly" in flat) == (sampling is not Sampling.NONE)
    assert ("server is trusted" in flat) == (noise is Noise.CENTRAL)
    assert ("Secure aggregation" in flat) == ("do not drop out" in flat) == (noise is Noise.SHARES)
    assert (f"The number of {NOUN[unit]}s is public" in flat) == (relation is not Relation.ADD_REMOVE)
    assert ("k times the epsilon" in flat) == (unit is Unit.EXAMPLE)
    assert "seed" not in flat and "simulated" not in flat and "floating point" not in flat


def test_assumptions_of_how_it_ran():
    common = ("client", "zero-out", "server", "none", "local")
    said = assumptions(*common, simulated=True, secure=False, sizes_public=False, test_public=False)
    flat = " ".join(said)
    assert "seeded generator" in flat and "view was simulated" in flat
    assert "floating point" not in flat and "records that each" not in flat and "accuracy" not in flat


def test_a_delta_that_lets_one_unit_be_shown_is_pointed_out():
    common = ("client", "add-remove", "public", "none", "central", True, True)
    wide, narrow = (assumptions(*common, delta=delta, population=1000) for delta in (1e-3, 9.9e-4))
    assert "not below 1 in 1,000 clients" in wide[0] and wide[1:] == narrow == assumptions(*common)


def test_a_bad_word_is_refused():
    with pytest.raises((BadInput, ValueError)):
        assumptions("level", "add-remove", "public", "none", "central", True, True)


# --- a rehearsal ------------------------------------------------------------------------------------------------------


def test_a_seeded_run_is_a_rehearsal_and_says_so_below_its_headline():
    lines = replace(PROVEN, seed=0).text().splitlines()
    headline = next(i for i, line in enumerate(lines) if line.startswith("PROVEN"))
    assert lines[headline + 1].startswith("REHEARSAL: noise and draws follow from seed 0; anyone who knows the seed")
    assert "Train with --secure before you release the model." in " ".join(lines)


def test_secure_noise_and_a_run_that_is_not_private_are_no_rehearsal():
    assert "REHEARSAL" not in replace(PROVEN, secure=True, seed=None).text()
    assert "REHEARSAL" not in replace(BROKEN, seed=0).text()


def test_notes_of_the_scheme_are_assumptions_too():
    noted = replace(PROVEN, notes=("Layers were clipped one by one.",))
    last = len(PROVEN.assumptions) + 1
    assert f"{last}. Layers were clipped one by one." in noted.text()
    assert Statement.from_json(json.loads(json.dumps(noted.to_json()))) == noted
    older = {key: value for key, value in PROVEN.to_json().items() if key not in ("seed", "notes")}
    assert Statement.from_json(older) == PROVEN
