"""Grants or refuses a release before any data is touched, so that a budget cannot be exceeded.

A filter sees events only, never data, and its state is a function of what was asked: it may be shown to anyone who may
see the requests. Which filter is sound depends on what was settled before round one:

* `ScheduleFilter`: every event was settled. Ordinary composition holds, so the total may be computed by any accountant,
  the privacy loss distribution included; the filter then only counts off the list. Stopping early is free.
* `RdpFilter`: multipliers, rates or the stopping time may depend on what was released. Renyi divergence at one order,
  committed in advance, adds up along any adaptive path (Feldman and Zrnic 2021, theorem 3.1 and its filter).
* `GdpFilter`: the same for Gaussian releases without sampling: the sum of 1/z^2 against mu^2 (Koskela et al. 2023).
* `NoBudget`: grants everything and only counts. For runs that are not private, or whose clients each keep a budget.

Composing privacy loss distributions along the realised path and stopping at the target is not a sound filter, and
taking the best Renyi order after an adaptive run is not covered by the theorem; neither can be expressed here.

Sums are exact (see `exact`): a request is granted only if the true sum of the costs stays within the budget.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from sordino.errors import BadInput, BudgetRefused, at_least, between, positive
from sordino.privacy import exact
from sordino.privacy.words import Relation

_SLACK = 40  # a computed Renyi cost is taken as 2^-40 (1e-12) larger, above the rounding of the formulas behind it
_CACHE = 4096  # distinct events whose cost is remembered


class Filter(ABC):
    """One budget. `request` charges an event or raises `BudgetRefused` and charges nothing."""

    kind: ClassVar[str]
    currency: ClassVar[str]  # what `spent` and `left` are counted in, in words
    epsilon: float  # what holds however far the budget is spent
    delta: float
    relation: Relation | None
    granted: int = 0

    @abstractmethod
    def price(self, event: Any) -> float:
        """What `event` would cost, in the filter's currency; infinite if no budget could cover it."""

    @abstractmethod
    def affords(self, event: Any) -> bool:
        """Whether `request` would grant `event` now."""

    @abstractmethod
    def times(self, event: Any) -> float:
        """How often in a row `request` would grant `event` from now on (infinite if for ever)."""

    @abstractmethod
    def request(self, event: Any) -> None:
        """Charge `event`, or raise `BudgetRefused` and leave everything as it was."""

    @property
    @abstractmethod
    def spent(self) -> float: ...

    @property
    @abstractmethod
    def left(self) -> float: ...

    @property
    def share(self) -> float:
        """The part of the budget that is spent, from 0 to 1; 0 where there is no budget."""
        total = self.spent + self.left
        return min(1.0, self.spent / total) if total > 0 and math.isfinite(total) else 0.0

    @abstractmethod
    def to_json(self) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def from_json(cls, data: dict[str, Any]) -> Filter: ...

    def __repr__(self) -> str:
        spent, left = f"{self.spent:.6g}", f"{self.left:.6g}"
        return f"{type(self).__name__}(epsilon={self.epsilon}, delta={self.delta}, spent={spent}, left={left})"


class _Sum(Filter):
    """A filter that adds up costs, exactly."""

    relation: Relation

    def __init__(self, epsilon: float, delta: float, relation: Relation | str, budget: int) -> None:
        positive(epsilon=epsilon)
        between(0, 1, delta=delta)
        self.epsilon, self.delta, self.relation = float(epsilon), float(delta), Relation(relation)
        self._budget, self._spent = budget, 0
        self._costs: dict[Any, int | None] = {}

    @abstractmethod
    def _cost(self, event: Any) -> int | None:
        """The cost in units of 2^-1074, rounded up; None if it is infinite."""

    def _charge(self, event: Any) -> int | None:
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

    def price(self, event: Any) -> float:
        cost = self._charge(event)
        return math.inf if cost is None else exact.to_float(cost)

    def affords(self, event: Any) -> bool:
        cost = self._charge(event)
        return cost is not None and self._spent + cost <= self._budget

    def times(self, event: Any) -> float:
        cost = self._charge(event)
        if cost is None:
            return 0
        return (self._budget - self._spent) // cost if cost else math.inf

    def request(self, event: Any) -> None:
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

    def _state(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": str(self.relation),
            "spent": exact.pack(self._spent),
            "granted": self.granted,
        }

    def _restore(self, data: dict[str, Any]) -> None:
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

    def _cost(self, event: Any) -> int | None:
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

    def to_json(self) -> dict[str, Any]:
        return self._state() | {"order": self.order}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RdpFilter:
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

    def _cost(self, event: Any) -> int | None:
        if exact.not_private(event):
            return None
        exact.check(event)
        # A unit that is replaced moves a sum by twice the bound.
        return math.ceil(exact.inverse_square(event) * (4 if self.relation is Relation.REPLACE_ONE else 1) * exact.ONE)

    def to_json(self) -> dict[str, Any]:
        return self._state()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> GdpFilter:
        made = cls(data["epsilon"], data["delta"], data["relation"])
        made._restore(data)
        return made


class ScheduleFilter(Filter):
    """Counts off a list of events that was settled, and accounted as a whole, before round one.

    The next request must be the next event of the list, or the same event with a multiplier at least as large (that is
    the listed release with more noise poured on afterwards, so it tells no more). The list is kept as runs of equal
    events; an item may be an event or a pair (event, how often). `epsilon` is that of the whole list and holds however
    much of it is used.
    """

    kind = "schedule"
    currency = "settled releases"

    def __init__(
        self,
        events: Iterable[Any],
        total_epsilon: float,
        delta: float,
        relation: Relation | str = Relation.ADD_REMOVE,
        accountant: str = "pld",
    ) -> None:
        at_least(0, epsilon=total_epsilon)  # 0 is proven where delta alone covers it
        if not (isinstance(delta, (int, float)) and 0 <= delta < 1):
            raise BadInput(f"delta must be at least 0 and below 1, not {delta!r}.")
        self.epsilon, self.delta, self.relation = float(total_epsilon), float(delta), Relation(relation)
        self.accountant = accountant
        self._runs: list[tuple[Any, int]] = []
        for item in events:
            event, count = item if isinstance(item, tuple) else (item, 1)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise BadInput(f"An event of a schedule must be there at least once, not {count!r} times.")
            if exact.not_private(event):
                raise BadInput("A schedule with a release that is not private has no epsilon; run it without a budget.")
            exact.check(event)
            if self._runs and self._runs[-1][0] == event:
                count += self._runs.pop()[1]
            self._runs.append((event, count))
        if not self._runs:
            raise BadInput("The schedule is empty; give at least one event.")
        self.total = sum(count for _, count in self._runs)
        self._run, self._used = 0, 0  # the run that is being used, and how much of it is

    def _next(self) -> Any | None:
        return self._runs[self._run][0] if self._run < len(self._runs) else None

    def price(self, event: Any) -> float:
        return math.inf if exact.not_private(event) else 1.0

    def affords(self, event: Any) -> bool:
        settled = self._next()
        return settled is not None and exact.no_costlier(event, settled)

    def times(self, event: Any) -> float:
        used, count = self._used, 0
        for settled, length in self._runs[self._run :]:
            if not exact.no_costlier(event, settled):
                break
            count, used = count + length - used, 0
        return count

    def request(self, event: Any) -> None:
        if not self.affords(event):
            settled = self._next()
            why = "all of them are used" if settled is None else f"the next one is {exact.say(settled)}"
            raise BudgetRefused(
                f"The release is refused because it is not in the schedule behind epsilon {self.epsilon:g}: asked was "
                f"{exact.say(event)}, {self.granted} of {self.total} settled releases are spent, {self.left:.0f} are "
                f"left and {why}; stop here, or plan a new run with more rounds or a larger budget."
            )
        self.granted += 1
        self._used += 1
        if self._used == self._runs[self._run][1]:
            self._run, self._used = self._run + 1, 0

    @property
    def spent(self) -> float:
        return float(self.granted)

    @property
    def left(self) -> float:
        return float(self.total - self.granted)

    def to_json(self) -> dict[str, Any]:
        from sordino.privacy import events

        return {
            "kind": self.kind,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": str(self.relation),
            "accountant": self.accountant,
            "schedule": [[events.to_json(event), count] for event, count in self._runs],
            "granted": self.granted,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ScheduleFilter:
        from sordino.privacy import events

        runs = [(events.from_json(event), count) for event, count in data["schedule"]]
        made = cls(runs, data["epsilon"], data["delta"], data["relation"], data["accountant"])
        granted = data["granted"]
        if not (isinstance(granted, int) and 0 <= granted <= made.total):
            raise BadInput(f"The stored schedule has used {granted!r} of {made.total} events; take an untouched copy.")
        made.granted, made._used = granted, granted
        while made._run < len(made._runs) and made._used >= made._runs[made._run][1]:
            made._used -= made._runs[made._run][1]
            made._run += 1
        return made


class NoBudget(Filter):
    """Grants everything and counts it. It protects nothing by itself, and says why there is no budget."""

    kind = "none"
    currency = "releases, without a budget"

    def __init__(self, reason: str) -> None:
        if not reason or not reason.strip():
            raise BadInput("A run without a budget must say why; give a reason.")
        self.reason = reason
        self.epsilon, self.delta, self.relation = math.inf, 0.0, None

    def price(self, event: Any) -> float:
        return 0.0

    def affords(self, event: Any) -> bool:
        return True

    def times(self, event: Any) -> float:
        return math.inf

    def request(self, event: Any) -> None:
        self.granted += 1

    @property
    def spent(self) -> float:
        return float(self.granted)

    @property
    def left(self) -> float:
        return math.inf

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "reason": self.reason, "granted": self.granted}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> NoBudget:
        made = cls(data["reason"])
        made.granted = int(data["granted"])
        return made

    def __repr__(self) -> str:
        return f"NoBudget({self.reason!r}, granted={self.granted})"


def from_json(data: dict[str, Any]) -> Filter:
    """The filter that `to_json` wrote, in the very state it was in."""
    kinds: dict[str, type[Filter]] = {made.kind: made for made in (RdpFilter, GdpFilter, ScheduleFilter, NoBudget)}
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind not in kinds:
        raise BadInput(f"filter must be one of {', '.join(kinds)}, not {kind!r}.")
    try:
        return kinds[kind].from_json(data)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BadInput(f"The stored {kind} filter is incomplete ({error!r}); take an untouched copy.") from error
