"""Renyi divergences of the mechanisms that are in use, each an upper bound and vectorised over orders.

Every function takes the order(s) first and a multiplier that is noise over *sensitivity*; the doubling that replace-one
asks for is done in `rdp`. Where a divergence is a small number, it is computed as such (log1p of a sum of positive
terms), so that a million tiny rounds add up to the right total.

- Gaussian, Poisson-sampled: Mironov, Talwar, Zhang 2019. Whole orders by the binomial sum (section 3.3), the others by
  the trapezoid rule on the defining integral, which converges geometrically for these integrands.
- Gaussian, Poisson-sampled, one unit replaced by another: the pair (1-q)N(0)+qN(1), (1-q)N(0)+qN(-1), same rule.
- Gaussian, fixed-size sample: Wang, Balle, Kasiviswanathan 2019, theorem 27 at whole orders, corollary 10 between.
- Laplace: Mironov 2017, proposition 6; Poisson-sampled by Gauss-Legendre quadrature.
- Pure epsilon: Bun, Steinke 2016, through randomised response, which dominates every such mechanism.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_ROUND_UP = 1 + 1e-11  # more than all the floating point error below; keeps each figure on the private side
_MOST_NODES = 20_000  # of the trapezoid rule; beyond it (no privacy to speak of) the interpolated bound is used
_TIGHT_UP_TO = 256  # order up to which theorem 27 is evaluated with its forward differences


def gaussian(orders: ArrayLike, multiplier: float) -> Floats:
    """order / (2 z^2), exactly."""
    return np.asarray(orders, float) / (2 * multiplier**2)


def poisson_gaussian(orders: ArrayLike, rate: float, multiplier: float) -> Floats:
    """A Gaussian of this multiplier on a Poisson sample, add-remove or zero-out."""
    orders = np.asarray(orders, float)
    if rate == 1:
        return gaussian(orders, multiplier)
    flat = np.atleast_1d(orders)
    log_a = np.empty(flat.shape)
    whole = flat == np.floor(flat)
    log_a[whole] = _binomials(flat[whole], rate, multiplier)
    if not whole.all():
        between = flat[~whole]
        values, done = _mixture(between, rate, multiplier, replace=False)
        if not done.all():  # the chord of a convex function lies above it
            low = np.floor(between)
            ends = [_binomials(low + side, rate, multiplier) for side in (0, 1)]
            values = np.where(done, values, ends[0] + (between - low) * (ends[1] - ends[0]))
        log_a[~whole] = values
    # Sampling never costs more than no sampling.
    return np.minimum(log_a / (flat - 1) * _ROUND_UP, gaussian(flat, multiplier)).reshape(orders.shape)


def poisson_gaussian_replaced(orders: ArrayLike, rate: float, multiplier: float) -> Floats:
    """The same where one unit is replaced by another; `multiplier` is still noise over the bound of one unit."""
    orders = np.asarray(orders, float)
    if rate == 1:
        return gaussian(orders, multiplier / 2)
    flat = np.atleast_1d(orders)
    log_a, done = _mixture(flat, rate, multiplier, replace=True)
    # Not done: far too little noise for the rule. Sampling never costs more than no sampling (joint convexity).
    values = np.where(done, log_a / (flat - 1) * _ROUND_UP, gaussian(flat, multiplier / 2))
    return values.reshape(orders.shape)


def fixed_gaussian(orders: ArrayLike, rate: float, multiplier: float) -> Floats:
    """A Gaussian on a sample of a fixed size, replace-one; `multiplier` is noise over the replace-one sensitivity."""
    orders = np.asarray(orders, float)
    if rate == 1:
        return gaussian(orders, multiplier)
    top = math.ceil(orders.max())
    log_b = _central_moments(min(top, _TIGHT_UP_TO) + 1, multiplier)
    table = {
        order: _theorem_27(order, rate, multiplier, log_b) for order in {*np.floor(orders.flat), *np.ceil(orders.flat)}
    }
    low, high = np.floor(orders), np.ceil(orders)
    part = orders - low
    look = np.vectorize(table.__getitem__, otypes=[float])
    # log A is convex in the order (corollary 10), so the chord lies above it.
    values = ((1 - part) * look(low) + part * look(high)) / (orders - 1) * _ROUND_UP
    return np.minimum(values, gaussian(orders, multiplier))


def laplace(orders: ArrayLike, multiplier: float) -> Floats:
    """Laplace noise of scale `multiplier` times the L1 sensitivity."""
    a, eps = np.asarray(orders, float), 1 / multiplier
    return np.maximum(eps + np.log1p((a - 1) * np.expm1(eps * (1 - 2 * a)) / (2 * a - 1)) / (a - 1), 0.0) * _ROUND_UP


def poisson_laplace(orders: ArrayLike, rate: float, multiplier: float) -> Floats:
    """Laplace noise on a Poisson sample, add-remove or zero-out; the larger of both directions."""
    orders = np.asarray(orders, float)
    if rate == 1:
        return laplace(orders, multiplier)
    a = np.atleast_1d(orders)[:, None]
    eps = 1 / multiplier
    if eps > 700:
        return np.full(orders.shape, np.logaddexp(math.log1p(-rate), math.log(rate) + eps))  # its largest loss
    # Under Laplace(0) the likelihood ratio is constant left of 0 and right of 1, and smooth between.
    nodes, weights = np.polynomial.legendre.leggauss(200)
    x = (nodes + 1) / 2
    shift = np.concatenate([[-eps], eps * (2 * x - 1), [eps]])
    mass = np.concatenate([[0.5], weights / 2 * (eps / 2) * np.exp(-eps * x), [np.exp(-eps) / 2]])
    t = np.logaddexp(np.log1p(-rate), math.log(rate) + shift)  # log of the ratio sampled / not sampled
    with np.errstate(divide="ignore"):
        log_mass = np.log(mass)
    there = np.logaddexp(0, _logsumexp(log_mass + _log_excess(a, t)))
    back = np.logaddexp(0, _logsumexp(log_mass + t + _log_excess(a, -t)))
    return (np.maximum(there, back) / (a[:, 0] - 1) * _ROUND_UP).reshape(orders.shape)


def pure(orders: ArrayLike, epsilon: float) -> Floats:
    """Anything that is epsilon-DP outright: at most what randomised response costs."""
    a = np.asarray(orders, float)
    log_p, log_q = -np.logaddexp(0, -epsilon), -np.logaddexp(0, epsilon)
    total = np.logaddexp(a * log_p + (1 - a) * log_q, a * log_q + (1 - a) * log_p)
    return np.clip(total / (a - 1) * _ROUND_UP, 0.0, epsilon)


# --- Poisson-sampled Gaussian -----------------------------------------------------------------------------------------


def _binomials(orders: Floats, rate: float, multiplier: float) -> Floats:
    """log A at whole orders by the binomial sum. Its terms 0 and 1 and the sum of the weights are the 1 left out."""
    log_a = np.zeros(len(orders))  # order 1
    few = (orders > 1) & (orders <= 64)  # these in one table
    for group in [np.flatnonzero(few), *np.flatnonzero(orders > 64)[:, None]]:
        if len(group) == 0:
            continue
        weight, i, rest = _binomial_table(tuple(orders[group].astype(int).tolist()))
        growth = i * (i - 1) / (2 * multiplier**2)
        factor = i * math.log(rate) + growth + np.log(-np.expm1(-growth))
        log_a[group] = np.logaddexp(0, _logsumexp(weight + rest * math.log1p(-rate) + factor))
    return log_a


@lru_cache(maxsize=64)
def _binomial_table(orders: tuple[int, ...]) -> tuple[Floats, Floats, Floats]:
    """For each order (a row): the log of its binomial coefficients from 2 up; the columns; order minus column."""
    from scipy.special import gammaln

    n, i = np.array(orders, float)[:, None], np.arange(2, max(orders) + 1, dtype=float)
    with np.errstate(invalid="ignore"):
        weight = gammaln(n + 1) - gammaln(i + 1) - gammaln(np.maximum(n - i, 0) + 1)
    return np.where(i <= n, weight, -np.inf), i, np.maximum(n - i, 0)


def _mixture(orders: Floats, rate: float, multiplier: float, replace: bool) -> tuple[Floats, NDArray[np.bool_]]:
    """log A by the trapezoid rule, and for which orders it was affordable.

    With r the likelihood ratio and E over the second distribution, A - 1 = E[r^a - 1 - a(r - 1)]: nothing cancels. The
    integrand has its nearest branch points at a height of pi z^2; the step keeps the error below 1e-14.
    """
    orders = np.asarray(orders, float)
    step = min(0.4, 0.6 * multiplier)
    reach = (2 * orders.max() if replace else orders.max()) / multiplier + 10
    if (reach + 11) / step > _MOST_NODES:
        if len(orders) == 1:
            return np.full(1, np.nan), np.zeros(1, bool)
        halves = [_mixture(half, rate, multiplier, replace) for half in np.array_split(np.sort(orders), 2)]
        back = np.argsort(np.argsort(orders, kind="stable"), kind="stable")
        return np.concatenate([h[0] for h in halves])[back], np.concatenate([h[1] for h in halves])[back]
    y = np.arange(-10 - 1 / multiplier, reach, step)
    log_weight = -(y**2) / 2 - math.log(2 * math.pi) / 2 + math.log(step)
    up = np.logaddexp(math.log1p(-rate), math.log(rate) + y / multiplier - 1 / (2 * multiplier**2))
    t = up
    if replace:
        down = np.logaddexp(math.log1p(-rate), math.log(rate) - y / multiplier - 1 / (2 * multiplier**2))
        t, log_weight = up - down, log_weight + down
    log_a = np.logaddexp(0, _logsumexp(log_weight + _log_excess(orders[:, None], t)))
    return log_a, np.ones(orders.shape, bool)


def _log_excess(a: Floats, t: Floats) -> Floats:
    """log(e^(a t) - 1 - a (e^t - 1)) for orders `a` (a column) and log ratios `t` (a row), without cancellation."""
    u = np.expm1(np.minimum(t, 1.0))
    small = np.abs(a * u) < 1e-2
    with np.errstate(all="ignore"):
        series, term = np.zeros(np.broadcast_shapes(a.shape, t.shape)), 0.5 * a * (a - 1) * np.ones_like(u)
        for k in range(3, 11):
            series = series + term
            term = term * (a - k + 1) / k * u
        near = 2 * np.log(np.abs(u)) + np.log(series)
        below = np.log(np.expm1(a * t) - a * u)
        above = a * t + np.log1p(-np.exp(t - a * t + np.log(a + (1 - a) * np.exp(-t))))
    return np.where(small, near, np.where(t < 0, below, above))


# --- fixed-size samples -----------------------------------------------------------------------------------------------


def _central_moments(top: int, multiplier: float) -> Floats:
    """log E[(r - 1)^l] for even l up to `top` (odd places unused), r the likelihood ratio of two Gaussians.

    These are the forward differences of theorem 27; as integrals of squares they can be summed without cancellation.
    """
    top += top % 2
    width = 2 * math.sqrt(top)
    step = 2 * math.pi / (width + 14)
    if (top / multiplier + 2 * width + 20) / step > _MOST_NODES:  # no privacy to speak of: the other bound will do
        moments = np.full(top + 1, np.inf)
        moments[2] = multiplier**-2 + math.log(-math.expm1(-(multiplier**-2)))
        return moments
    y = np.arange(-width - 10, top / multiplier + width + 10, step)
    w = y / multiplier - 1 / (2 * multiplier**2)
    with np.errstate(divide="ignore"):
        log_ratio = np.where(w > 0, w + np.log(-np.expm1(-np.abs(w))), np.log(-np.expm1(-np.abs(w))))
    log_weight = -(y**2) / 2 - math.log(2 * math.pi) / 2 + math.log(step)
    moments = np.full(top + 1, np.inf)
    for even in range(2, top + 1, 2):
        moments[even] = _logsumexp(log_weight + even * log_ratio)
    return moments


def _theorem_27(order: float, rate: float, multiplier: float, log_b: Floats) -> float:
    """log A at one whole order."""
    if order < 2:
        return 0.0
    j = np.arange(2, int(order) + 1)
    cap = math.log(2) + j * (j - 1) / (2 * multiplier**2)
    if order <= _TIGHT_UP_TO:
        cap = np.minimum(cap, math.log(4) + (log_b[2 * (j // 2)] + log_b[2 * ((j + 1) // 2)]) / 2)
    else:
        cap[0] = min(cap[0], math.log(4) + log_b[2])
    return float(np.logaddexp(0, _logsumexp(cap + j * math.log(rate) + _log_choose(int(order), j))))


# --- small helpers ----------------------------------------------------------------------------------------------------


def _log_choose(n: int, k: NDArray[np.int_]) -> Floats:
    from scipy.special import gammaln

    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def _logsumexp(values: Floats) -> Floats:
    """Along the last axis; plain, because scipy's costs more than the sums taken here."""
    top = np.max(values, axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.sum(np.exp(values - top), axis=-1)) + top[..., 0]
