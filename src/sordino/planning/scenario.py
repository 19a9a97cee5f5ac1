"""A scenario before there is data, and the noise against the signal in it.

Each contribution to a round is clipped to the bound, so their mean is no longer than the bound, while noise of standard
deviation z times the bound lies on each of d coordinates of the sum. On the mean of m contributions that is noise of
length z * sqrt(d) / m bounds. One round need not be heard through its noise: steps of T rounds add up, their signal with T and their
noise with sqrt(T). So what decides is the noise that is *left* when all rounds are averaged, z * sqrt(d / T) / m, over the signal.
Rows of features have length 1, and noise on a score does not grow with their number: a head on them counts as `effective` parameters.
Updates of whole clients mostly point one way, and their mean is nearly as long as the bound. Gradients of single records partly cancel:
their mean has about 0.3 bounds (`SIGNAL`). What a unit is exposed to is the scheme's word, as in training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

from sordino import errors
from sordino.errors import BadInput
from sordino.federation.sizes import PublicSizes
from sordino.methods import method
from sordino.plan import Plan
from sordino.privacy import accounting, events
from sordino.privacy.vocabulary import Observer, Relation, Sampling, Unit
from sordino.schemes import select, settle
from sordino.schemes.pooled import Pooled
from sordino.schemes.terms import Terms

SIGNAL = {Unit.CLIENT: 1.0, Unit.EXAMPLE: 0.3}  # length of a clipped mean, in bounds, about
METHOD = "dp-fedavg"  # noise against a bound that stands still; other methods differ in how the bound is set


@dataclass(frozen=True)
class Scenario:
    """What is known before there is data. Give `epsilon`, and the noise is calibrated, or `multiplier`."""

    clients: int
    dimension: int
    rounds: int
    examples: int = 1000  # held by each client
    cohort: int | None = None  # clients expected in a round; None: all
    unit: Unit = Unit.EXAMPLE
    observer: Observer = Observer.SECAGG_SERVER
    relation: Relation | None = None  # None: follows from the scheme
    sampling: Sampling = Sampling.POISSON
    epsilon: float | None = None
    delta: float = 1e-5
    multiplier: float | None = None
    batch_size: int = 256
    local_epochs: int = 1
    effective: int | None = None  # parameters that the noise counts as, where rows of features have length 1; None: all

    def __post_init__(self) -> None:
        for name, kind, value in (
            ("unit", Unit, self.unit),
            ("observer", Observer, self.observer),
            ("sampling", Sampling, self.sampling),
            ("relation", Relation, self.relation),
        ):
            if value is not None:
                errors.one_of(list(kind), **{name: value})
                object.__setattr__(self, name, kind(value))
        errors.whole(1, clients=self.clients, dimension=self.dimension, rounds=self.rounds, examples=self.examples)
        if self.effective is not None:
            errors.whole(1, effective=self.effective)
        errors.whole(1, cohort=self.members, batch_size=self.batch_size, local_epochs=self.local_epochs)
        errors.between(0, 1, delta=self.delta)
        if self.members > self.clients:
            raise BadInput(f"cohort must be at most the {self.clients} clients, not {self.members}.")
        if (self.epsilon is None) == (self.multiplier is None):
            raise BadInput("Give epsilon, to find the multiplier, or multiplier, to find epsilon: one of the two.")
        if self.epsilon is not None:
            errors.positive(epsilon=self.epsilon)
        if self.multiplier is not None:
            errors.positive(multiplier=self.multiplier)

    @cached_property
    def everyone(self) -> bool:
        """Whether every client takes part in every round."""
        pooled = select(method(METHOD), self.unit, self.observer) is Pooled
        return self.cohort is None or self.sampling is Sampling.NONE or pooled

    @property
    def members(self) -> int:
        """Clients expected in a round."""
        return self.clients if self.everyone or self.cohort is None else self.cohort

    @cached_property
    def plan(self) -> Plan:
        """The same as a plan."""
        hides = self.unit is Unit.CLIENT and self.observer is Observer.SECAGG_SERVER
        return Plan(
            data="none",
            clients=self.clients,
            cohort=self.members,
            method=METHOD,
            unit=self.unit,
            observer=self.observer,
            relation=self.relation,
            # Under secure aggregation a cohort has a known size, and coins would gain nothing.
            sampling=Sampling.FIXED if hides and self.members < self.clients else self.sampling,
            epsilon=self.epsilon,
            multiplier=self.multiplier,
            delta=self.delta,
            rounds=self.rounds,
            batch_size=self.batch_size,
            local_epochs=self.local_epochs,
        )

    @property
    def sizes(self) -> PublicSizes:
        """The public sizes: how many clients, and how many records each."""
        return PublicSizes(self.clients, self.examples)

    @property
    def records(self) -> int:
        """Records among which a batch is drawn: everyone's if pooled, else one client's."""
        pooled = isinstance(self.plan.scheme, Pooled)
        return self.clients * self.examples if pooled else self.examples

    @property
    def batch(self) -> int:
        """Records expected in a step."""
        return self.records if self.sampling is Sampling.NONE else min(self.batch_size, self.records)


@lru_cache(maxsize=512)
def terms_of(scenario: Scenario) -> Terms:
    """The terms of the plan, worked out once for each scenario."""
    return settle(scenario.plan, scenario.sizes)


def relation_of(scenario: Scenario) -> Relation:
    """The neighbouring relation that the scheme proves."""
    return scenario.plan.scheme.relation


def schedule(scenario: Scenario, multiplier: float) -> events.Event:
    """All that the most exposed unit is exposed to."""
    return Terms(scenario.plan, scenario.sizes, multiplier, scenario.rounds).total


def releases(scenario: Scenario) -> int:
    """How many noisy releases the most exposed unit takes part in."""
    return terms_of(scenario).exposures * scenario.plan.scheme.steps(scenario.sizes)


def noise(scenario: Scenario) -> tuple[float, accounting.Spent]:
    """The multiplier that the budget asks for, and what it costs."""
    terms = terms_of(scenario)
    return terms.multiplier, terms.spent


def contributions(scenario: Scenario) -> float:
    """How many contributions share the noise of one release."""
    return scenario.plan.scheme.contributions(scenario.sizes)


def ratio_of(scenario: Scenario, multiplier: float) -> float:
    """The length of the noise beside that of a full sum of clipped contributions."""
    return multiplier * math.sqrt(scenario.dimension) / contributions(scenario)


def left_of(scenario: Scenario, multiplier: float) -> float:
    """The noise that is left when the means of all releases are averaged, over the signal."""
    averaged = math.sqrt(scenario.rounds * scenario.plan.scheme.steps(scenario.sizes))
    counted = math.sqrt((scenario.effective or scenario.dimension) / scenario.dimension)
    return ratio_of(scenario, multiplier) * counted / averaged / SIGNAL[scenario.unit]


def outcome(scenario: Scenario) -> tuple[float, float]:
    """Multiplier and ratio of another scenario."""
    multiplier, _ = noise(scenario)
    return multiplier, ratio_of(scenario, multiplier)


def left(scenario: Scenario) -> float:
    """The noise that is left over the signal, at the multiplier that the budget asks for."""
    return left_of(scenario, noise(scenario)[0])
