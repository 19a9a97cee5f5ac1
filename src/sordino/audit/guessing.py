"""From scores to guesses: the canaries that look most like contributors are said to be in, those that look least, out.

How many to guess is part of the attack. A few numbers are fixed here, beforehand; each is tried at a confidence that is
raised so that all of them together err no oftener than one would (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# (the share of canaries that is said to be in, the share that is said to be out)
SHARES = ((0.5, 0.5), (0.25, 0.25), (0.05, 0.05), (0.015, 0.015), (0.25, 0.0), (0.05, 0.0), (0.015, 0.0))

Bound = Callable[[int, int, int, float], float]  # (canaries, guesses, correct, confidence) -> epsilon


@dataclass(frozen=True)
class Guessed:
    """The best of the tried numbers of guesses, and what it shows at the confidence that was asked for."""

    epsilon: float
    guesses: int
    correct: int


def guess(scores: np.ndarray, coins: np.ndarray, bound: Bound, confidence: float) -> Guessed:
    """The bound at this confidence, all candidates paid for."""
    each = 1 - (1 - confidence) / len(SHARES)
    found = [(bound(len(coins), *counts, each), *counts) for counts in _counts(scores, coins)]
    return Guessed(*max(found, key=lambda row: row[0]))


def perfect(canaries: int, bound: Bound, confidence: float) -> float:
    """What guesses that are all right would show."""
    coins = np.arange(canaries) % 2 == 1
    return guess(coins.astype(float), coins, bound, confidence).epsilon


def _counts(scores: np.ndarray, coins: np.ndarray) -> list[tuple[int, int]]:
    order, count = np.argsort(-np.asarray(scores, float), kind="stable"), len(coins)
    found = []
    for inside, outside in SHARES:
        top = max(1, round(inside * count))
        bottom = min(count - top, round(outside * count))
        right = int(np.sum(coins[order[:top]])) + int(np.sum(~coins[order[count - bottom :]]))
        found.append((top + bottom, right))
    return found
