"""From scores to guesses: the canaries that look most like contributors are said to be in, those that look least, out.

How many to guess is part of the attack. A few numbers are fixed here, beforehand; each is tried at a confidence that is
raised so that all of them together err no oftener than one would (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sordino.audit.bounds import one_run_gdp

# (the share of canaries that is said to be in, the share that is said to be out)
SHARES = ((0.5, 0.5), (0.25, 0.25), (0.05, 0.05), (0.015, 0.015), (0.25, 0.0), (0.05, 0.0), (0.015, 0.0))

_WORKED_OUT = 3

Bound = Callable[[int, int, int, float], float]  # (canaries, guesses, correct, confidence) -> epsilon


@dataclass(frozen=True)
class Guessed:
    """The best of the tried numbers of guesses, and what it shows at the confidence that was asked for."""

    epsilon: float
    guesses: int
    correct: int


def guess(scores: np.ndarray, coins: np.ndarray, bound: Bound, confidence: float) -> Guessed:
    """The bound at this confidence. All candidates are paid for; the few that promise most are worked out."""
    each, count = 1 - (1 - confidence) / len(SHARES), len(coins)

    def promise(counts: tuple[int, int]) -> float:
        return one_run_gdp(count, counts[0], counts[1], 1e-5, each)

    tried = sorted(set(_counts(scores, coins)), key=promise, reverse=True)[:_WORKED_OUT]
    found = [Guessed(bound(count, guesses, correct, each), guesses, correct) for guesses, correct in tried]
    return max(found, key=lambda guessed: guessed.epsilon)


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
