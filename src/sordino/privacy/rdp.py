"""Renyi accounting of events: what one costs at an order, and what that means as an epsilon.

The filter is built on this (Feldman, Zrnic 2021: a budget at one order, committed beforehand, may be spent adaptively),
and so is every account that privacy loss distributions have no event for. Orders are real numbers above 1.

Convention: the multiplier of an event is noise over the *bound of one contribution*, whatever the relation. Replace-one
moves a sum by twice the bound; for Renyi accounts that doubling happens here and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from sordino import errors
from sordino.errors import BadInput
from sordino.privacy import events, renyi
from sordino.privacy.renyi import Floats
from sordino.privacy.vocabulary import Relation

if TYPE_CHECKING:
    from dp_accounting import dp_event

# Good for Gaussians in the range of interest; the same as dp-accounting's, so that figures can be compared.
ORDERS: Floats = np.array([1 + x / 10 for x in range(1, 100)] + list(range(11, 64)) + [128, 256, 512, 1024], float)


def poisson_gaussian(order: ArrayLike, rate: ArrayLike, multiplier: ArrayLike) -> Floats | float:
    """RDP of the Poisson-sampled Gaussian (add-remove, zero-out); the arguments broadcast.

    >>> round(poisson_gaussian(2, 0.1, 1.0), 6)
    0.017037
    """
    a, q, z = np.broadcast_arrays(*(np.asarray(v, float) for v in (order, rate, multiplier)))
    if not (np.all(a > 1) and np.all((q > 0) & (q <= 1)) and np.all(z > 0)):
        raise BadInput("RDP needs orders above 1, rates above 0 and at most 1, and multipliers above 0.")
    out = np.empty(a.shape)
    pairs, where = np.unique(np.stack([q.ravel(), z.ravel()], axis=1), axis=0, return_inverse=True)
    for index, (q_, z_) in enumerate(pairs):
        here = where.ravel() == index
        distinct, back = np.unique(a.ravel()[here], return_inverse=True)
        out.ravel()[here] = renyi.poisson_gaussian(distinct, float(q_), float(z_))[back]
    return float(out) if out.ndim == 0 else out


def cost(event: events.Event, order: float, relation: Relation = Relation.ADD_REMOVE) -> float:
    """The RDP of one event at one order; infinite if it is not private."""
    return float(curve(event, relation, np.array([float(order)]))[0])


def curve(event: events.Event, relation: Relation = Relation.ADD_REMOVE, orders: ArrayLike = ORDERS) -> Floats:
    """The RDP of `event` at each of `orders`."""
    a = np.asarray(orders, float)
    if a.size == 0 or not np.all(a > 1) or not np.all(np.isfinite(a)):
        raise BadInput(f"An RDP order must be a number above 1, not {orders!r}.")
    return _curve(event, Relation(relation), a)


def _curve(event: events.Event, relation: Relation, a: Floats) -> Floats:
    t = events.types()
    if isinstance(event, t.NoOpDpEvent):
        return np.zeros(a.shape)
    if isinstance(event, t.NonPrivateDpEvent):
        return np.full(a.shape, np.inf)
    if isinstance(event, t.SelfComposedDpEvent):
        return event.count * _curve(event.event, relation, a)
    if isinstance(event, t.ComposedDpEvent):
        total = np.zeros(a.shape)
        for part in event.events:
            total = total + _curve(part, relation, a)
        return total
    twice = 2.0 if relation is Relation.REPLACE_ONE else 1.0
    if isinstance(event, t.GaussianDpEvent):
        return _noisy(event, lambda z: renyi.gaussian(a, z / twice), a)
    if isinstance(event, t.LaplaceDpEvent):
        return _noisy(event, lambda b: renyi.laplace(a, b / twice), a)
    if isinstance(event, t.ZCDpEvent):  # the cost is at most quadratic in the sensitivity
        return twice**2 * (event.xi + event.rho * a)
    if isinstance(event, t.PoissonSampledDpEvent):
        return _poisson(event, relation, a)
    if isinstance(event, t.SampledWithoutReplacementDpEvent):
        return _fixed(event, relation, a)
    raise BadInput(f"No RDP is known for an event of type {type(event).__name__}; use those of sordino.privacy.events.")


def _noisy(
    event: dp_event.GaussianDpEvent | dp_event.LaplaceDpEvent, formula: Callable[[float], Floats], a: Floats
) -> Floats:
    """`formula` of the multiplier, or infinity where there is no noise."""
    return formula(event.noise_multiplier) if event.noise_multiplier > 0 else np.full(a.shape, np.inf)


def _poisson(event: dp_event.PoissonSampledDpEvent, relation: Relation, a: Floats) -> Floats:
    rate, inner, t = event.sampling_probability, collapse(event.event), events.types()
    replaced = relation is Relation.REPLACE_ONE
    if isinstance(inner, t.GaussianDpEvent):
        formula = renyi.poisson_gaussian_replaced if replaced else renyi.poisson_gaussian
        return _noisy(inner, lambda z: formula(a, rate, z), a)
    if isinstance(inner, t.LaplaceDpEvent):
        if replaced:
            return _noisy(inner, lambda b: renyi.pure(a, poisson_replaced_epsilon(rate, 1 / b)), a)
        return _noisy(inner, lambda b: renyi.poisson_laplace(a, rate, b), a)
    # Sampling never costs more than no sampling (joint convexity), and nothing better is proven here for the rest.
    return _curve(inner, relation, a)


def _fixed(event: dp_event.SampledWithoutReplacementDpEvent, relation: Relation, a: Floats) -> Floats:
    rate, inner, t = event.sample_size / event.source_dataset_size, collapse(event.event), events.types()
    if rate == 1:  # all of them, every time
        return _curve(inner, relation, a)
    if relation is Relation.ADD_REMOVE:
        raise BadInput(
            "A fixed-size sample has no proof under add-remove, as its size says how many units there are; "
            "use the relation replace-one, or Poisson sampling."
        )
    # A contribution of zero is one of the values that replace-one allows, so its bound covers zero-out as well. No
    # smaller one is known: a unit that leaves the sample makes room for another.
    if isinstance(inner, t.GaussianDpEvent):
        return _noisy(inner, lambda z: renyi.fixed_gaussian(a, rate, z / 2), a)
    if isinstance(inner, t.LaplaceDpEvent):
        return _noisy(inner, lambda b: renyi.pure(a, fixed_epsilon(rate, 2 / b)), a)
    return _curve(inner, Relation.REPLACE_ONE, a)


def poisson_replaced_epsilon(rate: float, epsilon: float) -> float:
    """Pure epsilon of a Poisson-sampled mechanism under replace-one; `epsilon` is what leaving out one unit costs."""
    return fixed_epsilon(rate, epsilon) - fixed_epsilon(rate, -epsilon)


def fixed_epsilon(rate: float, epsilon: float) -> float:
    """Pure epsilon on a fixed-size sample (Balle, Barthe, Gaboardi 2018, theorem 9); `epsilon` is under replace-one."""
    if epsilon > 500:
        return float(np.logaddexp(np.log1p(-rate), math.log(rate) + epsilon))
    return math.log1p(rate * math.expm1(epsilon))


def collapse(event: events.Event) -> events.Event:
    """Any nest of plain Gaussians on one cohort as the one Gaussian that it is; anything else unchanged."""
    t = events.types()
    try:
        precision = _precision(event)
    except TypeError:
        return event
    return t.GaussianDpEvent(0.0 if math.isinf(precision) else precision**-0.5) if precision else t.NoOpDpEvent()


def _precision(event: events.Event) -> float:
    """The sum of 1/z^2 over a nest of Gaussians; TypeError if something else is in it."""
    t = events.types()
    if isinstance(event, t.NoOpDpEvent):
        return 0.0
    if isinstance(event, t.GaussianDpEvent):
        return event.noise_multiplier**-2 if event.noise_multiplier > 0 else math.inf
    if isinstance(event, t.SelfComposedDpEvent):
        return event.count * _precision(event.event)
    if isinstance(event, t.ComposedDpEvent):
        return math.fsum(_precision(part) for part in event.events)
    raise TypeError(type(event).__name__)


# --- epsilon ----------------------------------------------------------------------------------------------------------


def to_epsilon(rdp: float, order: float, delta: float) -> float:
    """The epsilon that an RDP at one order proves (Canonne, Kamath, Steinke 2020, proposition 12)."""
    return max(0.0, rdp + math.log1p(-1 / order) - math.log(delta * order) / (order - 1))


def budget(epsilon: float, delta: float, order: float) -> float:
    """The RDP at `order` that may be spent within (epsilon, delta); `to_epsilon` turned round. Negative: none."""
    return epsilon - math.log1p(-1 / order) + math.log(delta * order) / (order - 1)


def epsilon_of(rdp: ArrayLike, delta: float, orders: ArrayLike = ORDERS) -> float:
    """The smallest epsilon over a whole curve, for a schedule that was fixed in advance."""
    a, r = np.asarray(orders, float), np.asarray(rdp, float)
    if np.any(delta**2 > -np.expm1(-r)):  # delta <= sqrt(1 - exp(-KL)), KL at most the RDP (Bretagnolle, Huber)
        return 0.0
    usable = a > 1.01
    eps = r[usable] + np.log1p(-1 / a[usable]) - np.log(delta * a[usable]) / (a[usable] - 1)
    return max(0.0, float(np.min(eps))) if eps.size else math.inf


def delta_of(rdp: ArrayLike, epsilon: float, orders: ArrayLike = ORDERS) -> float:
    """The smallest delta over a whole curve at one epsilon."""
    a, r = np.asarray(orders, float), np.asarray(rdp, float)
    usable = a > 1.01
    with np.errstate(over="ignore"):
        by_order = np.exp((a - 1) * (r - epsilon + np.log1p(-1 / a)) - np.log(a))[usable]
    by_divergence = np.sqrt(-np.expm1(-r))
    return float(min(1.0, np.min(by_order, initial=1.0), np.min(by_divergence, initial=1.0)))


def best_order(event: events.Event, epsilon: float, delta: float, relation: Relation = Relation.ADD_REMOVE) -> float:
    """The order at which most copies of `event` fit into (epsilon, delta), to four digits; fixed before round one."""
    errors.positive(epsilon=epsilon)
    errors.between(0, 1, delta=delta)

    def copies(orders: Floats) -> Floats:
        costs = curve(event, relation, orders)
        room = np.array([budget(epsilon, delta, order) for order in orders])
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where((room > 0) & np.isfinite(costs), room / np.maximum(costs, 1e-300), -np.inf)

    # eps ~ log(1/delta)/(order-1) must fit, so small budgets need orders well beyond the usual ones.
    top = max(64.0, 8 * (1 - math.log(delta)) / epsilon)
    low, high = math.log(0.01), math.log(min(top, 1e5))
    best = math.nan
    for _ in range(4):  # ever finer grids around the best order so far
        orders = np.array(sorted({_tidy(1 + math.exp(x)) for x in np.linspace(low, high, 25)}))
        counts = copies(orders)
        if not np.any(counts > -np.inf):
            raise BadInput(
                f"No order fits this event into epsilon {epsilon} at delta {delta}: it is not private, or the budget "
                "is too small; add noise or raise epsilon."
            )
        at = int(np.argmax(counts))
        best = float(orders[at])
        low, high = math.log(orders[max(at - 1, 0)] - 1), math.log(orders[min(at + 1, len(orders) - 1)] - 1)
        if low >= high:
            break
    return best


def _tidy(order: float) -> float:
    """Four digits, and whole from 64 up: an order is written into a ledger and read by people."""
    return float(round(order)) if order >= 64 else float(f"{order:.4g}")
