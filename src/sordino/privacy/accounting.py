"""Events to epsilon. One function, `epsilon`, and it says which account it used.

- ``gdp``: exact, where nothing is sampled and all noise is Gaussian;
- ``pld``: privacy loss distributions, for every other schedule that was fixed in advance and has dominating pairs;
- ``rdp``: Renyi accounts, for what has none (Gaussians on fixed-size samples, discrete noises), and beside the others
  as a second figure;
- ``none``: nothing was released (0), or something was released without noise (infinity).

A multiplier is noise over the bound of one contribution under every relation. What a relation makes of that is said in
two places, here for dominating pairs and in `rdp` for Renyi costs: add-remove and zero-out move a sum by the bound,
replace-one by twice the bound. (Libraries differ: dp-accounting doubles by itself in one of its accountants and not in
the other; `dp_accounting_check` knows.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from sordino import errors
from sordino.privacy import events, gdp, pld, rdp
from sordino.privacy.vocabulary import Relation, Sampling

if TYPE_CHECKING:
    from dp_accounting import dp_event

Accountant = Literal["pld", "rdp", "gdp", "rdp-filter", "none"]
Rate = float | tuple[int, int]  # a probability, or (population, cohort)

_MANY_KINDS = 64  # different rounds that are composed one by one; more are grouped, never in their favour,
_GROUP = 0.002  # if their multipliers or rates agree to this
_LEAST_FOR_PLD = 0.1  # a single loss then has a tail up to about 500, and exp() of it still is a number
_HIGH_ORDERS = np.array([1536, 2048, 3072, 4096, 8192, 16384, 65536], float)  # for very small epsilons


@dataclass(frozen=True)
class Spent:
    """What a schedule costs at a delta: `epsilon`, by which accountant, and what Renyi accounting alone would say."""

    epsilon: float
    delta: float
    relation: Relation
    accountant: Accountant
    epsilon_rdp: float


def default_relation(sampling: Sampling) -> Relation:
    """The relation that the amplification theorem of a sampling speaks of."""
    return Relation.REPLACE_ONE if sampling is Sampling.FIXED else Relation.ADD_REMOVE


def round_event(sampling: Sampling, rate: Rate, multiplier: float, laplace: bool = False) -> events.Event:
    """One round: noise of this multiplier on the sum over a cohort. A rate may be given as ``(population, cohort)``."""
    noise = events.laplace(multiplier) if laplace else events.gaussian(multiplier)
    sampling = Sampling(sampling)
    if sampling is Sampling.NONE:
        return noise
    if sampling is Sampling.FIXED:
        if not isinstance(rate, tuple):
            rate = _counts(rate)
        return noise if rate[0] == rate[1] else events.without_replacement(*rate, noise)
    if isinstance(rate, tuple):
        errors.whole(1, population=rate[0], cohort=rate[1])
        rate = rate[1] / rate[0]
    errors.rate(rate=rate)
    return noise if rate == 1 else events.poisson(rate, noise)


def _counts(rate: float) -> tuple[int, int]:
    """A fixed-size sample of at least this rate: only the ratio counts."""
    errors.rate(rate=rate)
    if rate < 1e-5:
        return math.floor(1 / rate), 1
    ratio = Fraction(rate).limit_denominator(10**6)
    return ratio.denominator, ratio.numerator + (ratio.numerator / ratio.denominator < rate)


def epsilon(event: events.Event, delta: float, relation: Relation = Relation.ADD_REMOVE) -> Spent:
    """What `event` costs. Schedules must have been fixed in advance; spending as one goes is for the filter."""
    errors.between(0, 1, delta=delta)
    relation = Relation(relation)
    leaves = _leaves(event)
    if leaves is None:
        return Spent(math.inf, delta, relation, "none", math.inf)
    if not leaves:
        return Spent(0.0, delta, relation, "none", 0.0)
    best, accountant = _tightest(leaves, delta, relation)
    by_rdp = best if accountant == "rdp" else _epsilon_rdp(leaves, delta, relation)
    if by_rdp < best:  # rounds so weak that the grid of loss distributions is too coarse for them
        best, accountant = by_rdp, "rdp"
    return Spent(best, delta, relation, accountant, by_rdp)


def epsilon_only(event: events.Event, delta: float, relation: Relation) -> float:
    """The epsilon of `epsilon`, without the second figure: for those who ask many times over."""
    leaves = _leaves(event)
    if leaves is None:
        return math.inf
    return _tightest(leaves, delta, relation)[0] if leaves else 0.0


def delta_for(event: events.Event, epsilon: float, relation: Relation = Relation.ADD_REMOVE) -> float:
    """The delta at a given epsilon."""
    errors.at_least(0.0, epsilon=epsilon)
    relation = Relation(relation)
    leaves = _leaves(event)
    if leaves is None:
        return 1.0
    if not leaves:
        return 0.0
    mu = _plain(leaves, relation)
    if mu is not None:
        return gdp.delta(epsilon, mu)
    pairs = _pairs(leaves, relation)
    if pairs is not None:
        return pld.delta(pairs, epsilon)
    return rdp.delta_of(_curve(leaves, relation, rdp.ORDERS), epsilon)


def _tightest(leaves: Mapping[events.Event, int], delta: float, relation: Relation) -> tuple[float, Accountant]:
    mu = _plain(leaves, relation)
    if mu is not None:
        return gdp.epsilon(delta, mu), "gdp"
    pairs = _pairs(leaves, relation)
    by_pld = pld.epsilon(pairs, delta) if pairs is not None else math.inf
    if math.isfinite(by_pld):
        return by_pld, "pld"
    return _epsilon_rdp(leaves, delta, relation), "rdp"


# --- from events to what the accounts take ----------------------------------------------------------------------------


def _leaves(event: events.Event) -> dict[events.Event, int] | None:
    """Each kind of round and how often it was run; all plain Gaussians as one. None if something is not private."""
    counts: Counter[events.Event] = Counter()
    if not _gather(event, 1, counts):
        return None
    t = events.types()
    plain = [leaf for leaf in counts if isinstance(leaf, t.GaussianDpEvent)]
    if plain:
        precision = math.fsum(counts.pop(leaf) / leaf.noise_multiplier**2 for leaf in plain)
        counts[events.gaussian(precision**-0.5)] = 1
    return _grouped(counts) if len(counts) > _MANY_KINDS else dict(counts)


def _gather(event: events.Event, count: int, counts: Counter[events.Event]) -> bool:
    t = events.types()
    if isinstance(event, t.NoOpDpEvent):
        return True
    if isinstance(event, t.ComposedDpEvent):
        return all([_gather(part, count, counts) for part in event.events])
    if isinstance(event, t.SelfComposedDpEvent):
        return _gather(event.event, count * event.count, counts)
    if events.reasons(event):
        return False
    if isinstance(event, t.PoissonSampledDpEvent):
        inner = rdp.collapse(event.event)
        if isinstance(inner, t.NoOpDpEvent):
            return True
        event = inner if event.sampling_probability == 1 else events.poisson(event.sampling_probability, inner)
    elif isinstance(event, t.SampledWithoutReplacementDpEvent):
        inner, whole = rdp.collapse(event.event), event.sample_size == event.source_dataset_size
        if isinstance(inner, t.NoOpDpEvent):
            return True
        event = inner if whole else events.without_replacement(event.source_dataset_size, event.sample_size, inner)
    try:
        counts[event] += count
    except TypeError:  # a sampled nest of unlike noises holds lists; one kind of its own each time
        counts[cast(events.Event, _Unlike(event))] += count
    return True


class _Unlike:
    """An event that cannot be hashed, made a key of its own."""

    def __init__(self, event: events.Event) -> None:
        self.event = event


def _grouped(counts: Mapping[events.Event, int]) -> dict[events.Event, int]:
    """Poisson-sampled Gaussians with multipliers rounded down and rates rounded up."""
    t = events.types()

    def kind(leaf: events.Event) -> bool:
        return isinstance(leaf, t.PoissonSampledDpEvent) and isinstance(leaf.event, t.GaussianDpEvent)

    some = [cast("dp_event.PoissonSampledDpEvent", leaf) for leaf in counts if kind(leaf)]
    grouped = Counter({leaf: count for leaf, count in counts.items() if not kind(leaf)})
    if some:
        rates = 1 / _rounded_down(np.array([1 / leaf.sampling_probability for leaf in some]))
        multipliers = _rounded_down(
            np.array([cast("dp_event.GaussianDpEvent", leaf.event).noise_multiplier for leaf in some])
        )
        for leaf, rate, multiplier in zip(some, rates, multipliers):
            grouped[events.poisson(min(float(rate), 1.0), events.gaussian(float(multiplier)))] += counts[leaf]
    return dict(grouped)


def _rounded_down(values: np.ndarray) -> np.ndarray:
    """`values` rounded down in steps of equal ratio, from the least of them up."""
    least = values.min()
    return np.minimum(least * np.exp(_GROUP * np.floor(np.log(values / least) / _GROUP)), values)


def _plain(leaves: Mapping[events.Event, int], relation: Relation) -> float | None:
    """The mu of a schedule that is one Gaussian, or None."""
    (leaf, *others) = leaves
    if others or not isinstance(leaf, events.types().GaussianDpEvent):
        return None
    return (2 if relation is Relation.REPLACE_ONE else 1) / leaf.noise_multiplier


def _pairs(leaves: Mapping[events.Event, int], relation: Relation) -> dict[pld.Pair, int] | None:
    """The dominating pair of each kind of round, or None if one has none (or losses beyond the range of doubles)."""
    t = events.types()
    pairs: Counter[pld.Pair] = Counter()
    for leaf, count in leaves.items():
        noise = next(iter(events.parts(leaf)), leaf)
        if isinstance(noise, (t.GaussianDpEvent, t.LaplaceDpEvent)) and noise.noise_multiplier < _LEAST_FOR_PLD:
            return None
        pair = _pair(leaf, relation)
        if pair is None:
            return None
        pairs[pair] += count
    return dict(pairs)


def _pair(leaf: events.Event, relation: Relation) -> pld.Pair | None:
    t = events.types()
    replaced = relation is Relation.REPLACE_ONE
    twice = 2 if replaced else 1
    if isinstance(leaf, t.GaussianDpEvent):
        return pld.SampledGaussian(1.0, leaf.noise_multiplier / twice)
    if isinstance(leaf, t.LaplaceDpEvent):
        return pld.SampledLaplace(1.0, leaf.noise_multiplier / twice)
    if isinstance(leaf, t.PoissonSampledDpEvent):
        rate, inner = leaf.sampling_probability, leaf.event
        if isinstance(inner, t.GaussianDpEvent):
            return (pld.ReplacedGaussian if replaced else pld.SampledGaussian)(rate, inner.noise_multiplier)
        if isinstance(inner, t.LaplaceDpEvent):
            if replaced:
                return pld.Pure(rdp.poisson_replaced_epsilon(rate, 1 / inner.noise_multiplier))
            return pld.SampledLaplace(rate, inner.noise_multiplier)
    if isinstance(leaf, t.SampledWithoutReplacementDpEvent) and isinstance(leaf.event, t.LaplaceDpEvent):
        if relation is not Relation.ADD_REMOVE:
            rate = leaf.sample_size / leaf.source_dataset_size
            return pld.Pure(rdp.fixed_epsilon(rate, 2 / leaf.event.noise_multiplier))
    return None


def _epsilon_rdp(leaves: Mapping[events.Event, int], delta: float, relation: Relation) -> float:
    by_usual = rdp.epsilon_of(_curve(leaves, relation, rdp.ORDERS), delta)
    if by_usual > -4 * math.log(delta) / rdp.ORDERS[-1]:
        return by_usual
    # So small an epsilon is met at orders beyond the usual ones.
    return min(by_usual, rdp.epsilon_of(_curve(leaves, relation, _HIGH_ORDERS), delta, _HIGH_ORDERS))


def _curve(leaves: Mapping[events.Event, int], relation: Relation, orders: np.ndarray) -> np.ndarray:
    total = np.zeros(orders.shape)
    for leaf, count in leaves.items():
        total += count * rdp.curve(leaf.event if isinstance(leaf, _Unlike) else leaf, relation, orders)
    return total
