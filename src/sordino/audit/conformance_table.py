"""The table of the conformance suite: its rows, its sums, and both as plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NotRequired, TypedDict, cast

from sordino.audit.cases import private_methods

CONFIDENCE = 0.95


class RowJson(TypedDict):
    """A `Row` as plain data; an infinite epsilon is the word inf."""

    kind: str
    name: str
    epsilon_proven: float | str | None
    epsilon_claimed: float | None
    epsilon_lower: float
    confidence: float
    delta: float
    runs: int
    statistic: str
    ok: bool
    refused: bool
    seconds: float


class Summary(TypedDict):
    """The table and its sums, as plain data."""

    methods_checked: int
    methods_failed: list[str]
    cases: int
    mutations: int
    mutations_caught: int
    published: int
    published_refuted: int
    confidence: float
    rows: list[RowJson]
    small: NotRequired[bool]
    seed: NotRequired[int]
    seconds: NotRequired[float]


class SeedsRow(TypedDict):
    """A certified case over all seeds."""

    name: str
    epsilon_proven: float
    epsilon_lower: float
    failures: int
    runs: int
    ok: bool


class SeedsSummary(TypedDict):
    """All certified cases over all seeds."""

    cases: int
    seeds: int
    runs: int
    failed: list[str]
    confidence: float
    rows: list[SeedsRow]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    kind: str
    name: str
    epsilon_proven: float | None  # None: not private, and not said to be
    epsilon_claimed: float | None
    epsilon_lower: float
    confidence: float
    delta: float
    runs: int  # of each world
    statistic: str
    ok: bool  # held, caught or refuted, as the kind asks
    refused: bool = False  # a bug that the library's own checks stop as well
    seconds: float = 0.0

    def to_json(self) -> RowJson:
        """The row as JSON can hold it."""
        proven = self.epsilon_proven
        plain = {**asdict(self), "epsilon_proven": "inf" if proven is not None and math.isinf(proven) else proven}
        return cast(RowJson, plain)


def summary(rows: Sequence[Row]) -> Summary:
    """The counts that `sordino conformance --json` prints."""
    held = [row for row in rows if row.kind == "certified"]
    bugs = [row for row in rows if row.kind == "mutation"]
    printed = [row for row in rows if row.kind == "published"]
    return {
        "methods_checked": len(private_methods()),
        "methods_failed": [row.name for row in held if not row.ok],
        "cases": len(held),
        "mutations": len(bugs),
        "mutations_caught": sum(row.ok for row in bugs),
        "published": len(printed),
        "published_refuted": sum(row.ok for row in printed),
        "confidence": CONFIDENCE,
        "rows": [row.to_json() for row in rows],
    }
