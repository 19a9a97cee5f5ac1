"""From scores to what an attack achieved: AUC, true positives at few false ones, success rate, each with an interval.

Scores are higher for records that the attack takes for members. Nothing is interpolated: the true-positive rate at a
false-positive rate is the largest that a threshold on the same scores reaches (Carlini et al. 2022 argue why low
rates matter). AUC intervals are DeLong's (DeLong et al. 1988, by midranks as in Sun and Xu 2014); rates get the exact
interval of Clopper and Pearson (1934).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sordino.errors import BadInput, between

CONFIDENCE = 0.95
RATES = {"tpr_at_1pct": 0.01, "tpr_at_0.1pct": 0.001}
ENOUGH = 10  # false positives expected at a rate, from which on the empirical rate is worth much

Interval = tuple[float, float]


def auc(scores: np.ndarray, members: np.ndarray) -> float:
    """The probability that a member scores above a non-member; ties count half.

    >>> auc(np.array([3.0, 2.0, 2.0, 1.0]), np.array([True, True, False, False]))
    0.875
    """
    inside, outside = split(scores, members)
    m, n = len(inside), len(outside)
    ranks = _midranks(np.concatenate([inside, outside]))
    return float((ranks[:m].sum() - m * (m + 1) / 2) / (m * n))


def auc_interval(scores: np.ndarray, members: np.ndarray, confidence: float = CONFIDENCE) -> Interval:
    """DeLong's interval. Where the classes are fully apart its variance is 0, and a bound on the error stands in."""
    from scipy.special import ndtri

    between(0, 1, confidence=confidence)
    inside, outside = split(scores, members)
    m, n = len(inside), len(outside)
    value = auc(scores, members)
    if value in (0.0, 1.0):
        # Had the true error been larger than this, some pair would have been out of order with this confidence.
        slack = 1 - (1 - confidence) ** (1 / min(m, n))
        return (1 - slack, 1.0) if value else (0.0, slack)
    both = _midranks(np.concatenate([inside, outside]))
    above = (both[:m] - _midranks(inside)) / n
    below = 1 - (both[m:] - _midranks(outside)) / m
    variance = (above.var(ddof=1) / m if m > 1 else 0.25) + (below.var(ddof=1) / n if n > 1 else 0.25)
    half = float(ndtri(0.5 + confidence / 2)) * math.sqrt(variance)
    return max(0.0, value - half), min(1.0, value + half)


def bootstrap_interval(
    scores: np.ndarray, members: np.ndarray, rng: np.random.Generator, draws: int = 1000, confidence: float = CONFIDENCE
) -> Interval:
    """The percentile interval of AUCs of resampled records: slower than DeLong's, and assumes less."""
    inside, outside = split(scores, members)
    labels = np.r_[np.ones(len(inside), bool), np.zeros(len(outside), bool)]
    found = np.empty(draws)
    for i in range(draws):
        some = rng.choice(inside, len(inside)), rng.choice(outside, len(outside))
        found[i] = auc(np.concatenate(some), labels)
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Found:
    """Members found at a rate of false positives: how many, of how many, and the share with its interval."""

    count: int
    members: int

    @property
    def rate(self) -> float:
        """The share of members that were found."""
        return self.count / self.members

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Where the true rate lies with this confidence (Clopper and Pearson)."""
        return clopper_pearson(self.count, self.members, confidence)


def found_at(scores: np.ndarray, members: np.ndarray, false_rate: float) -> Found:
    """The most members above any threshold that lets through at most `false_rate` of the non-members.

    >>> found_at(np.array([9.0, 5.0, 4.0, 6.0, 1.0, 0.0]), np.array([1, 1, 1, 0, 0, 0], bool), 0.1).count
    1
    """
    inside, outside = split(scores, members)
    allowed = math.floor(false_rate * len(outside) + 1e-9)
    if allowed >= len(outside):
        return Found(len(inside), len(inside))
    # Everything strictly above the (allowed + 1)-th largest non-member passes; taking that one in would be too many.
    barrier = np.partition(outside, len(outside) - 1 - allowed)[len(outside) - 1 - allowed]
    return Found(int((inside > barrier).sum()), len(inside))


def success_rate(scores: np.ndarray, members: np.ndarray, threshold: float) -> tuple[float, Interval]:
    """Balanced accuracy of "member if the score is at least the threshold", and an interval.

    The interval puts the exact ones of both rates together, each at half the error: conservative.
    """
    inside, outside = split(scores, members)
    hits, passes = int((inside >= threshold).sum()), int((outside < threshold).sum())
    strict = 1 - (1 - CONFIDENCE) / 2
    low_in, high_in = clopper_pearson(hits, len(inside), strict)
    low_out, high_out = clopper_pearson(passes, len(outside), strict)
    rate = (hits / len(inside) + passes / len(outside)) / 2
    return rate, ((low_in + low_out) / 2, (high_in + high_out) / 2)


def average_success(
    rates: Mapping[str, float], attacks: tuple[str, ...] = ("basic", "ml-leaks", "white-box")
) -> float | None:
    """AASR (DP-FedACN, table IV): the mean success rate of its three membership attacks; None unless all three were run.

    >>> average_success({"basic": 0.5047, "ml-leaks": 0.5061, "white-box": 0.5138})  # table III, MNIST, epsilon 1: 50.82%
    0.5082
    """
    if not all(name in rates for name in attacks):
        return None
    return round(sum(rates[name] for name in attacks) / len(attacks), 12)


def best_threshold(scores: np.ndarray, members: np.ndarray) -> float:
    """The threshold of the largest balanced accuracy on records whose membership the attacker knows.

    >>> best_threshold(np.array([5.0, 4.0, 1.0, 0.0]), np.array([True, True, False, False]))
    2.5
    """
    inside, outside = split(scores, members)
    both = np.unique(np.concatenate([inside, outside]))
    middles = (both[1:] + both[:-1]) / 2
    # Infinite scores have no middle; the score itself cuts at the same place.
    cuts = np.concatenate([both[:1], np.where(np.isfinite(middles), middles, both[1:])])
    hits = 1 - np.searchsorted(np.sort(inside), cuts, "left") / len(inside)
    passes = np.searchsorted(np.sort(outside), cuts, "left") / len(outside)
    return float(cuts[np.argmax(hits + passes)])


def clopper_pearson(count: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """The exact interval of a binomial rate.

    >>> [round(end, 4) for end in clopper_pearson(0, 10)]
    [0.0, 0.3085]
    """
    from scipy.special import betaincinv

    between(0, 1, confidence=confidence)
    if not 0 <= count <= trials or trials < 1:
        raise BadInput(f"{count} of {trials} is no rate; count at least one trial.")
    tail = (1 - confidence) / 2
    low = 0.0 if count == 0 else float(betaincinv(count, trials - count + 1, tail))
    high = 1.0 if count == trials else float(betaincinv(count + 1, trials - count, 1 - tail))
    return low, high


def split(scores: np.ndarray, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores of members and of non-members; a score that is not a number is an error of the attack, and refused."""
    scores, members = np.asarray(scores, np.float64), np.asarray(members, bool)
    if scores.shape != members.shape or scores.ndim != 1:
        raise BadInput(f"there must be one score per record, not shapes {scores.shape} and {members.shape}.")
    if np.isnan(scores).any():
        raise BadInput(f"{int(np.isnan(scores).sum())} scores are not numbers; the attack or the model has diverged.")
    inside, outside = scores[members], scores[~members]
    if not len(inside) or not len(outside):
        raise BadInput(f"there are {len(inside)} members and {len(outside)} non-members; an attack needs both.")
    return inside, outside


def _midranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1, the mean rank among equals."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[where]
