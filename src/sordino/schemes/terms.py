"""What a plan releases, worked out before any data is touched: events, noise and epsilon.

Everything here asks the plan's scheme (`schemes.base`); there is no branch on the way of working.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from sordino.federation.sizes import PublicSizes
from sordino.privacy import accounting, events
from sordino.privacy.filter import Filter, NoBudget, ScheduleFilter
from sordino.privacy.vocabulary import Relation, Unit
from sordino.schemes.budget_shares import (
    MOST,
    TEST_SHARE,
    multiplier_for,
    prelude_multipliers,
    rounded_up,
    whole_budget,
)

if TYPE_CHECKING:
    from sordino.plan import Plan
    from sordino.privacy.client_budgets import ClientBudgets
    from sordino.schemes.base import Exposure, Scheme

Schedule = list[tuple[events.Event, int]]  # events of consecutive rounds, equal neighbours folded


@dataclass(frozen=True)
class Terms:
    """The privacy of one plan on one population."""

    plan: Plan
    public: PublicSizes
    multiplier: float  # z of the rounds, or their common scale where a schedule divides it unevenly; 0: no noise
    rounds: int  # that the budget allows, at most those of the plan

    @property
    def scheme(self) -> Scheme:
        """What one unit is exposed to, and what a round does."""
        return self.plan.scheme

    def at(self, z: float) -> Terms:
        """The same with another multiplier. How often a unit is exposed does not depend on it, and is kept."""
        other = replace(self, multiplier=z)
        vars(other)["exposures"] = self.exposures
        return other

    # ---- noise and denominators ------------------------------------------------------------------------------------------

    @cached_property
    def noise_schedule(self) -> list[float]:
        """The relative multipliers of the rounds."""
        made = self.plan.method_spec.schedule
        return [1.0] * self.plan.rounds if made is None else made(self.plan)

    @property
    def multipliers(self) -> float | tuple[float, ...]:
        """What a statement prints; 0: no noise."""
        return self.multiplier

    def multiplier_of(self, t: int) -> float:
        """The multiplier of one round: the common scale times the schedule's part."""
        return self.multiplier * self.noise_schedule[t - 1]

    @property
    def units(self) -> float:
        """Units expected in a round."""
        return self.scheme.units(self.public)

    def denominator(self, cohort: np.ndarray) -> float:
        """The public number that turns the sum of a cohort into a mean."""
        return self.scheme.denominator(self.public, cohort)

    @property
    def survivors(self) -> int:
        """How many clients' shares of the noise make up the whole."""
        return self.scheme.survivors

    # ---- the prelude -----------------------------------------------------------------------------------------------------

    @cached_property
    def prelude(self) -> tuple[float, ...]:
        """The multipliers of the statistics that are released before round 1; 0: without noise."""
        return prelude_multipliers(self.plan, self.relation)

    def prelude_event(self, step: int) -> events.Event:
        """What statistic `step` exposes every unit to: all of them take part, and nothing is sampled."""
        return events.gaussian(self.prelude[step]) if self.proven else events.nonprivate(self.reasons[0])

    @property
    def prelude_events(self) -> list[events.Event]:
        """What the statistics before round 1 expose every unit to, in order."""
        return [self.prelude_event(step) for step in range(len(self.prelude))]

    # ---- the test on held-out records ------------------------------------------------------------------------------------

    @property
    def tested(self) -> int:
        """Units that are tested on: records, or clients that hold some out. A public number."""
        held = self.public.held_out
        if held is None or self.plan.holdout is None:
            return 0
        return int((held > 0).sum()) if self.plan.unit == Unit.CLIENT else int(held.sum())

    @cached_property
    def held_out(self) -> float | None:
        """The multiplier of the test on held-out records; None: there are none; 0: without noise."""
        if not self.tested:
            return None
        plan = self.plan
        if self._apart and self.proven:
            # A held-out record is exposed to nothing else: it may cost what a trained one does.
            epsilon = plan.epsilon if plan.epsilon is not None else self._trained.epsilon
            return rounded_up(min(multiplier_for(epsilon, plan.delta, self.relation), MOST))
        return rounded_up(whole_budget(plan, self.relation) / math.sqrt(TEST_SHARE))

    @property
    def _apart(self) -> bool:
        """Whether no unit is both trained on and tested on."""
        return self.plan.unit == Unit.EXAMPLE

    @property
    def held_out_event(self) -> events.Event:
        """What the test exposes every tested unit to."""
        assert self.held_out is not None
        return events.gaussian(self.held_out) if self.proven else events.nonprivate(self.reasons[0])

    # ---- events ----------------------------------------------------------------------------------------------------------

    @property
    def relation(self) -> Relation:
        """The neighbouring relation that the proof is for."""
        return self.scheme.relation

    @property
    def proven(self) -> bool:
        """Whether there is an epsilon to prove, even if it is another than the one that the paper prints."""
        return self.plan.method_spec.provable(self.plan)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run is not private; none if it is."""
        return () if self.proven else self.plan.method_spec.reasons_in(self.plan)

    @cached_property
    def exposures(self) -> int:
        """In how many of the rounds the most exposed unit takes part."""
        return self.scheme.exposures(self.rounds)

    @cached_property
    def exposed_multipliers(self) -> list[float]:
        """The multipliers of those rounds; an uneven schedule charges a unit for the rounds that cost most."""
        relative = self.noise_schedule[: self.rounds]
        if self.exposures < self.rounds:
            relative = sorted(relative)[: self.exposures]
        return [self.multiplier * part for part in relative]

    @cached_property
    def exposure(self) -> Exposure:
        """What a round exposes the most exposed unit to, by its multiplier."""
        if not self.proven:
            return lambda z: events.nonprivate(self.reasons[0])
        return self.scheme.exposure(self.exposed_multipliers, self.public)

    def round_event(self, t: int) -> events.Event:
        """What round t exposes a unit to, if it takes part."""
        return self.exposure(self.multiplier_of(t))

    def folded(self, multipliers: Iterable[float]) -> Schedule:
        """One event for each stretch of equal multipliers, and how long it is."""
        return [(self.exposure(z), sum(1 for _ in same)) for z, same in groupby(multipliers)]

    @cached_property
    def schedule(self) -> Schedule:
        """The rounds that are committed to."""
        return self.folded(self.multiplier * part for part in self.noise_schedule[: self.rounds])

    @cached_property
    def total(self) -> events.Event:
        """All that the most exposed unit that is trained on is exposed to."""
        if not self.proven:
            return events.composed([events.nonprivate(reason) for reason in self.reasons])
        rounds = (events.repeated(event, count) for event, count in self.folded(self.exposed_multipliers))
        after = [] if self._apart or self.held_out is None else [self.held_out_event]
        return events.composed([*self.prelude_events, *rounds, *after])

    @cached_property
    def _trained(self) -> accounting.Spent:
        return accounting.epsilon(self.total, self.plan.delta, self.relation)

    @cached_property
    def spent(self) -> accounting.Spent:
        """Epsilon of the whole run, proven; infinite if it is not private. That of the unit that is exposed most."""
        if not (self.proven and self._apart and self.held_out):
            return self._trained
        tested = accounting.epsilon(self.held_out_event, self.plan.delta, self.relation)
        return replace(self._trained, epsilon=max(self._trained.epsilon, tested.epsilon))

    @cached_property
    def claimed(self) -> float | None:
        """What the paper's own accounting would print."""
        claim = self.plan.claim
        return None if claim is None else claim(self.plan, self.multiplier, *self.claim_inputs)

    @property
    def claim_inputs(self) -> tuple[float | None, int | None]:
        """The sampling rate and the number of steps that the paper's own accounting takes."""
        return self.scheme.claim_inputs(self.public)

    # ---- the ledger ------------------------------------------------------------------------------------------------------

    def budget_filter(self) -> Filter:
        """Everything that is released is settled before round one, so any accountant may prove it; the filter counts it off."""
        if not self.proven:
            return NoBudget("the run is not private")
        return self.counted_off(self.schedule)

    def counted_off(self, schedule: Schedule) -> Filter:
        """These rounds, after the prelude, which every unit takes part in."""
        spent, before = self.spent, [(event, 1) for event in self.prelude_events]
        return ScheduleFilter([*before, *schedule], spent.epsilon, self.plan.delta, self.relation, spent.accountant)

    def client_budgets(self) -> ClientBudgets | None:
        """Budgets of single clients, for a ledger that keeps them; None where the schedule is the budget."""
        return None

    def about(self) -> dict[str, str | int]:
        """What the ledger's first line says of the guarantee."""
        plan = self.plan
        words: dict[str, str | int] = {
            "unit": str(plan.unit),
            "relation": str(self.relation),
            "observer": str(plan.observer),
        }
        return words | {"exposures": self.exposures}
