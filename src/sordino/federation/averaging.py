"""Which iterate is the model: the last one, or the mean of all where the second half of the rounds only added noise.

Where classes overlap, a linear model has learnt soon what there is to learn, and every further step carries it about in noise; the
mean of all iterates has much less of that. Where classes can be told apart it goes on learning to the end, and the mean lags behind. Which
of the two a data set is shows in what was released, free of charge: if the rounds still teach, the released means of the second half add up to
the direction in which those of the first did. Noise alone, of one size on every weight, adds up to A and to B, and then

    score = sqrt(p) A.B / (|A| |B|)

for p weights is about standard normal, however long A and B are. Below `SETTLED` the training counts as settled. The means are taken, and not the
iterates, since momentum carries noise from one half into the other. docs/regret.md says what it brings, and what other thresholds do.

A run that is stopped before its last round keeps its last iterate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sordino.federation.server import Arrays

AVERAGES = ("none", "settled")
SETTLED = 1.0
_FIRST, _SECOND, _SUM, _COUNT = "average.first", "average.second", "average.sum", "average.count"


@dataclass(frozen=True)
class Averaging:
    """Adds up what so many rounds released, and says at their end what the model is."""

    kind: str
    rounds: int

    def init(self, size: int) -> Arrays:
        """What is kept before round 1; nothing where the last iterate is the model."""
        if self.kind == "none":
            return {}
        return {**{name: np.zeros(size) for name in (_FIRST, _SECOND, _SUM)}, _COUNT: np.zeros(1, np.int64)}

    def add(self, t: int, direction: np.ndarray, theta: np.ndarray, kept: Arrays) -> Arrays:
        """What is kept after round t, which released `direction` and stepped to `theta`."""
        if self.kind == "none":
            return {}
        half = _FIRST if t <= self.rounds // 2 else _SECOND
        own = {name: kept[name] for name in (_FIRST, _SECOND)}
        return {**own, half: own[half] + direction, _SUM: kept[_SUM] + theta, _COUNT: kept[_COUNT] + 1}

    def model(self, theta: np.ndarray, kept: Arrays) -> np.ndarray:
        """The model after the last round, which left `theta`."""
        if self.kind == "none" or score(kept[_FIRST], kept[_SECOND]) >= SETTLED:
            return theta
        return (kept[_SUM] / int(kept[_COUNT][0])).astype(theta.dtype)


def score(first: np.ndarray, second: np.ndarray) -> float:
    """How far the second half followed the first, in standard deviations of noise; infinite where either released nothing."""
    lengths = math.sqrt(float(first @ first) * float(second @ second))
    return math.sqrt(np.count_nonzero(first)) * float(first @ second) / lengths if lengths else math.inf
