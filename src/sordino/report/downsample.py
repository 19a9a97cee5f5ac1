"""Fewer points for a chart or a table, without losing what matters: the ends and the extremes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import TypeVar

Point = tuple[int, float]
T = TypeVar("T")


@dataclass(frozen=True)
class Bin:
    """Neighbouring points drawn as one: their mean, and how far they reach."""

    first: int
    last: int
    low: float
    mean: float
    high: float

    @classmethod
    def of(cls, points: Sequence[Point]) -> Bin:
        """The ends, the mean and the extremes of neighbouring points."""
        values = [y for _, y in points]
        return cls(points[0][0], points[-1][0], min(values), fsum(values) / len(values), max(values))

    @property
    def middle(self) -> float:
        """Where the bin is drawn."""
        return (self.first + self.last) / 2


def thin(points: Sequence[Point], limit: int = 120) -> list[Bin]:
    """At most `limit` stretches that cover all points. The first and the last point stay what they are."""
    if len(points) <= limit:
        return [Bin.of([point]) for point in points]
    inner, count = points[1:-1], limit - 2
    cuts = [i * len(inner) // count for i in range(count + 1)]
    between = [Bin.of(inner[a:b]) for a, b in zip(cuts, cuts[1:])]
    return [Bin.of(points[:1]), *between, Bin.of(points[-1:])]


def spread(rows: Sequence[T], limit: int) -> list[T]:
    """At most `limit` rows, evenly spaced, the first and the last among them."""
    if len(rows) <= limit:
        return list(rows)
    return [rows[round(i * (len(rows) - 1) / (limit - 1))] for i in range(limit)]
