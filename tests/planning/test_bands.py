"""How many bands leave the least noise, before there is data."""

from __future__ import annotations

import pytest

from sordino import Plan
from sordino.errors import BadInput
from sordino.planning import planner
from sordino.planning.bands import best, compare
from sordino.planning.scenario import Scenario


def plan(**settings):
    usual = {"data": "none", "method": "dp-bandmf", "unit": "client", "observer": "public"}
    return Plan(**(usual | settings))


def test_correlation_pays_where_cohorts_are_small():
    few = plan(clients=10_000, cohort=100, rounds=200, epsilon=4.0)
    rows = compare(few, [1, 4, 16])
    assert [row.bands for row in rows] == [1, 4, 16] and rows[0].relative == 1
    assert rows[2].relative < rows[1].relative < 0.75
    tight = plan(clients=10_000, cohort=1000, rounds=100, epsilon=0.5)
    assert best(tight).bands == 1  # amplification is worth more there


def test_one_band_leaves_the_noise_of_independent_rounds():
    (one,) = compare(plan(clients=1000, cohort=100, rounds=64, multiplier=2.0), [1])
    assert one.noise == pytest.approx(2.0 * 8) and one.turns == 64 and one.rate == 0.1


def test_the_planner_offers_it():
    hard = Scenario(
        clients=5000, cohort=50, dimension=300_000, rounds=60, unit="client", observer="public", epsilon=4.0
    )
    found = {remedy.change: remedy for remedy in planner.plan(hard).remedies}
    assert "dp-bandmf --option bands=" in found["correlated noise"].options
    assert "less noise in the model" in found["correlated noise"].text


def test_it_is_for_one_method():
    with pytest.raises(BadInput, match="dp-bandmf"):
        compare(plan(method="dp-fedavg", clients=10, epsilon=1.0))
