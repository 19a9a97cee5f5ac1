"""A setting before there is data, and the noise against the signal in it.

Each contribution to a round is clipped to the bound, so their mean is no longer than the bound, while noise of standard
deviation z times the bound lies on each of d coordinates of the sum. On the mean of m contributions that is noise of
length z * sqrt(d) / m bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from sordino import errors
from sordino.errors import BadInput
from sordino.privacy import accounting, calibration, events
from sordino.privacy.vocabulary import Noise, Observer, Relation, Sampling, Unit, noise_for


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
    relation: Relation | None = None  # None: follows from the sampling
    sampling: Sampling = Sampling.POISSON
    epsilon: float | None = None
    delta: float = 1e-5
    multiplier: float | None = None
    batch_size: int = 256
    local_epochs: int = 1

    def __post_init__(self) -> None:
        words = (("unit", Unit), ("observer", Observer), ("sampling", Sampling), ("relation", Relation))
        for name, kind in words:
            value = getattr(self, name)
            if value is not None:
                errors.one_of(list(kind), **{name: value})
                object.__setattr__(self, name, kind(value))
        errors.whole(1, clients=self.clients, dimension=self.dimension, rounds=self.rounds, examples=self.examples)
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

    @property
    def members(self) -> int:
        """Clients expected in a round."""
        return self.clients if self.cohort is None or self.sampling is Sampling.NONE or self.pooled else self.cohort

    @property
    def pooled(self) -> bool:
        """Example unit, one clipped sum per round over everyone's records."""
        return self.unit is Unit.EXAMPLE and self.observer is not Observer.SERVER

    @property
    def records(self) -> int:
        """Records among which a batch is drawn: everyone's if pooled, else one client's."""
        return self.clients * self.examples if self.pooled else self.examples

    @property
    def batch(self) -> int:
        return self.records if self.sampling is Sampling.NONE else min(self.batch_size, self.records)


def relation_of(setting: Scenario) -> Relation:
    if setting.relation is not None:
        return setting.relation
    if setting.sampling is Sampling.FIXED and setting.observer is Observer.PUBLIC:
        return Relation.REPLACE_ONE
    visible = setting.unit is Unit.CLIENT and setting.observer is not Observer.PUBLIC
    return Relation.ZERO_OUT if visible else Relation.ADD_REMOVE


def schedule(setting: Scenario, multiplier: float) -> events.Event:
    """All that the most exposed unit is exposed to."""
    s = setting
    once = events.gaussian(multiplier)
    if s.unit is Unit.EXAMPLE:
        once = accounting.round_event(Sampling.POISSON, s.batch / s.records, multiplier)
    elif s.observer is Observer.PUBLIC and s.members < s.clients:  # a server knows who takes part: nothing is amplified
        once = accounting.round_event(s.sampling, (s.clients, s.members), multiplier)
    return events.repeated(once, releases(s))


def releases(setting: Scenario) -> int:
    s = setting
    if s.pooled or s.observer is Observer.PUBLIC:
        return s.rounds
    steps = 1 if s.unit is Unit.CLIENT else s.local_epochs * math.ceil(s.examples / s.batch)
    return steps * _most_rounds(s.rounds, s.members / s.clients, s.clients)


def _most_rounds(rounds: int, rate: float, clients: int) -> int:
    """The rounds that the most drawn client takes part in, as likely more as fewer."""
    if rate == 1:
        return rounds
    from scipy.special import bdtrc

    return max(1, next((k for k in range(rounds) if clients * bdtrc(k, rounds, rate) <= 0.5), rounds))


@lru_cache(maxsize=512)
def noise(setting: Scenario) -> tuple[float, accounting.Spent]:
    relation = relation_of(setting)
    multiplier = setting.multiplier
    if multiplier is None:
        assert setting.epsilon is not None
        multiplier = calibration.scale_for(lambda z: schedule(setting, z), setting.epsilon, setting.delta, relation)
    return multiplier, accounting.epsilon(schedule(setting, multiplier), setting.delta, relation)


def contributions(setting: Scenario) -> float:
    """How many contributions one dose of noise is shared by."""
    if setting.unit is Unit.EXAMPLE:
        return setting.batch
    local = noise_for(setting.observer) is Noise.LOCAL  # each client brings its own dose: they average out slowly
    return math.sqrt(setting.members) if local else setting.members


def ratio_of(setting: Scenario, multiplier: float) -> float:
    return multiplier * math.sqrt(setting.dimension) / contributions(setting)


def outcome(setting: Scenario) -> tuple[float, float]:
    """Multiplier and ratio of another setting."""
    multiplier, _ = noise(setting)
    return multiplier, ratio_of(setting, multiplier)
