"""What a plan releases, worked out before any data is touched: events, noise, denominators, epsilon.

One page decides, for each unit and observer, what one unit is exposed to (`docs/guarantees.md` argues each line):

    client, public           every round a Gaussian on a secret cohort: sampling amplifies
    client, secagg-server    the server knows who takes part: no amplification; a client is charged for its own rounds
    client, server           likewise, and each message carries its full noise
    example, pooled          every round a Gaussian on a secret Poisson draw of records
    example, local           every local step a Gaussian on a secret Poisson draw of the client's own records; the client
                             that is charged most is the one that is reported (observer server; and sealed, where such
                             messages are added up under masks besides)

Cohorts are drawn without looking at data, so the most rounds that one client can take part in is known in advance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from sordino.errors import BadInput
from sordino.federation.sampling import participations, rate
from sordino.plan import Plan
from sordino.privacy import accounting, calibration, events, rdp
from sordino.privacy.vocabulary import Noise, Observer, Relation, Sampling, Unit


@dataclass(frozen=True)
class Public:
    """What is taken to be public about a population: how many clients, and how many examples each holds."""

    clients: int
    sizes: np.ndarray | int  # one number per client, or one for all

    @classmethod
    def of(cls, federation: Any) -> Public:
        if federation.sizes is not None:
            return cls(federation.clients, federation.sizes)
        return cls(federation.clients, federation.size(0))

    @property
    def examples(self) -> int:
        return self.sizes * self.clients if isinstance(self.sizes, int) else int(self.sizes.sum())

    def distinct(self) -> list[int]:
        return [self.sizes] if isinstance(self.sizes, int) else np.unique(self.sizes).tolist()


@dataclass(frozen=True)
class Terms:
    """The privacy of one plan on one population."""

    plan: Plan
    public: Public
    multiplier: float  # z of the rounds, or their common scale where a schedule divides it unevenly; 0: no noise
    rounds: int  # that the budget allows, at most those of the plan

    def at(self, z: float) -> Terms:
        """The same with another multiplier. Who takes part does not depend on it, and is not worked out again."""
        other = replace(self, multiplier=z)
        vars(other)["exposures"] = self.exposures
        return other

    # ---- noise and denominators ------------------------------------------------------------------------------------------

    @cached_property
    def shape(self) -> list[float]:
        """The relative multipliers of the rounds."""
        made = self.plan.method_spec.schedule
        return [1.0] * self.plan.rounds if made is None else made(self.plan)

    @property
    def multipliers(self) -> float | tuple[float, ...]:
        """What a statement prints; 0: no noise."""
        return self.multiplier

    def multiplier_of(self, round: int) -> float:
        return self.multiplier * self.shape[round - 1]

    @property
    def units(self) -> float:
        """Units expected in a round; what sums of answers are divided by."""
        plan = self.plan
        if plan.unit == Unit.CLIENT:
            return plan.cohort_size
        if plan.local:
            return min(plan.batch_size, max(self.public.distinct()))
        return self.public.examples if plan.sampling == Sampling.NONE else min(plan.batch_size, self.public.examples)

    def denominator(self, cohort: np.ndarray) -> float:
        """What a sum of contributions is divided by: public, and never the realised cohort while privacy is claimed."""
        plan = self.plan
        if plan.pooled:
            return self.units
        if not plan.private:
            return max(self._weight(cohort), 1e-12)
        if plan.weights == "size":
            return rate(plan) * self._weight(np.arange(plan.clients))
        return plan.cohort_size

    def _weight(self, clients: np.ndarray) -> float:
        if self.plan.weights == "uniform":
            return float(len(clients))
        sizes = (
            np.full(len(clients), self.public.sizes)
            if isinstance(self.public.sizes, int)
            else self.public.sizes[clients]
        )
        cap = self.plan.weight_cap
        return float(sizes.sum() if cap is None else np.minimum(sizes / cap, 1.0).sum())

    @property
    def survivors(self) -> int:
        """Among how many clients the noise is divided; all, unless the plan allows for some to be lost. Where sums only hide
        messages that carry their full noise, the min_cohort that one is opened for."""
        if self.plan.sealed:
            return self.plan.min_cohort
        if self.plan.noise == Noise.LOCAL:
            return 1
        if self.plan.survivors is not None:
            return self.plan.survivors
        return self.plan.clients if self.plan.pooled else self.plan.cohort_size

    # ---- events ----------------------------------------------------------------------------------------------------------

    @cached_property
    def relation(self) -> Relation:
        plan = self.plan
        if plan.relation is not None:
            return plan.relation
        if plan.sampling == Sampling.FIXED and plan.observer == Observer.PUBLIC:
            return Relation.REPLACE_ONE
        visible = plan.unit == Unit.CLIENT and plan.observer != Observer.PUBLIC
        return Relation.ZERO_OUT if visible else Relation.ADD_REMOVE

    def slot(self, round: int) -> events.Event:
        """What round `round` exposes a unit to, if it takes part."""
        return self._released(self.multiplier_of(round))

    def _released(self, z: float) -> events.Event:
        return self._slot(z) if self.proven else events.nonprivate(self.reasons[0])

    def _folded(self, shape: list[float]) -> list[tuple[events.Event, int]]:
        """One event for each stretch of equal multipliers, and how long it is."""
        stretches = ((relative, sum(1 for _ in same)) for relative, same in groupby(shape))
        return [(self._released(self.multiplier * relative), count) for relative, count in stretches]

    @property
    def proven(self) -> bool:
        """Whether there is an epsilon to prove, be it another than the one that the paper prints."""
        return self.plan.method_spec.provable(self.plan)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run is not private; none if it is."""
        return () if self.proven else self.plan.method_spec.reasons_for(self.plan.variant)

    def _slot(self, z: float) -> events.Event:
        plan = self.plan
        base = events.laplace(z) if plan.mechanism == "laplace" else events.gaussian(z)
        if plan.pooled:
            q = self.record_rate(self.public.examples)
            return base if q == 1 else events.poisson(q, base)
        if plan.local:
            return self._local(z, self._worst(z))
        if plan.observer != Observer.PUBLIC or plan.sampling == Sampling.NONE or plan.cohort_size == plan.clients:
            return base
        if plan.sampling == Sampling.FIXED:
            return events.without_replacement(plan.clients, plan.cohort_size, base)
        return events.poisson(rate(plan), base)

    @cached_property
    def slots(self) -> list[tuple[events.Event, int]]:
        """The rounds that are committed to, equal neighbours folded."""
        return self._folded(self.shape[: self.rounds])

    @cached_property
    def exposures(self) -> int:
        """In how many of the rounds the most exposed unit takes part."""
        if self.plan.observer == Observer.PUBLIC or self.plan.pooled:
            return self.rounds
        return participations(self.plan.replace(rounds=self.rounds))

    @cached_property
    def total(self) -> events.Event:
        """All that the most exposed unit is exposed to."""
        if not self.proven:
            return events.composed([events.nonprivate(reason) for reason in self.reasons])
        if self.exposures == self.rounds:
            return events.composed(_unfold(self.slots))
        # A schedule that spends unevenly charges a client for the rounds that cost most.
        return events.composed(_unfold(self._folded(sorted(self.shape[: self.rounds])[: self.exposures])))

    @cached_property
    def spent(self) -> accounting.Spent:
        """Epsilon of the whole run, proven; infinite if it is not private."""
        return accounting.epsilon(self.total, self.plan.delta, self.relation)

    @cached_property
    def claimed(self) -> float | None:
        """What the paper's own accounting would print."""
        claim = self.plan.method_spec.claim
        if claim is None or not self.plan.published:
            return None
        return claim(self.plan, self.multiplier, *self.told)

    @property
    def told(self) -> tuple[float | None, int | None]:
        """The sampling rate and the number of releases that a paper's accountant would be given in the example unit."""
        if self.plan.unit == Unit.CLIENT:
            return None, None
        if self.plan.local:
            largest = max(self.public.distinct())
            return self.record_rate(largest), self.plan.rounds * local_steps(self.plan, largest)
        return self.record_rate(self.public.examples), self.plan.rounds

    # ---- example unit ----------------------------------------------------------------------------------------------------

    def record_rate(self, examples: int) -> float:
        return 1.0 if self.plan.sampling == Sampling.NONE else min(1.0, self.plan.batch_size / examples)

    def _local(self, z: float, examples: int) -> events.Event:
        """One round of DP-SGD at a client of that many records."""
        q = self.record_rate(examples)
        step = events.gaussian(z) if q == 1 else events.poisson(q, events.gaussian(z))
        return events.repeated(step, local_steps(self.plan, examples))

    def _worst(self, z: float) -> int:
        """The size of client that is charged most. Renyi accounting at a few orders bounds every client from above; the tight
        account is then taken of one after another, until what is left cannot be the largest any more."""
        if z in self._worst_at:
            return self._worst_at[z]
        sizes = self.public.distinct()
        runs = {n: events.repeated(self._local(z, n), self.exposures) for n in sizes}
        bounds = {
            n: rdp.epsilon_of(rdp.curve(run, self.relation, _FEW), self.plan.delta, _FEW) for n, run in runs.items()
        }
        worst, largest = sizes[0], -1.0
        for n in sorted(sizes, key=lambda n: -bounds[n]):
            if bounds[n] <= largest:
                break
            tight = accounting.epsilon_only(runs[n], self.plan.delta, self.relation)
            if tight > largest:
                worst, largest = n, tight
        return self._worst_at.setdefault(z, worst)

    @cached_property
    def _worst_at(self) -> dict[float, int]:
        return {}


_FEW = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0])


def local_steps(plan: Plan, examples: int) -> int:
    """How many noisy steps a client of that many records takes in a round; each is charged."""
    return plan.local_epochs * math.ceil(examples / min(plan.batch_size, examples))


def settle(plan: Plan, public: Public) -> Terms:
    """Find the multiplier that the budget asks for, or the rounds that it allows."""
    if public.clients != plan.clients:
        raise BadInput(f"the plan is for {plan.clients} clients and the data has {public.clients}; make them agree.")
    if plan.private and plan.unit == Unit.CLIENT and plan.weights == "size" and plan.weight_cap is None:
        raise BadInput("weights size needs a public weight_cap (examples from which on a client weighs in full).")
    if not plan.private:
        return Terms(plan, public, 0.0, plan.rounds)
    if plan.method_spec.closed_loop:
        from sordino.schemes.fedmap import budgets

        return budgets.settle(plan, public)
    if plan.published and plan.method_spec.claim is not None:
        return Terms(plan, public, _as_published(plan, public), plan.rounds)
    if plan.multiplier is None:
        return _calibrate(plan, public)
    if plan.epsilon is None:
        return Terms(plan, public, plan.multiplier, plan.rounds)
    return _within(plan, public, plan.multiplier, plan.epsilon)


def _calibrate(plan: Plan, public: Public) -> Terms:
    """With the least scale of noise at which the whole run stays within epsilon."""
    assert plan.epsilon is not None
    terms = Terms(plan, public, 1.0, plan.rounds)
    return terms.at(calibration.scale_for(lambda z: terms.at(z).total, plan.epsilon, plan.delta, terms.relation))


def _within(plan: Plan, public: Public, z: float, epsilon: float) -> Terms:
    """As many of the plan's rounds as the budget covers; none at all is a refusal."""
    low, high = 0, plan.rounds
    while low < high:
        middle = (low + high + 1) // 2
        if Terms(plan, public, z, middle).spent.epsilon <= epsilon:
            low = middle
        else:
            high = middle - 1
    if low == 0:
        one = Terms(plan, public, z, 1).spent.epsilon
        from sordino.errors import BudgetRefused

        raise BudgetRefused(
            f"one round at multiplier {z:g} costs epsilon {one:.3g}, and the budget is {epsilon:g}; "
            "raise multiplier, or leave it out to have it calibrated."
        )
    return Terms(plan, public, z, low)


def _as_published(plan: Plan, public: Public) -> float:
    """The multiplier at which the paper's own accounting prints the epsilon that was asked for."""
    if plan.multiplier is not None:
        return plan.multiplier
    assert plan.epsilon is not None
    claim, told = plan.method_spec.claim, Terms(plan, public, 1.0, plan.rounds).told
    assert claim is not None
    if claim(plan, 0.5, *told) == claim(plan, 50.0, *told):  # a mere label, that no noise is derived from
        return _calibrate(plan.replace(variant="certified"), public).multiplier
    low, high = 1e-3, 1e4
    for _ in range(60):
        middle = math.sqrt(low * high)
        said = claim(plan, middle, *told)
        if said is None or said <= plan.epsilon:
            high = middle
        else:
            low = middle
    return high


def _unfold(slots: list[tuple[events.Event, int]]) -> list[events.Event]:
    return [events.repeated(event, count) for event, count in slots]
