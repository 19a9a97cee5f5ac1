"""Filters that add up costs: Renyi divergence at one order, or 1/z^2 of Gaussian releases. Sums are exact (see `exact`)."""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction

import numpy as np

from sordino.errors import BadInput, BudgetRefused, between, positive
from sordino.privacy import exact
from sordino.privacy.events import Event
from sordino.privacy.filter.base import Filter, FilterJson
from sordino.privacy.vocabulary import Relation

_SLACK = 40  # a computed Renyi cost is taken as 2^-40 (1e-12) larger, above the rounding of the formulas behind it
_CACHE = 4096  # distinct events whose cost is remembered


class _Sum(Filter):
    """A filter that adds up costs, exactly."""

    relation: Relation

    def __init__(self, epsilon: float, delta: float, relation: Relation | str, budget: int) -> None:
        positive(epsilon=epsilon)
        between(0, 1, delta=delta)
        self.epsilon, self.delta, self.relation = float(epsilon), float(delta), Relation(relation)
        self._budget, self._spent = budget, 0
        self._costs: dict[Event, int | None] = {}

    @abstractmethod
    def _cost(self, event: Event) -> int | None:
        """The cost in units of 2^-1074, rounded up; None if it is infinite."""

    def _charge(self, event: Event) -> int | None:
        try:
            if event in self._costs:
                return self._costs[event]
        except TypeError:  # an event that holds a list has no hash
            return self._cost(event)
        cost = self._cost(event)
        if len(self._costs) >= _CACHE:
            self._costs.clear()
        self._costs[event] = cost
        return cost

    def price(self, event: Event) -> float:
        cost = self._charge(event)
        return math.inf if cost is None else exact.to_float(cost)

    def affords(self, event: Event) -> bool:
        cost = self._charge(event)
        return cost is not None and self._spent + cost <= self._budget

    def times(self, event: Event) -> float:
        cost = self._charge(event)
        if cost is None:
            return 0
        return (self._budget - self._spent) // cost if cost else math.inf

    def request(self, event: Event) -> None:
        cost = self._charge(event)
        if cost is None:
            raise BudgetRefused(
                f"The release is refused because no budget covers it: it is not private, {self.spent:.6g} of "
                f"{exact.to_float(self._budget):.6g} {self.currency} is spent; add noise, or run without an epsilon."
            )
        if self._spent + cost > self._budget:
            raise BudgetRefused(
                f"The release is refused because the budget (epsilon {self.epsilon:g}, delta {self.delta:g}) would be "
                f"exceeded: it costs {exact.to_float(cost):.6g} {self.currency}, {self.spent:.6g} is spent and "
                f"{self.left:.6g} is left; stop here, or ask again with a larger multiplier or a smaller sampling rate."
            )
        self._spent += cost
        self.granted += 1

    @property
    def spent(self) -> float:
        return exact.to_float(self._spent)

    @property
    def left(self) -> float:
        return exact.to_float(self._budget - self._spent)

    def _state(self) -> FilterJson:
        return {
            "kind": self.kind,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": str(self.relation),
            "spent": exact.pack(self._spent),
            "granted": self.granted,
        }

    def _restore(self, data: FilterJson) -> None:
        self._spent, self.granted = exact.unpack(data["spent"]), int(data["granted"])
        if not 0 <= self._spent <= self._budget or self.granted < 0:
            raise BadInput(f"The stored {self.kind} filter lies outside its own budget; take an untouched copy.")


class RdpFilter(_Sum):
    """Renyi divergence at an order that was committed before round one (Feldman and Zrnic 2021)."""

    kind = "rdp"
    currency = "of Renyi divergence"

    def __init__(
        self, epsilon: float, delta: float, order: float, relation: Relation | str = Relation.ADD_REMOVE
    ) -> None:
        from sordino.privacy import rdp

        positive(epsilon=epsilon)
        between(0, 1, delta=delta)
        if not (isinstance(order, (int, float)) and math.isfinite(order) and order > 1):
            raise BadInput(f"order must be a finite number above 1, not {order!r}.")
        budget = rdp.budget(epsilon, delta, order)
        if not budget > 0:
            raise BadInput(f"order {order:g} is too small for epsilon {epsilon:g}, delta {delta:g}; take a larger one.")
        super().__init__(epsilon, delta, relation, exact.from_float(budget) - (exact.from_float(budget) >> _SLACK))
        self.order = float(order)

    def _cost(self, event: Event) -> int | None:
        from sordino.privacy import rdp

        if exact.not_private(event):
            return None
        exact.check(event)
        try:
            with np.errstate(all="ignore"):  # a multiplier of 1e-200 is not worth a warning: the cost is infinite
                cost = float(rdp.cost(event, self.order, self.relation))
        except ArithmeticError:
            cost = math.nan
        if math.isnan(cost) or cost < 0:
            raise BadInput(f"{exact.say(event)} has no Renyi cost at order {self.order:g}; check its multiplier.")
        if math.isinf(cost):
            return None
        return exact.from_float(cost) + (exact.from_float(cost) >> _SLACK) + 1

    def to_json(self) -> FilterJson:
        return {**self._state(), "order": self.order}

    @classmethod
    def from_json(cls, data: FilterJson) -> RdpFilter:
        made = cls(data["epsilon"], data["delta"], data["order"], data["relation"])
        made._restore(data)
        return made


class GdpFilter(_Sum):
    """Gaussian releases without sampling: the sum of (sensitivity/z)^2 against mu^2 (Koskela et al. 2023)."""

    kind = "gdp"
    currency = "of 1/z^2"

    def __init__(self, epsilon: float, delta: float, relation: Relation | str = Relation.ADD_REMOVE) -> None:
        self.mu = exact.largest_mu(epsilon, delta)
        super().__init__(epsilon, delta, relation, math.floor(Fraction(self.mu) ** 2 * exact.ONE))

    def _cost(self, event: Event) -> int | None:
        if exact.not_private(event):
            return None
        exact.check(event)
        # A unit that is replaced moves a sum by twice the bound.
        return math.ceil(exact.inverse_square(event) * (4 if self.relation is Relation.REPLACE_ONE else 1) * exact.ONE)

    def to_json(self) -> FilterJson:
        return self._state()

    @classmethod
    def from_json(cls, data: FilterJson) -> GdpFilter:
        made = cls(data["epsilon"], data["delta"], data["relation"])
        made._restore(data)
        return made
