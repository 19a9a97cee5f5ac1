"""What a step of DP-SGD costs, from a table: an upper bound at every point, for a million clients at once.

FedMAP's server looks up alpha q^2 / (2 sigma^2) and interpolates (its equation 6, section 3.2). That is the leading
term of an expansion and lies below the true cost. Here the table holds true costs, and interpolation cannot fall below
them, because of convexity. At a whole order a, with w = 1/z^2 (Mironov, Talwar, Zhang 2019, section 3.3),

    (a - 1) RDP(w) = log sum_k binom(a, k) q^k (1 - q)^(a - k) exp(k (k - 1) w / 2)

is the logarithm of a sum of exponentials with positive weights, hence convex in w: between two nodes the chord lies on
or above it. Nodes are equally spaced in 1/z, from 0 (no cost) to 1/`least`; below that multiplier the cost is given as
infinite. The cost grows with the rate q, so where there are too many different rates they are rounded up.

Relations: add-remove and zero-out. Replace-one has no such formula and is not offered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sordino.errors import BadInput, positive, whole
from sordino.privacy.renyi import Floats

ORDERS = tuple(range(2, 65))
_MOST = 4096  # different rates; beyond, they are rounded up to so many
_ROUND_UP = 1 + 1e-11  # above the rounding of the sums and of the interpolation
_BLOCK = 1 << 16  # looked up at a time, so that what is worked on stays in the cache
_CELLS = 1 << 22  # of the binomial sums that are held at a time


class Table:
    """Renyi costs of the Poisson-sampled Gaussian at whole `orders`, for the given sampling rates.

    >>> table = Table(rates=[0.1], orders=[8])
    >>> bool(1.378361411 < table.cost(1.0)[0] < 1.3784)  # the paper's formula gives 0.04
    True
    """

    def __init__(self, rates: ArrayLike, orders: Sequence[int] = ORDERS, bins: int = 100, least: float = 0.3) -> None:
        whole(bins=bins)
        positive(least=least)
        given = np.atleast_1d(np.asarray(rates, float))
        if given.ndim != 1 or not given.size or not np.all((given > 0) & (given <= 1)):
            raise BadInput("rates must be above 0 and at most 1; one is not.")
        for order in orders:
            whole(2, order=order)
        self.orders, self.bins, self.least = tuple(orders), bins, float(least)
        self.rates = _distinct(given)
        self.rows: NDArray[np.intp] = np.searchsorted(self.rates, given)  # of each client: a rate that is no smaller
        w = np.square(np.arange(bins + 1) / bins / least)
        # [order, rate, cell]: within a cell the cost is base + slope * w.
        nodes = np.stack([_nodes(order, self.rates, w) for order in self.orders])
        self._slope = np.diff(nodes, axis=2) / np.diff(w)
        self._base = nodes[:, :, :-1] - self._slope * w[:-1]
        self._nodes = nodes

    def cost(self, multipliers: ArrayLike, clients: ArrayLike | None = None, order: int | None = None) -> Floats:
        """The cost of one step at each multiplier, for these clients: places in `rates`, by default one after another.

        A multiplier that is not a number, is not above zero or is below `least` costs infinitely much.
        """
        z = np.atleast_1d(np.asarray(multipliers, float))
        if z.ndim != 1:
            raise BadInput(f"multipliers must be one number or a list of them, not {z.shape}.")
        rows = self._which(clients, z.size)
        at = self._at(order)
        base, slope = self._base[at].reshape(-1), self._slope[at].reshape(-1)
        out = np.empty(z.size)
        with np.errstate(all="ignore"):
            for start in range(0, z.size, _BLOCK):
                part = slice(start, start + _BLOCK)
                good = z[part] >= self.least  # false for what is not a number
                inverse = np.where(good, 1 / z[part], 0.0)
                cell = np.minimum((inverse * (self.least * self.bins)).astype(np.intp), self.bins - 1)
                cell += rows[part] * self.bins
                cost = np.maximum(base[cell] + slope[cell] * np.square(inverse), 0.0) * _ROUND_UP
                out[part] = np.where(good, cost, np.inf)
        return out

    def curve(self, multipliers: ArrayLike, clients: ArrayLike | None = None) -> Floats:
        """The same at every order: [multiplier, order]."""
        return np.stack([self.cost(multipliers, clients, order) for order in self.orders], axis=1)

    def multiplier(self, allowances: ArrayLike, clients: ArrayLike | None = None, order: int | None = None) -> Floats:
        """The least multiplier, by this table, at which one step costs no more than the allowance; infinite if none."""
        allowed = np.atleast_1d(np.asarray(allowances, float)) / _ROUND_UP
        if np.isnan(allowed).any():
            raise BadInput("allowances must be numbers; one is not.")
        rows = self._which(clients, allowed.size)
        at = self._at(order)
        nodes = self._nodes[at]
        low, high = np.zeros(allowed.size, np.intp), np.full(allowed.size, self.bins, np.intp)
        while np.any(high - low > 1):  # the cell whose right node is too costly
            middle = (low + high) // 2
            fits = nodes[rows, middle] <= allowed
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        base, slope = self._base[at][rows, low], self._slope[at][rows, low]
        with np.errstate(all="ignore"):
            w = np.minimum((allowed - base) / slope, 1 / self.least**2)
            z = np.where(allowed > 0, 1 / np.sqrt(np.maximum(w, 0.0)), np.inf)
        z = np.where(nodes[rows, -1] <= allowed, self.least, np.maximum(z, self.least))
        for _ in range(100):  # rounding: step up until it fits
            over = np.isfinite(z) & (self.cost(z, clients, order) > np.asarray(allowances, float))
            if not over.any():
                break
            z = np.where(over, z * (1 + 1e-12), z)
        return z

    def _at(self, order: int | None) -> int:
        if order is None and len(self.orders) == 1:
            return 0
        if order not in self.orders:
            raise BadInput(f"the table holds orders {self.orders[0]} to {self.orders[-1]}; {order} is not among them.")
        return self.orders.index(order)

    def _which(self, clients: ArrayLike | None, count: int) -> NDArray[np.intp]:
        if clients is not None:
            rows = self.rows[np.atleast_1d(np.asarray(clients, np.intp))]
        else:
            rows = self.rows if self.rows.size != 1 else np.broadcast_to(self.rows, (count,))
        if rows.size != count:
            raise BadInput(f"there are {count} multipliers for {rows.size} clients; give one each.")
        return rows


def _distinct(rates: Floats) -> Floats:
    """Ascending; if there are too many, a geometric grid that rounds up."""
    distinct = np.unique(rates)
    if distinct.size <= _MOST:
        return distinct
    grid = np.geomspace(distinct[0], distinct[-1], _MOST)
    grid[-1] = distinct[-1]
    return grid


def _nodes(order: int, rates: Floats, w: Floats) -> Floats:
    """True costs [rate, node] by the binomial sum; its terms 0 and 1 and the sum of the weights are the 1 left out."""
    from scipy.special import gammaln

    k = np.arange(2, order + 1, dtype=float)
    choose = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    growth = k * (k - 1) / 2 * w[1:, None]
    rise = growth + np.log(-np.expm1(-growth))
    out = np.zeros((rates.size, w.size))
    step = max(1, _CELLS // rise.size)
    for start in range(0, rates.size, step):
        q = rates[start : start + step, None, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            rest = np.where(k == order, 0.0, (order - k) * np.log1p(-q))
            terms = choose + k * np.log(q) + rest + rise
        top = terms.max(axis=2, keepdims=True)
        log_excess = np.log(np.exp(terms - top).sum(axis=2)) + top[:, :, 0]
        out[start : start + step, 1:] = np.logaddexp(0, log_excess) / (order - 1)
    return out * _ROUND_UP
