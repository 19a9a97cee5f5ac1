"""Lower bounds on epsilon: what an attack that succeeded so often proves, at a level of confidence.

    many_runs      two worlds, run many times each: Clopper and Pearson (1934) on the error rates of a test
    one_run        m canaries, each in one run by a fair coin: Steinke, Nasr, Jagielski 2023, theorem 5.2
    one_run_gdp    the same against the claim of a Gaussian trade-off curve: Mahloujifar et al. 2024, algorithm 3

A claim of (epsilon, delta) that would let the observed success happen with a probability of at most 1 - confidence is
refuted, and so is every smaller epsilon. Each function returns the largest epsilon that is refuted, rounded towards 0
by the search; 0 if none is. The functions of a Gaussian family (`gdp`) refute a trade-off curve, which is more than
(epsilon, delta): they may be held against a proof that is Gaussian itself, and against no other.

An attack's threshold is part of the attack. It must be fixed beforehand, or be chosen on other runs
(`thresholds.split`), or be paid for (Bonferroni: the confidence of each of k candidates raised to 1 - (1 -
confidence)/k).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sordino.errors import BadInput, between, whole
from sordino.privacy import gdp

_HIGHEST = 700.0  # exp of more is no double
_PRECISION = 1e-9


# ---- many runs -------------------------------------------------------------------------------------------------------


def rate_above(hits: int, trials: int, alpha: float) -> float:
    """The least rate that `hits` of `trials` still allow, except with a probability of `alpha` (Clopper and Pearson)."""
    from scipy.special import betaincinv

    return 0.0 if hits == 0 else float(betaincinv(hits, trials - hits + 1, alpha))


def rate_below(hits: int, trials: int, alpha: float) -> float:
    """The largest such rate."""
    return 1.0 - rate_above(trials - hits, trials, alpha)


def many_runs(false_alarms: int, without: int, found: int, with_it: int, delta: float, confidence: float) -> float:
    """From a test that raised `false_alarms` in the runs `without` the unit, and `found` it in so many of the others.

    (epsilon, delta) asks of every test that found <= e^epsilon false + delta, and the same of its opposite.

    >>> round(many_runs(0, 1000, 1000, 1000, delta=0.0, confidence=0.95), 2)
    5.6
    """
    alarm, find = _corner(false_alarms, without, found, with_it, confidence)
    return max(_log_ratio(find - delta, alarm), _log_ratio(1 - alarm - delta, 1 - find), 0.0)


def many_runs_gdp(false_alarms: int, without: int, found: int, with_it: int, delta: float, confidence: float) -> float:
    """The same against a Gaussian trade-off curve: mu >= Phi^-1(found) - Phi^-1(false)."""
    return epsilon_of(mu_from_rates(*_corner(false_alarms, without, found, with_it, confidence)), delta)


def mu_from_rates(alarm: float, find: float) -> float:
    """The mu of the Gaussian curve through this point; 0 if it lies on the side of pure guessing."""
    from scipy.special import ndtri

    return max(float(ndtri(find) - ndtri(alarm)), 0.0) if 0 < alarm and find < 1 else 0.0


def epsilon_of(mu: float, delta: float) -> float:
    """The epsilon of a Gaussian curve, from below."""
    return max(gdp.epsilon(delta, mu) * (1 - _PRECISION), 0.0) if mu > 0 and delta > 0 else 0.0


def _corner(false_alarms: int, without: int, found: int, with_it: int, confidence: float) -> tuple[float, float]:
    """The worst rates at this confidence, each error allowed half of what is left."""
    whole(without=without, with_it=with_it)
    between(0, 1, confidence=confidence)
    if not (0 <= false_alarms <= without and 0 <= found <= with_it):
        raise BadInput(f"{false_alarms} of {without} and {found} of {with_it} are not counts of runs.")
    half = (1 - confidence) / 2
    return rate_below(false_alarms, without, half), rate_above(found, with_it, half)


def _log_ratio(found: float, false: float) -> float:
    return math.log(found / false) if found > 0 and false > 0 else 0.0


# ---- one run ---------------------------------------------------------------------------------------------------------


def one_run(canaries: int, guesses: int, correct: int, delta: float, confidence: float) -> float:
    """From one run with so many canaries, each in by its own fair coin, `correct` of the `guesses` being right.

    Holds whatever the canaries do to each other, and however the rest of the data looks.

    >>> round(one_run(1000, 1000, 1000, delta=0.0, confidence=0.95), 1)
    5.8
    """
    _guessed(canaries, guesses, correct)
    between(0, 1, confidence=confidence)
    return _largest(lambda epsilon: one_run_p(canaries, guesses, correct, epsilon, delta) <= 1 - confidence)


def one_run_p(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """How likely so many right guesses are at most, if the run is (epsilon, delta)-private.

    Each guess of a private mechanism is as right as randomised response at best, so that W ~ Bin(guesses,
    e^eps/(1+e^eps)) dominates; delta lets 2 m delta canaries be given away, to the worst effect: P[W >= v] + 2 m
    delta max_i P[v > W >= v - i] / i.
    """
    from scipy.special import bdtr, bdtrc, expit

    right = float(expit(epsilon))
    tail = 1.0 if correct == 0 else float(bdtrc(correct - 1, guesses, right))
    if delta == 0 or correct == 0:
        return tail
    steps = np.arange(1, correct + 1)
    below = float(bdtr(correct - 1, guesses, right))
    missing = np.append(bdtr(correct - steps[:-1] - 1.0, guesses, right), 0.0)
    return min(1.0, tail + 2 * canaries * delta * float(np.max((below - missing) / steps)))


def one_run_gdp(canaries: int, guesses: int, correct: int, delta: float, confidence: float) -> float:
    """From the same counts, against the claim that the run is Gaussian with the mu of (epsilon, delta)."""
    _guessed(canaries, guesses, correct)
    between(0, 1, confidence=confidence, delta=delta)
    if correct == 0:
        return 0.0

    def refuted(mu: float) -> bool:
        return refutes(canaries, guesses, correct, gaussian_curve(mu), 1 - confidence)

    return epsilon_of(_largest(refuted, highest=80.0), delta)


def gaussian_curve(mu: float) -> Callable[[float], float]:
    """The least chance of a wrong guess that mu-GDP leaves, given that of a right one."""
    from scipy.special import ndtr, ndtri

    return lambda right: float(ndtr(ndtri(right) - mu))


def refutes(canaries: int, guesses: int, correct: int, curve: Callable[[float], float], significance: float) -> bool:
    """Whether a trade-off curve makes so many right guesses unlikelier than `significance`.

    Were they that likely, then `right` and `wrong` (the expected right and wrong guesses per canary, from the outcomes
    with `correct` or more right ones on) could be followed down, one right guess less at a time: the curve asks that
    wrong >= curve(right) at each step, and exchanging a right for a wrong guess keeps i wrong = (guesses - i) right.
    If that adds up to more guesses than were made, they were not that likely.
    """
    right, wrong = significance * correct / canaries, significance * (guesses - correct) / canaries
    most = guesses / canaries
    for i in range(correct - 1, -1, -1):
        needed = curve(right)
        if needed <= wrong:
            break
        right = min(1.0, right + i / (guesses - i) * (needed - wrong))
        wrong = needed
        if right + wrong > most:
            return True
    return right + wrong > most


def largest_provable(
    canaries: int, confidence: float, delta: float = 0.0, bound: Callable[..., float] = one_run
) -> float:
    """What a perfect attack, which guesses every canary right, would have shown: no audit of this size can show more.

    >>> [round(largest_provable(m, 0.95), 1) for m in (100, 1000, 10000)]
    [3.5, 5.8, 8.1]
    """
    whole(canaries=canaries)
    tried = {canaries, max(1, canaries // 2), max(1, canaries // 10)}
    return max(bound(canaries, n, n, delta, confidence) for n in tried)


def _guessed(canaries: int, guesses: int, correct: int) -> None:
    whole(canaries=canaries)
    if not 0 <= correct <= guesses <= canaries:
        raise BadInput(f"{correct} right of {guesses} guesses on {canaries} canaries is not a count of guesses.")


def _largest(refuted: Callable[[float], bool], highest: float = _HIGHEST) -> float:
    """A number that is refuted while one slightly larger is not. Refuting x refutes every smaller claim."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
        if high > highest:
            return low
    while high - low > _PRECISION * max(1.0, low):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
