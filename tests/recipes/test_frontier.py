"""The recipe frontier: settings from public facts alone, and one sentence for data that it is not for."""

from __future__ import annotations

import math

import pytest

from sordino import BadInput, Plan
from sordino.assembly import complete
from sordino.preparation import Features
from sordino.privacy import calibration
from sordino.recipes import frontier


@pytest.mark.parametrize(
    ("shape", "records", "epsilon"), [((3, 32, 32), 50_000, 1.0), ((1, 28, 28), 60_000, 3.0), ((1, 500), 3600, 4.0)]
)
def test_the_rate_is_the_one_at_which_noise_on_scores_is_as_large_as_paid_off(shape, records, epsilon):
    found = frontier.settings(shape, records, epsilon, pin=False)
    z = calibration.multiplier_for(epsilon, 1e-5, found["rounds"], found["batch_size"] / records)
    assert found["steps"] == "scaled"  # along mean / bound
    noise = found["lr"] / (1 - 0.9) * math.sqrt(found["rounds"]) * z / found["batch_size"]
    assert noise == pytest.approx(frontier.NOISE[frontier.kind_of(shape)], rel=0.01)
    Plan(data="any", epsilon=epsilon, **found)


def test_fewer_records_or_less_budget_take_smaller_steps():
    rates = [
        frontier.settings((3, 32, 32), n, e, pin=False)["lr"] for n, e in ((50_000, 4.0), (50_000, 1.0), (5_000, 1.0))
    ]
    assert rates[0] > rates[1] > rates[2] > 0


@pytest.mark.parametrize("shape", [(10,), (3, 32, 32, 2)])
def test_tables_are_refused_in_a_sentence(shape):
    with pytest.raises(BadInput, match="recipe frontier is for pictures"):
        frontier.settings(shape, 1000, 1.0)


@pytest.mark.parametrize(
    "wrong",
    [{"recipe": "magic"}, {"recipe": "frontier", "unit": "client"}, {"recipe": "frontier", "observer": "server"}],
)
def test_what_it_is_not_for_is_refused_by_name(wrong):
    with pytest.raises(BadInput, match="recipe"):
        complete({"data": "digits", **wrong})


def test_auto_takes_it_where_it_was_measured_to_win_and_nothing_stands_against_it(monkeypatch):
    from sordino.recipes import PublicFacts, completing

    made = {"method": "dp-fedavg", "model": "head", "prepare": {"kind": "features"}}
    monkeypatch.setattr(frontier, "settings", lambda *_, **__: made)
    many, few = PublicFacts(50_000, 10, (1, 28, 28), 10), PublicFacts(1437, 10, (1, 7, 7), 10)
    assert completing.complete({"recipe": "auto"}, many)[0]["model"] == "head"
    settings, choices = completing.complete({"epsilon": 2.0}, many)  # auto is the default
    assert settings["model"] == "head" and any("--recipe none" in choice.reason for choice in choices)
    assert completing.complete({"recipe": "none"}, many)[0]["model"] == "std-cnn"
    signals, short = PublicFacts(600, 10, (3, 128), 6), PublicFacts(600, 10, (3, 24), 6)
    assert completing.complete({"rounds": 3}, signals)[0]["model"] == "head"
    for given, facts in (({}, few), ({"model": "linear"}, many), ({"epsilon": 60.0}, many),
                         ({}, short), ({"method": "dp-fedddc"}, many)):  # fmt: skip
        assert completing.complete({"recipe": "auto", **given}, facts)[0]["model"] != "head"


def test_few_records_spend_more_on_the_mean_of_the_features():
    """Noise of length 0.35 on a mean of 6,400 numbers, and of 0.2 on one of few; within 1% (3% at a small epsilon) and 20% of the budget."""
    made = {
        (n, e): frontier.settings((1, 28, 28), n, e, pin=False)["prepare"]
        for n, e in ((60_000, 4.0), (60_000, 1.0), (1_500, 4.0), (1_500, 1.0), (200, 1.0))
    }
    assert [one["directions"] for one in made.values()] == [0, 0, 300, 300, 300]
    assert made[60_000, 4.0]["share"] == 0.01 and made[60_000, 1.0]["share"] == 0.03 and made[200, 1.0]["share"] == 0.2
    z = calibration.multiplier_for(1.0, 1e-5, 1, 1.0)
    assert z * math.sqrt(300 / made[1_500, 1.0]["share"]) / 1_500 == pytest.approx(0.2, rel=0.05)


@pytest.mark.parametrize(
    ("shape", "records", "epsilon", "directions", "covariances"),
    [
        ((1, 500), 600, 4.0, 200, 4),
        ((1, 500), 3_600, 4.0, 400, 4),
        ((1, 500), 3_600, 8.0, 800, 4),
        ((1, 500), 100, 1.0, 200, 0),  # too few to be asked for a covariance
        ((40, 96), 9_000, 4.0, 800, 0),  # rows of 4,160 numbers, with the levels of 40 channels
        ((1, 28, 28), 1_500, 4.0, 300, 0),
        ((1, 28, 28), 3_000, 4.0, 1000, 0),
        ((1, 28, 28), 60_000, 4.0, 0, 0),
    ],
)
def test_directions_follow_records_times_epsilon(shape, records, epsilon, directions, covariances):
    found = frontier.settings(shape, records, epsilon, pin=False)["prepare"]
    assert (found["directions"], found["covariances"]) == (directions, covariances)


def test_no_more_directions_are_kept_than_there_are():
    small = (1, 16, 16)
    most = Features().stages(small).dimension
    assert frontier.settings(small, 3_000, 4.0, pin=False)["prepare"]["directions"] in (0, 1000) and most > 300
