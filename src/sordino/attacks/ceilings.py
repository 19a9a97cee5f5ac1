"""What a proven (epsilon, delta) allows any attack, whatever it knows (Wasserman and Zhou 2010; Kairouz et al. 2015).

Between two neighbours both errors of every test obey ``TPR <= e^epsilon FPR + delta`` and the same with the classes
exchanged. Hence three ceilings: on the true-positive rate at a false-positive rate, on the area under the curve, and on
balanced accuracy. With epsilon infinite all of them are 1.

A record may be attacked where clients are protected. Whether one client holds one record more or less is a *change* of
that client. Under replace-one that is what the proof speaks of; under add-remove and zero-out it takes two steps, one
that takes the client out and one that brings it back, so epsilon counts twice (and delta 1 + e^epsilon times).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sordino.errors import BadInput
from sordino.privacy.vocabulary import Relation, Unit

_HUGE = 700.0  # e to this is still a number


@dataclass(frozen=True)
class Ceiling:
    """The limits that (epsilon, delta) sets.

    >>> Ceiling(4.0, 0.0).auc == math.exp(4) / (1 + math.exp(4))
    True
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if math.isnan(self.epsilon) or self.epsilon < 0 or not 0 <= self.delta <= 1:
            raise BadInput(
                f"there is no ceiling for epsilon {self.epsilon!r} and delta {self.delta!r}; epsilon must be 0 or more."
            )

    @property
    def _growth(self) -> float:
        return math.exp(self.epsilon) if self.epsilon < _HUGE else math.inf

    @property
    def _corner(self) -> float:
        """The false-positive rate at which the two limits meet; the true-positive rate there is 1 minus it."""
        return (1 - self.delta) / (1 + self._growth)

    def found_at(self, false_rate: float) -> float:
        """The largest true-positive rate at this rate of false positives."""
        if math.isinf(self._growth):
            return 1.0
        here = self._growth * false_rate + self.delta
        there = 1 - (1 - self.delta - false_rate) / self._growth
        return min(1.0, here, there)

    @property
    def success_rate(self) -> float:
        """The largest balanced accuracy: at the corner."""
        return 1 - self._corner

    @property
    def auc(self) -> float:
        """The area under the two limits: from (0, delta) to the corner, on to (1 - delta, 1), then along the top."""
        a, d = self._corner, self.delta
        rising = a * (d + 1 - a) / 2
        flat = (1 - d - a) * (1 - a + 1) / 2
        return rising + flat + d


def ceiling_for_record(epsilon: float, delta: float, unit: Unit, relation: Relation) -> Ceiling:
    """The ceiling on attacks on one record, from what is proven for a unit under a relation."""
    if math.isinf(epsilon):
        return Ceiling(math.inf, 0.0)
    if Unit(unit) is Unit.EXAMPLE or Relation(relation) is Relation.REPLACE_ONE:
        return Ceiling(epsilon, delta)
    wide = delta * (1 + math.exp(min(epsilon, _HUGE)))
    return Ceiling(math.inf, 0.0) if wide >= 1 else Ceiling(2 * epsilon, wide)
