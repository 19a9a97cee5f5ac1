"""Questions that depend on earlier answers, under one budget: where do most records lie?

    python examples/adaptive_release.py

Nobody knows beforehand how many questions there will be or how much noise each needs: both follow from what was released. A settled
schedule cannot cover that, and a privacy loss distribution must not be stopped along the way. A filter can: it grants each release before
a record is touched, and refuses the first one that the budget does not cover. `GdpFilter` is for Gaussian releases of all records;
for releases of sampled records take `RdpFilter(epsilon, delta, order)`, whose order is chosen before the first question.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np

from sordino.errors import BudgetRefused
from sordino.privacy import events, mechanisms
from sordino.privacy.bounds import Flat
from sordino.privacy.filter import Filter, GdpFilter
from sordino.privacy.ledger import Ledger
from sordino.privacy.mechanisms import FixedPoint, Sum
from sordino.privacy.randomness import SecureSource
from sordino.privacy.release import Private

BINS, ONE = 8, Flat(1.0)  # a record is in one bin: it moves the counts by 1 at most
ABOUT = {"unit": "example", "relation": "zero-out", "observer": "public"}


def counts(x: np.ndarray, low: float, high: float, multiplier: float) -> np.ndarray:
    """How many records lie in each of `BINS` equal parts of a range, with noise."""
    edges = np.linspace(low, high, BINS + 1)[1:-1]
    inside = x[(low <= x) & (x < high)]
    rows = np.eye(BINS)[np.searchsorted(edges, inside, side="right")]
    grid = FixedPoint.for_bound(ONE, len(x), multiplier)
    total = Private(Sum(mechanisms.answer(rows, 1.0, grid), grid), bound=ONE)
    released, _ = mechanisms.gaussian(total, ONE, multiplier, SecureSource())
    return released.value


def main(x: np.ndarray, budget: Filter, path: Path, low: float = -1e6, high: float = 1e6) -> tuple[float, float, int]:
    """The narrowest range that the budget finds, and how many questions it took. Zoom in; the fewer are left, the less noise."""
    multiplier, questions = len(x) / 100, 0
    with Ledger.create(path, "adaptive release", budget, ABOUT) as ledger:
        while True:
            try:
                ledger.request(events.gaussian(multiplier), round=questions + 1)
            except BudgetRefused as refused:
                print(refused)
                return low, high, questions
            noisy, questions = counts(x, low, high, multiplier), questions + 1
            best, width = int(noisy.argmax()), (high - low) / BINS
            low, high = low + best * width, low + (best + 1) * width
            print(f"question {questions}, multiplier {multiplier:.3g}: most records between {low:.4g} and {high:.4g}")
            multiplier = max(1.0, min(multiplier, float(noisy.max()) / (2 * math.sqrt(BINS))))


if __name__ == "__main__":
    ages = np.random.Generator(np.random.PCG64(0)).normal(41, 12, 5000)
    with tempfile.TemporaryDirectory() as folder:
        main(ages, GdpFilter(1.0, 1e-6, "zero-out"), Path(folder) / "ledger.jsonl")
