"""Which iterate is the model: the last one, or the mean of all where the second half of the rounds only added noise.

Where classes overlap, a linear model has learnt soon what there is to learn, and every further step carries it about in noise; the
mean of all iterates has much less of that. Where classes can be told apart it goes on learning to the end, and the mean lags behind. Which
of the two a data set is shows in the iterates, free of charge: if the rounds still teach, the second half moves on in the direction of
the first. Noise alone, of one size on every weight, moves A in the first half and B in the second, and then

    score = sqrt(p) A.B / (|A| |B|)

for p weights is about standard normal, however long A and B are. Below `SETTLED` the training counts as settled. Iterates are
released, so that this is post-processing. docs/regret.md says on which data the number was chosen, and what it brings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sordino.federation.server import Arrays

AVERAGES = ("none", "settled")
SETTLED = 1.5
_START, _HALF, _SUM, _COUNT = "average.start", "average.half", "average.sum", "average.count"


@dataclass(frozen=True)
class Averaging:
    """Watches the iterates of so many rounds; the last round leaves the model."""

    kind: str
    rounds: int

    def init(self, theta: np.ndarray) -> Arrays:
        """What is kept before round 1; nothing where the last iterate is the model."""
        if self.kind == "none":
            return {}
        return {_START: theta.copy(), _HALF: theta.copy(), _SUM: np.zeros(theta.size), _COUNT: np.zeros(1, np.int64)}

    def step(self, t: int, theta: np.ndarray, kept: Arrays) -> tuple[np.ndarray, Arrays]:
        """The model after round t, which stepped to `theta`, and what is kept of it."""
        if self.kind == "none":
            return theta, {}
        total, count = kept[_SUM] + theta, kept[_COUNT] + 1
        half = theta.copy() if t <= self.rounds // 2 else kept[_HALF]
        if t == self.rounds and score(half - kept[_START], theta - half) < SETTLED:
            theta = (total / int(count[0])).astype(theta.dtype)
        return theta, {_START: kept[_START], _HALF: half, _SUM: total, _COUNT: count}


def score(first: np.ndarray, second: np.ndarray) -> float:
    """How far the second half followed the first, in standard deviations of noise; infinite where either did not move."""
    first, second = first.astype(np.float64), second.astype(np.float64)
    lengths = math.sqrt(float(first @ first) * float(second @ second))
    return math.sqrt(np.count_nonzero(first)) * float(first @ second) / lengths if lengths else math.inf
