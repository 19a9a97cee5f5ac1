"""One run against the curve that was proven: f-differential privacy for any schedule (Mahloujifar et al. 2024).

A proof is more than one (epsilon, delta): accounting gives delta at every epsilon, that is, a trade-off curve. A
guess that is right with probability r and wrong with probability w must satisfy r <= e^epsilon w + delta(epsilon) for
all of them, which is what `bounds.refutes` holds against the guesses. For Gaussians without sampling this is the
Gaussian curve.

To put a number on it the run is compared with runs like it, of the same sampling and the same rounds, but with more
noise or less: the least noise that is refuted gives the epsilon. It is a bound within that family. What does not
depend on the family is the verdict: if the epsilon exceeds the proven one, the run is not what was proven.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from sordino.audit import bounds
from sordino.privacy import accounting, events, rdp
from sordino.privacy.vocabulary import Relation

_POINTS = 32
_SMALL = 1e-9  # deltas below this tell no guesses apart
_LEAST, _MOST = 1 / 64, 64.0  # times the noise of the run
_PRECISION = 2e-3  # of the noise


class Family:
    """The run's own schedule, with its noise scaled."""

    def __init__(self, event: dict[str, Any], delta: float, relation: Relation) -> None:
        self.event, self.delta, self.relation = event, delta, relation
        self.by_rdp = accounting.epsilon(events.from_json(event), delta, relation).accountant == "rdp"
        self.epsilon = lru_cache(maxsize=None)(self._epsilon)
        self.curve = lru_cache(maxsize=None)(self._curve)

    def lower(self, canaries: int, guesses: int, correct: int, confidence: float) -> float:
        """The largest epsilon that so many right guesses refute; 0 if they refute none."""

        def refuted(scale: float) -> bool:
            return bounds.refutes(canaries, guesses, correct, self.curve(scale), 1 - confidence)

        if correct == 0 or not refuted(_MOST):
            return 0.0
        low, high = math.log(_LEAST), math.log(_MOST)  # `high` is refuted
        while high - low > _PRECISION:
            middle = (low + high) / 2
            low, high = (low, middle) if refuted(math.exp(middle)) else (middle, high)
        return self.epsilon(math.exp(high))

    def _at(self, scale: float) -> events.Event:
        return events.from_json(_scaled(self.event, scale))

    def _epsilon(self, scale: float) -> float:
        return accounting.epsilon(self._at(scale), self.delta, self.relation).epsilon

    def _curve(self, scale: float) -> Callable[[float], float]:
        """The least chance of a wrong guess, given that of a right one."""
        grid, deltas = self._profile(self._at(scale))
        shrink, grow = np.exp(-grid), np.exp(grid)

        def wrong(right: float) -> float:
            one = np.max((right - deltas) * shrink)
            other = np.max(1 - deltas - grow * (1 - right))  # the same of the opposite guess
            return max(float(one), float(other), 0.0)

        return wrong

    def _profile(self, event: events.Event) -> tuple[np.ndarray, np.ndarray]:
        """Delta at some epsilons. Any will do: the more, the sharper."""
        most = accounting.epsilon_only(event, _SMALL, self.relation)
        grid = np.linspace(0.0, min(most, 200.0), _POINTS)
        if self.by_rdp:  # what all points share is computed once
            curve = rdp.curve(event, self.relation)
            return grid, np.array([rdp.delta_of(curve, float(e)) for e in grid])
        return grid, np.array([accounting.delta_for(event, float(e), self.relation) for e in grid])


def _scaled(event: dict[str, Any], scale: float) -> dict[str, Any]:
    out = dict(event)
    if "multiplier" in out:
        out["multiplier"] = scale * out["multiplier"]
    if "event" in out:
        out["event"] = _scaled(out["event"], scale)
    if "events" in out:
        out["events"] = [_scaled(part, scale) for part in out["events"]]
    return out
