"""Gaussian differential privacy: the exact account where nothing is sampled (Dong, Roth, Su 2022).

A Gaussian of multiplier z is mu-GDP with mu = 1/z, compositions add mu^2, and the curve delta(epsilon) is known in
closed form (Balle, Wang 2018, theorem 8). Nothing here is an approximation.
"""

from __future__ import annotations

import math
from collections.abc import Callable


def compose(*mus: float) -> float:
    """The mu of a composition.

    >>> compose(3.0, 4.0)
    5.0
    """
    return math.hypot(*mus)


def delta(epsilon: float, mu: float) -> float:
    """Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)."""
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    from scipy.special import log_ndtr

    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


def epsilon(delta_: float, mu: float) -> float:
    """The smallest epsilon at `delta_`, from above."""
    if mu == 0 or delta(0.0, mu) <= delta_:
        return 0.0
    if math.isinf(mu):
        return math.inf
    high = mu * (mu / 2 + math.sqrt(2 * math.log(1 / delta_)))  # Phi(-x) <= exp(-x^2/2) makes this enough
    return _least(lambda eps: delta(eps, mu) <= delta_, 0.0, high)


def mu(epsilon_: float, delta_: float) -> float:
    """The largest mu within (epsilon, delta), from below."""
    low, high = 0.0, 1.0
    while delta(epsilon_, high) <= delta_:
        low, high = high, 2 * high
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return low
        if delta(epsilon_, middle) <= delta_:
            low = middle
        else:
            high = middle


def _least(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The least float in [low, high] at which `holds`, which goes from false to true."""
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return high
        if holds(middle):
            high = middle
        else:
            low = middle
