"""Terms of a method whose clients choose their multipliers from what they have released: budgets in the place of a schedule.

Every client has the same budget of Renyi divergence at one whole order, which is committed before round one. Each of its steps is
charged against it before any record is drawn, so that epsilon is the target for every client, however the multipliers come about
and however little of the budget is used (Feldman and Zrnic 2021). Who is drawn in which round is public and known beforehand,
hence so is the number of steps that each client has left; the *even* multiplier is the one at which its budget lasts for them.

The ledger's filter keeps no budget of its own: `ClientBudgets` does, one for each client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import BadInput
from sordino.federation import sampling
from sordino.federation.sizes import PublicSizes
from sordino.privacy import accounting, events, rdp
from sordino.privacy.client_budgets import ClientBudgets
from sordino.privacy.filter import Filter, NoBudget
from sordino.privacy.lookup import Table
from sordino.privacy.vocabulary import Relation
from sordino.schemes.fedmap.metanet.features import ASTRAY, BOUNDS, MULTIPLIERS
from sordino.schemes.local import Local
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from sordino.plan import Plan

BINS = 400  # of the table of costs
LARGEST = 512  # order; larger ones only help below an epsilon of about 0.02
KEPT = 1e-8  # share of a budget that is left alone, above the rounding of its own sums


@dataclass(frozen=True)
class Budgets(Terms):
    """A budget for each client, at `order`."""

    order: int = 2
    used: tuple[float, ...] = ()  # least and largest multiplier of the run, once it is over

    @property
    def multipliers(self) -> float | tuple[float, ...]:
        return self.used or self.multiplier

    @cached_property
    def sizes(self) -> np.ndarray:
        """Examples of each client."""
        return self.public.each

    @cached_property
    def steps(self) -> np.ndarray:
        """Steps of each client in a round that it takes part in."""
        return _each(self.sizes, self.local.local_steps)

    @cached_property
    def turns(self) -> np.ndarray:
        """Rounds that each client is drawn for."""
        return sampling.turns(self.plan, self.plan.rounds)

    @property
    def local(self) -> Local:
        scheme = self.scheme
        assert isinstance(scheme, Local)
        return scheme

    def budget_filter(self) -> Filter:
        return NoBudget("each client keeps a budget of its own")

    def client_budgets(self) -> ClientBudgets:
        return self.spending

    @cached_property
    def spending(self) -> ClientBudgets:
        """Fresh budgets, for the ledger."""
        assert self.plan.epsilon is not None
        return ClientBudgets(self.public.clients, self.plan.epsilon, self.plan.delta, self.order, self.relation)

    @property
    def budget(self) -> float:
        """Renyi divergence that a client may spend."""
        return self.spending.budget * (1 - KEPT)

    def table(self, examples: int) -> Table:
        """What a step costs a client of that many examples."""
        return step_costs(self.local.rate(examples), self.order)

    @cached_property
    def spent(self) -> accounting.Spent:
        """The target: what holds for every client, whatever it has used."""
        assert self.plan.epsilon is not None
        epsilon = self.plan.epsilon
        return accounting.Spent(epsilon, self.plan.delta, self.relation, "rdp-filter", epsilon)


@dataclass(frozen=True)
class PublishedTerms(Terms):
    """FedMAP as published: no epsilon is proven; what the server's accountant said at the end is the claim."""

    said: float | None = None

    @cached_property
    def claimed(self) -> float | None:
        return self.said


def step_costs(rate: float, order: int) -> Table:
    return Table([rate], [order], BINS)


def as_printed(plan: Plan, public: PublicSizes) -> Terms:
    """A ledger that proves nothing."""
    _check(plan)
    return PublishedTerms(plan, public, 0.0, plan.rounds)


def _check(plan: Plan) -> None:
    if plan.epsilon is None or plan.multiplier is not None:
        raise BadInput(f"method {plan.method} sets the multiplier itself; give epsilon, and leave multiplier out.")
    low, high = BOUNDS[0] * ASTRAY, BOUNDS[1] / ASTRAY
    if not low <= plan.bound <= high:
        raise BadInput(
            f"bound {plan.bound:g} lies outside {low:g} to {high:g}, where method {plan.method} moves it; rescale."
        )


def settle(plan: Plan, public: PublicSizes) -> Terms:
    """Commit to an order; the multiplier is the largest even one, that of the client whose budget must last longest."""
    _check(plan)
    first = Budgets(plan, public, 1.0, plan.rounds)
    if first.relation == Relation.REPLACE_ONE:
        raise BadInput(f"method {plan.method} is proven for add-remove and zero-out; leave relation out.")
    load = first.turns * first.steps
    drawn = np.flatnonzero(load)
    if not drawn.size:
        raise BadInput(f"in {plan.rounds} rounds no client is ever drawn; ask for a larger cohort or more rounds.")
    typical = drawn[np.argsort(load[drawn], kind="stable")[drawn.size // 2]]
    order = _order(plan, first.local.rate(int(first.sizes[typical])), int(load[typical]), first.relation)
    made = Budgets(plan, public, 1.0, plan.rounds, order)
    # Of each number of examples only the client that is drawn most matters here.
    most = {int(n): int(load[drawn][made.sizes[drawn] == n].max()) for n in np.unique(made.sizes[drawn])}
    even = max(float(made.table(n).multiplier(made.budget / count)[0]) for n, count in most.items())
    if even > MULTIPLIERS[1]:
        raise BadInput(
            f"epsilon {plan.epsilon:g} over up to {max(most.values()):,} steps of a client asks for a multiplier of {even:.3g}, at "
            "which nothing is learned; raise epsilon, or ask for fewer rounds or local epochs."
        )
    return Budgets(plan, public, even, plan.rounds, order)


def _order(plan: Plan, rate: float, count: int, relation: Relation) -> int:
    """The whole order at which a client of this rate needs the least noise for so many steps."""
    assert plan.epsilon is not None
    low, high = 0.2, 1e4
    for _ in range(40):  # the multiplier for the best order of all, by bisection
        z = (low * high) ** 0.5
        step = events.gaussian(z) if rate == 1 else events.poisson(rate, events.gaussian(z))
        curve = count * rdp.curve(step, relation)
        low, high = (low, z) if rdp.epsilon_of(curve, plan.delta) <= plan.epsilon else (z, high)
    step = events.gaussian(high) if rate == 1 else events.poisson(rate, events.gaussian(high))
    best = rdp.best_order(events.repeated(step, count), plan.epsilon, plan.delta, relation)
    choices = [order for order in (int(best), int(best) + 1) if 2 <= order <= LARGEST] or [LARGEST]
    fit = [(rdp.budget(plan.epsilon, plan.delta, a) / rdp.cost(step, a, relation), a) for a in choices]
    if max(fit)[0] <= 0:
        raise BadInput(f"epsilon {plan.epsilon:g} at delta {plan.delta:g} is too small for a filter; raise epsilon.")
    return max(fit)[1]


def _each(values: np.ndarray, of: Callable[[int], int]) -> np.ndarray:
    """A function of each value, computed once for each different one."""
    distinct, where = np.unique(values, return_inverse=True)
    return np.array([of(int(v)) for v in distinct])[where]
