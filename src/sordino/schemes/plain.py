"""No privacy: the exact mean of whole updates (FedAvg, McMahan et al. 2017), through the other door."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino.federation import sampling
from sordino.federation.sizes import PublicSizes
from sordino.privacy import events, mechanisms
from sordino.privacy.release import Private
from sordino.privacy.vocabulary import Sampling
from sordino.rules.base import Rule, State
from sordino.schemes import expected
from sordino.schemes.base import Exposure, Scheme
from sordino.schemes.client import ClientUpdate, weight_of
from sordino.schemes.request import CONTRIBUTE, Request, Work
from sordino.schemes.round import Context, Release, Round, ScheduledRound
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from sordino.clients.site import Site
    from sordino.plan import Plan

GRID = mechanisms.FixedPoint(2.0**24)


class Plain(Scheme):
    """Whole updates, averaged as they are."""

    name = "plain"
    scaled_steps = False
    whole_updates = True
    work_class = ClientUpdate

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.keeps_personal = plan.personal is not None

    def _check_relation(self) -> None:
        """Nothing is proven, so any relation will do."""

    def exposure(self, multipliers: Sequence[float], sizes: PublicSizes) -> Exposure:
        return lambda z: events.nonprivate("updates are averaged without noise")

    def settle(self, sizes: PublicSizes) -> Terms:
        return Terms(self.plan, sizes, 0.0, self.plan.rounds)

    def proof_sampling(self, sizes: PublicSizes) -> tuple[Sampling, float | None]:
        if self.plan.sampling == Sampling.NONE:
            return Sampling.NONE, None
        return self.plan.sampling, sampling.rate(self.plan)

    def units(self, sizes: PublicSizes) -> float:
        return self.plan.cohort_size

    def denominator(self, sizes: PublicSizes, cohort: np.ndarray) -> float:
        """The weights of those who took part, as FedAvg has it."""
        return max(weight_of(self.plan, sizes, cohort), 1e-12)

    def work(self, site: Site, theta: np.ndarray, rule: Rule, terms: Terms) -> Work[Any]:
        return self.work_class(site, theta, terms)

    def rounds(self, context: Context) -> Round:
        return PlainRound(context)

    def request(self, t: int) -> Request:
        """What clients are asked in round t: updates as they are, on a grid."""
        return Request(round=t, phase=CONTRIBUTE, grid=GRID, bound=None)

    def expected(self, terms: Terms, rule: Rule, asked: Request, taken: float) -> Request:
        return expected.same(self.request(asked.round), asked)


class PlainRound(ScheduledRound):
    """FedAvg: what leaves is exact, and says so."""

    def release(self, t: int, cohort: np.ndarray, rule_state: State) -> Release:
        scheme = self.scheme
        assert isinstance(scheme, Plain)
        total = self.engine.run(scheme.request(t), self.work.items(t, cohort)).total
        assert isinstance(total, Private)
        exact, _ = mechanisms.without_noise(total, self.terms.reasons[0])
        return Release(exact.value / self.terms.denominator(cohort), None, 0.0, rule_state)
