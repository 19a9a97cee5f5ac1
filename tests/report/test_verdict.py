"""The verdict: never "proven" on doubtful grounds."""

from __future__ import annotations

import pytest

from sordino.report.reading import Run
from sordino.report.verdict import Kind, judge

from .conftest import PLAN, STATEMENT, rounds


def verdict(statement, plan=PLAN, metrics=(), audit=None):
    return judge(Run("run", plan, "", statement, tuple(metrics), audit))


def test_proven():
    found = verdict(STATEMENT, metrics=rounds(20))
    assert (found.kind, found.epsilon, found.delta) == (Kind.PROVEN, 3.98712, 1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": "inf"},
        {"proven": False},
        {"reasons": ["The bound is not private."]},
        {"disclosures": ["Exact norms."]},
    ],
)
def test_not_private(change):
    found = verdict(STATEMENT | change)
    assert found.kind is Kind.NOT_PRIVATE and found.epsilon is None and found.reasons


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": None},
        {"epsilon": "4"},
        {"epsilon": True},
        {"epsilon": float("nan")},
        {"epsilon": float("inf")},
        {"epsilon": -1.0},
        {"epsilon": 10**400},
        {"delta": None},
        {"delta": 1.0},
        {"delta": 1e-3},  # the plan says 1e-5
        {"unit": "client"},
        {"observer": "public"},
        {"method": "fedavg"},
    ],
)
def test_neither(change):
    found = verdict(STATEMENT | change)
    assert found.kind is Kind.OPEN and found.epsilon is None and "Proven" not in found.headline


def test_statement_must_cover_every_round():
    found = verdict(STATEMENT, metrics=rounds(21))
    assert found.kind is Kind.OPEN and "round 21" in found.reasons[0]


@pytest.mark.parametrize("lower, kind", [(3.9, Kind.PROVEN), (3.99, Kind.CONTRADICTED)])
def test_audit_can_contradict(lower, kind):
    assert verdict(STATEMENT, audit={"epsilon_lower": lower, "confidence": 0.95}).kind is kind


def test_words_for_each_observer():
    for observer, words in (("public", "released models"), ("server", "every message")):
        change = {"observer": observer, "unit": "client"}
        lead = verdict(STATEMENT | change, PLAN | change).lead
        assert lead.startswith("for each client") and words in lead
