"""What each of up to millions of clients has spent, in vectors.

Every client has the same budget of Renyi divergence at one order that was committed before round one, and is charged
for the releases it takes part in: an individual filter (Feldman and Zrnic 2021, section 4). A client that cannot afford
a round sits out. Each client is then covered by the budget, whatever the others spend and however multipliers are
chosen from what was released.

What one client has spent can tell something about its data, so nothing here prints it: `repr` shows the settings only.
The arrays are for the run's own checkpoint, not for a log or a report.

Additions are rounded up, so that a client's recorded spending is never below the exact sum of its costs.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sordino.errors import BadInput, BudgetRefused, between, positive, whole
from sordino.privacy.events import Event
from sordino.privacy.vocabulary import Relation

_SLACK = 2.0**-40  # costs are taken as this much larger, above the rounding of the formulas behind them
_BLOCK = 1 << 14  # clients at a time, so that what is worked on stays in the processor's cache


class ClientBudgetsJson(TypedDict):
    """The settings of the clients' budgets, as a ledger keeps them."""

    clients: int
    epsilon: float
    delta: float
    order: float
    relation: str


class ClientBudgets:
    """`charge` a cohort as a whole or not at all; `affordable` says who can take part."""

    def __init__(
        self,
        clients: int,
        epsilon: float,
        delta: float,
        order: float,
        relation: Relation | str = Relation.ADD_REMOVE,
    ) -> None:
        from sordino.privacy import rdp

        whole(1, clients=clients)
        positive(epsilon=epsilon)
        between(0, 1, delta=delta)
        between(1, float("inf"), order=order)
        self.clients, self.epsilon, self.delta = clients, float(epsilon), float(delta)
        self.order, self.relation = float(order), Relation(relation)
        self.budget = float(rdp.budget(epsilon, delta, order)) * (1 - _SLACK)
        if not self.budget > 0:
            raise BadInput(f"order {order:g} is too small for epsilon {epsilon:g}, delta {delta:g}; take a larger one.")
        self.seq = 0  # the last line of the ledger that is counted in here
        self._spent = np.zeros(clients)

    def price(self, event: Event) -> float:
        """What one client pays for `event`."""
        from sordino.privacy import rdp

        return float(rdp.cost(event, self.order, self.relation))

    def affordable(self, clients: ArrayLike, costs: ArrayLike) -> NDArray[np.bool_]:
        """For each of `clients`, whether it can pay its cost (one for all, or one each)."""
        ids, asked = self._read(clients, costs)
        return self._after(ids, asked) <= self.budget

    def charge(self, clients: ArrayLike, costs: ArrayLike) -> None:
        """Charge every one of `clients`, or raise `BudgetRefused` and charge none."""
        ids, asked = self._read(clients, costs)
        after = self._after(ids, asked)
        if not (after <= self.budget).all():
            raise BudgetRefused(
                f"The round is refused because at least one of its {ids.size} clients would pass its own budget "
                f"(epsilon {self.epsilon:g}, delta {self.delta:g}); leave out the clients that cannot afford it."
            )
        self._spent[ids] = after

    def largest(self) -> float:
        """The most that any client has spent, as Renyi divergence. It is private: report the budget instead."""
        return float(self._spent.max())

    def of(self, clients: ArrayLike) -> NDArray[np.float64]:
        """What each of `clients` has spent, as a share of its budget. For that client's own controller only."""
        return self._spent[self._ids(clients)] / self.budget

    def to_json(self) -> ClientBudgetsJson:
        """The settings, without what anyone has spent."""
        return {
            "clients": self.clients,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "order": self.order,
            "relation": str(self.relation),
        }

    @classmethod
    def from_json(cls, data: ClientBudgetsJson) -> ClientBudgets:
        """A fresh account, nothing spent, with the settings that `to_json` gave."""
        try:
            return cls(**data)
        except TypeError as error:
            raise BadInput(f"The settings of the clients' budgets are incomplete ({error}).") from error

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a checkpoint."""
        return {
            "spent": self._spent.copy(),
            "settings": np.array([self.epsilon, self.delta, self.order]),
            "relation": np.array([list(Relation).index(self.relation)]),
            "seq": np.array([self.seq]),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> ClientBudgets:
        """What `to_arrays` wrote."""
        try:
            spent = np.array(arrays["spent"], dtype=np.float64)
            epsilon, delta, order = map(float, arrays["settings"])
            relation = list(Relation)[int(arrays["relation"][0])]
            made = cls(spent.size, epsilon, delta, order, relation)
            made.seq = int(arrays["seq"][0])
        except (KeyError, IndexError, TypeError) as error:
            raise BadInput(f"The stored spending of the clients is incomplete ({error!r}).") from error
        if spent.ndim != 1 or not ((spent >= 0) & (spent <= made.budget)).all():
            raise BadInput("The stored spending of the clients lies outside their budgets; take an untouched copy.")
        made._spent = spent
        return made

    def __repr__(self) -> str:
        return f"ClientBudgets(clients={self.clients}, epsilon={self.epsilon}, delta={self.delta}, order={self.order})"

    def _ids(self, clients: ArrayLike) -> NDArray[np.intp]:
        ids = np.asarray(clients)
        if ids.size == 0:
            return np.empty(0, dtype=np.intp)
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise BadInput(f"clients must be a list of whole numbers, not {ids.dtype} with shape {ids.shape}.")
        if ids.min() < 0 or ids.max() >= self.clients:
            raise BadInput(f"clients must be from 0 to {self.clients - 1}; {ids.min()} to {ids.max()} were given.")
        return ids.astype(np.intp, copy=False)

    def _read(self, clients: ArrayLike, costs: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        ids = self._ids(clients)
        seen = np.zeros(self.clients, dtype=bool)
        seen[ids] = True
        if np.count_nonzero(seen) != ids.size:
            raise BadInput("A client is named twice in one round; name each client once, with the whole of its cost.")
        asked = np.asarray(costs, dtype=np.float64)
        if asked.ndim > 1 or asked.ndim == 1 and asked.size != ids.size:
            raise BadInput(f"costs must be one number, or one for each of the {ids.size} clients, not {asked.shape}.")
        if not (asked >= 0).all():  # also false for NaN
            raise BadInput("costs must be numbers of at least 0; a negative one or one that is not a number was given.")
        return ids, asked

    def _after(self, ids: NDArray[np.intp], asked: NDArray[np.float64]) -> NDArray[np.float64]:
        """What would be spent after `asked`, rounded up: the error of the sum is computed exactly (Knuth's two-sum)."""
        after = np.empty(ids.size)
        costs = np.broadcast_to(asked, ids.shape)
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite cost ends as infinity or NaN: too much
            for start in range(0, ids.size, _BLOCK):
                block = slice(start, start + _BLOCK)
                cost = costs[block] * (1 + _SLACK)
                before = self._spent[ids[block]]
                total = before + cost
                part = total - before
                error = (before - (total - part)) + (cost - part)
                after[block] = np.where(error > 0, np.nextafter(total, np.inf), total)
        return after
