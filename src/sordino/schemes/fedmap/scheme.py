"""FedMAP's rows: clients choose their multipliers from what they have released, each under a budget of its own.

    observer server           the server keeps the accounts and sees every message
    observer secagg-server    each client keeps its own account; messages, each with its full noise, are added under masks

Nothing of the guarantee rests on the masks: they hide single messages in addition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sordino.errors import BadInput, NotPrivate
from sordino.federation.sizes import PublicSizes
from sordino.privacy.filter import Filter, NoBudget
from sordino.privacy.mechanisms import FixedPoint
from sordino.privacy.vocabulary import Observer, Sampling
from sordino.rules.base import Rule
from sordino.schemes import expected
from sordino.schemes.base import Scheme
from sordino.schemes.fedmap import budgets
from sordino.schemes.local import GRID, Local
from sordino.schemes.request import CONTRIBUTE, Request, Work
from sordino.schemes.round import Context, Round
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from sordino.clients.site import Site
    from sordino.plan import Plan

FEWEST = 2  # messages in a sum that hides one
REPORT_LENGTH = 5  # numbers of a report that are added up under masks (`client.SummedReport`)
PUBLISHED_GRID = FixedPoint(2.0**24)


class FedMapScheme(Local):
    """Budgets in the place of a schedule."""

    scaled_steps = False  # clients measure their steps in bounds of their own
    grid, released = GRID, True  # of what a client sends

    @classmethod
    def as_published(cls) -> type[Scheme]:
        return FedMapPublished

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.masked = plan.observer == Observer.SECAGG_SERVER
        if self.masked:
            self.min_cohort = FEWEST if plan.survivors is None else plan.survivors
            self.report_length = REPORT_LENGTH

    def check(self) -> None:
        plan = self.plan
        if plan.survivors is not None and self.masked and plan.survivors < FEWEST:
            raise BadInput(
                f"a sum over {plan.survivors} clients is that client's own message; ask for survivors of at least {FEWEST}."
            )
        super().check()

    def check_prelude(self) -> None:
        raise BadInput(
            f"clients of method {self.plan.method} have budgets and no schedule that statistics before round 1 could be part of; "
            "leave prepare out, or use another method."
        )

    def check_held_out(self) -> None:
        raise BadInput(
            f"clients of method {self.plan.method} have budgets and no schedule that figures of a held-out share could be part of; "
            "give a public test file, or use another method."
        )

    def _check_metanet(self) -> None:
        """Any file of weights will do; it is read before anything is granted."""

    @property
    def survivors(self) -> int:
        """Under masks, the fewest clients that a sum is opened for."""
        return self.min_cohort if self.masked else 1

    def settle(self, sizes: PublicSizes) -> Terms:
        return budgets.settle(self.plan, sizes)

    def work(self, site: Site, theta: np.ndarray, rule: Rule, terms: Terms) -> Work[Any]:
        from sordino.schemes.fedmap.client import ControlledSteps

        return ControlledSteps(site, theta, rule, terms)

    def filter_of(self, terms: Terms, client: int) -> Filter:
        return NoBudget("the client keeps a budget of its own") if terms.proven else terms.budget_filter()

    def expected(self, terms: Terms, rule: Rule, asked: Request, taken: float) -> Request:
        """Every step is paid for at the order that was committed; the rest of the state is public."""
        if isinstance(terms, budgets.Budgets) and asked.state.get("order") != terms.order:
            raise NotPrivate("the costs of steps are to be counted at another order than the plan settles.")
        wanted = Request(asked.round, CONTRIBUTE, self.grid, None, state=asked.state, released=self.released)
        return expected.same(wanted, asked)

    def rounds(self, context: Context) -> Round:
        from sordino.schemes.fedmap.rounds import FedMapRound
        from sordino.schemes.fedmap.secagg_round import FedMapSecAggRound

        return (FedMapSecAggRound if self.masked else FedMapRound)(context)


class FedMapPublished(FedMapScheme):
    """As printed: raw statistics, no budget that binds, and K clients at random; nothing is proven that a fixed number could spoil."""

    grid, released = PUBLISHED_GRID, False

    def _check_sampling(self) -> None:
        pass

    def proof_sampling(self, sizes: PublicSizes) -> tuple[Sampling, float | None]:
        """Batches are pieces of shuffled data: no record is drawn by a coin."""
        return Sampling.NONE, None

    def settle(self, sizes: PublicSizes) -> Terms:
        return budgets.as_printed(self.plan, sizes)

    def work(self, site: Site, theta: np.ndarray, rule: Rule, terms: Terms) -> Work[Any]:
        from sordino.schemes.fedmap.published import PublishedSteps

        return PublishedSteps(site, theta, rule, terms)

    def rounds(self, context: Context) -> Round:
        from sordino.schemes.fedmap.published_round import FedMapPublishedRound

        return FedMapPublishedRound(context)
