"""Thresholds chosen without cheating: on one half of the runs, and held against the other half.

An attack that picks its statistic and its threshold where they look best overstates what it proves. Here the first half
of the runs decides which of several statistics is used, where the line is drawn, on which side of it to cry alarm and
which bound to compute; the second half, which had no say, gives the counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.audit import bounds
from sordino.errors import BadInput

_CANDIDATES = 48


@dataclass(frozen=True)
class Attack:
    """A test: alarm if ``side * scores[statistic] > side * line``."""

    statistic: int
    line: float
    side: int
    gdp: bool

    def alarms(self, scores: np.ndarray) -> int:
        """How many of these runs the attack takes for runs with the target."""
        return int(np.sum(self.side * scores[:, self.statistic] > self.side * self.line))


@dataclass(frozen=True)
class Outcome:
    """What an attack showed on the runs that had no say in choosing it."""

    epsilon: float
    attack: Attack
    false_alarms: int
    without: int
    found: int
    with_it: int


def split(
    without: np.ndarray, with_it: np.ndarray, delta: float, confidence: float, gdp: bool = False, half: float = 0.5
) -> Outcome:
    """From scores [runs, statistics] of both worlds: choose on the first part, measure on the rest.

    With `gdp` the Gaussian family may be chosen too; only where the claim is Gaussian itself.
    """
    without, with_it = (np.asarray(s, float).reshape(len(s), -1) for s in (without, with_it))
    if without.shape[1:] != with_it.shape[1:] or min(len(without), len(with_it)) < 4:
        raise BadInput("both worlds need the same statistics, and at least four runs each.")
    cut, cut_with = int(half * len(without)), int(half * len(with_it))
    attack = choose(without[:cut], with_it[:cut_with], delta, confidence, gdp)
    return measure(attack, without[cut:], with_it[cut_with:], delta, confidence)


def measure(attack: Attack, without: np.ndarray, with_it: np.ndarray, delta: float, confidence: float) -> Outcome:
    """The bound from runs that had no say in choosing the attack."""
    counts = (attack.alarms(without), len(without), attack.alarms(with_it), len(with_it))
    bound = bounds.many_runs_gdp if attack.gdp else bounds.many_runs
    return Outcome(bound(*counts, delta, confidence), attack, *counts)


def choose(without: np.ndarray, with_it: np.ndarray, delta: float, confidence: float, gdp: bool) -> Attack:
    """The attack that looks best on these runs."""
    best, found = -1.0, Attack(0, 0.0, 1, False)
    for k in range(without.shape[1]):
        for side in (1, -1):
            low, high = np.sort(side * without[:, k]), np.sort(side * with_it[:, k])
            lines = _lines(low, high)
            alarms = len(low) - np.searchsorted(low, lines, side="right")
            found_in = len(high) - np.searchsorted(high, lines, side="right")
            for kind in (False, True) if gdp else (False,):
                i, value = _best(alarms, len(low), found_in, len(high), delta, confidence, kind)
                if value > best:
                    best, found = value, Attack(k, side * float(lines[i]), side, kind)
    return found


def _best(
    alarms: np.ndarray, without: int, found: np.ndarray, with_it: int, delta: float, confidence: float, gdp: bool
) -> tuple[int, float]:
    """Which of several lines shows most. Ranked by the rates at the edge of what the confidence allows."""
    from scipy.special import betaincinv, ndtri

    half = (1 - confidence) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        alarm = np.where(alarms == without, 1.0, 1 - betaincinv(np.maximum(without - alarms, 1), alarms + 1, half))
        find = np.where(found == 0, 0.0, betaincinv(np.maximum(found, 1), with_it - found + 1, half))
        if gdp:
            gap = np.where((alarm < 1) & (find > 0), ndtri(find) - ndtri(alarm), 0.0)
            i = int(np.argmax(gap))
            return i, bounds.epsilon_of(max(float(gap[i]), 0.0), delta)
        one, other = np.maximum(find - delta, 0) / alarm, np.maximum(1 - alarm - delta, 0) / (1 - find)
        ratio = np.maximum(one, other)
    i = int(np.argmax(ratio))
    return i, float(np.log(max(ratio[i], 1.0)))


def _lines(without: np.ndarray, with_it: np.ndarray) -> np.ndarray:
    """Candidates: quantiles of the scores without the unit, closer together near the top, and what no run exceeded."""
    ranks = np.unique(
        np.concatenate([np.linspace(0.05, 1, _CANDIDATES // 2), 1 - np.geomspace(0.5, 1 / len(without), 16)])
    )
    lines = np.quantile(without, ranks, method="higher")
    top = lines[-1]
    above = with_it[with_it > top]
    # Half way to the next score: a line on the maximum itself would raise false alarms in half of the other runs.
    return np.unique(np.append(lines, (top + above.min()) / 2 if above.size else top))
