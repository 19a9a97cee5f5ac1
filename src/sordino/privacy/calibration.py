"""Any two of (epsilon, multiplier, rounds) to the third, on the private side of the root.

The accounts of `accounting` are smooth in the logarithms of noise, rounds and epsilon, and the central limit theorem
(Bu et al. 2020, corollary 5.4) gives a start within a few per cent: a secant needs three to five accounts. What is
returned has been checked: its epsilon does not exceed the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from sordino import errors
from sordino.errors import BadInput
from sordino.privacy import accounting, events, gdp
from sordino.privacy.accounting import Rate
from sordino.privacy.vocabulary import Relation, Sampling

_AIM = 2e-5  # how far below the target epsilon to aim, relatively
_CLOSE = 6e-5  # how far below it is near enough
_ABOVE = 2e-5  # what is added to the root, before rounding up to five digits: more than the tolerance of other solvers
_MOST_STEPS = 80


def multiplier_for(
    epsilon: float,
    delta: float,
    rounds: int,
    rate: Rate = 1.0,
    sampling: Sampling = Sampling.POISSON,
    relation: Relation | None = None,
    laplace: bool = False,
) -> float:
    """The least multiplier, to five digits and rounded up, with which `rounds` rounds stay within (epsilon, delta).

    >>> multiplier_for(epsilon=4.0, delta=1e-5, rounds=30)
    5.922
    """
    sampling = Sampling(sampling)
    relation = Relation(relation) if relation else accounting.default_relation(sampling)
    return _multiplier_for(epsilon, delta, rounds, rate, sampling, relation, laplace)


@lru_cache(maxsize=256)
def _multiplier_for(
    epsilon: float, delta: float, rounds: int, rate: Rate, sampling: Sampling, relation: Relation, laplace: bool
) -> float:
    errors.positive(epsilon=epsilon)
    errors.between(0, 1, delta=delta)
    errors.whole(1, rounds=rounds)

    def schedule(multiplier: float) -> events.Event:
        return events.repeated(accounting.round_event(sampling, rate, multiplier, laplace), rounds)

    schedule(1.0)  # refuses a bad rate before any search
    twice = 2 if relation is Relation.REPLACE_ONE else 1
    mu = gdp.mu(epsilon, delta) / twice
    if laplace:
        guess = math.sqrt(2 * rounds) / mu
    else:
        guess = 1 / math.sqrt(math.log1p(mu**2 / (_fraction(sampling, rate) ** 2 * rounds)))
    return scale_for(schedule, epsilon, delta, relation, guess=guess)


def scale_for(
    make_event: Callable[[float], events.Event],
    epsilon: float,
    delta: float,
    relation: Relation = Relation.ADD_REMOVE,
    guess: float = 1.0,
) -> float:
    """The least scale, to five digits and rounded up, at which ``make_event(scale)`` stays within (epsilon, delta).

    For schedules: ``lambda s: composed(poisson(q, gaussian(s * shape)) for shape in shapes)``. More scale must mean
    more noise.
    """
    errors.positive(epsilon=epsilon, guess=guess)
    errors.between(0, 1, delta=delta)
    relation = Relation(relation)

    def excess(log_scale: float) -> float:
        return _log(accounting.epsilon_only(make_event(math.exp(log_scale)), delta, relation) / epsilon)

    root = math.exp(_root(excess, math.log(guess), epsilon))
    scale = _rounded_up(max(root * (1 + _ABOVE), root + 2e-6))
    while accounting.epsilon_only(make_event(scale), delta, relation) > epsilon:
        scale = _rounded_up(scale * (1 + 5e-5))
    return scale


def rounds_for(
    epsilon: float,
    delta: float,
    multiplier: float,
    rate: Rate = 1.0,
    sampling: Sampling = Sampling.POISSON,
    relation: Relation | None = None,
    laplace: bool = False,
) -> int:
    """The most rounds of this multiplier within (epsilon, delta); 0 if not one fits."""
    sampling = Sampling(sampling)
    relation = Relation(relation) if relation else accounting.default_relation(sampling)
    return _rounds_for(epsilon, delta, multiplier, rate, sampling, relation, laplace)


@lru_cache(maxsize=256)
def _rounds_for(
    epsilon: float, delta: float, multiplier: float, rate: Rate, sampling: Sampling, relation: Relation, laplace: bool
) -> int:
    errors.positive(epsilon=epsilon)
    errors.between(0, 1, delta=delta)
    event = accounting.round_event(sampling, rate, multiplier, laplace)

    @lru_cache
    def excess(rounds: int) -> float:
        return _log(accounting.epsilon_only(events.repeated(event, rounds), delta, relation) / epsilon)

    if excess(1) > 0:
        return 0
    twice = 2 if relation is Relation.REPLACE_ONE else 1
    per_round = twice * _fraction(sampling, rate) * math.sqrt(math.expm1(min(multiplier**-2, 50.0)))
    low = 1
    high = max(2, round((gdp.mu(epsilon, delta) / per_round) ** 2))
    while excess(high) <= 0:
        low, high = high, 2 * high
        if high > 1 << 60:
            raise BadInput(f"More than {1 << 60} rounds of multiplier {multiplier} fit into epsilon {epsilon}.")
    while high - low > 1:
        # A secant through the logarithms, kept inside the bracket; halving where it does not help.
        below, above = excess(low), excess(high)
        part = below / (below - above) if math.isfinite(below) and math.isfinite(above) else 0.5
        guess = round(low * (high / low) ** part)
        guess = min(max(guess, low + 1), high - 1)
        low, high = (guess, high) if excess(guess) <= 0 else (low, guess)
        near = min(max(low + max(1, (high - low) // 64), low + 1), high - 1)
        if near not in (low, high):  # close in from the other side too
            low, high = (near, high) if excess(near) <= 0 else (low, near)
    return low


def _root(excess: Callable[[float], float], start: float, epsilon: float) -> float:
    """Some x with excess(x) in [-_CLOSE, 0], for a falling function that is nearly straight."""
    x, y = start, excess(start)
    low = high = None  # known to be too little, known to be enough
    slope = -1.2
    for _ in range(_MOST_STEPS):
        if -_CLOSE <= y <= 0:
            return x
        if y > 0:
            low = (x, y)
        else:
            high = (x, y)
        if low and high:
            if high[0] - low[0] < 1e-9:
                return high[0]
            straight = math.isfinite(low[1]) and math.isfinite(high[1])
            slope = (high[1] - low[1]) / (high[0] - low[0]) if straight else math.nan
            following = x + (-_AIM - y) / slope if straight and math.isfinite(y) else math.nan
            margin = 1e-3 * (high[0] - low[0]) if high[0] - low[0] > 1e-3 else 0.0
            if not low[0] + margin < following < high[0] - margin:
                following = (low[0] + high[0]) / 2
        else:
            step = (-_AIM - y) / slope if math.isfinite(y) else math.copysign(1.0, y)
            following = x + math.copysign(min(max(abs(1.3 * step), 1e-4), 2.0), step)
        if abs(following) > 40:
            raise BadInput(f"No amount of noise brings this schedule to epsilon {epsilon}; ask for a larger epsilon.")
        x, y = following, excess(following)
    if high is None:
        raise BadInput(f"No amount of noise brings this schedule to epsilon {epsilon}; ask for a larger epsilon.")
    return high[0]


def _fraction(sampling: Sampling, rate: Rate) -> float:
    """The rate as a number, 1 where nothing is sampled."""
    if sampling is Sampling.NONE:
        return 1.0
    return rate[1] / rate[0] if isinstance(rate, tuple) else rate


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _rounded_up(x: float) -> float:
    """Five significant digits, never below `x`."""
    digits = 4 - math.floor(math.log10(x))
    value = round(math.ceil(x * 10**digits) / 10**digits, max(digits, 0))
    return value if value >= x else value + 10.0**-digits
