"""What would make learning plausible: each change by itself, the noise it leads to, and how to ask for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from sordino.planning.scenario import Scenario, outcome, ratio_of, relation_of, schedule
from sordino.privacy import accounting
from sordino.privacy.vocabulary import Noise, Observer, Sampling, Unit

PLAUSIBLE = 10.0  # noise over bound, up to which learning is plausible


@dataclass(frozen=True)
class Remedy:
    """A change, with what it would bring."""

    change: str  # one or two words
    text: str  # a sentence with numbers
    options: str  # for the command line
    noise_to_bound: float
    doubtful: bool = False  # it would do, and would not be worth it

    @property
    def reaches(self) -> bool:
        return self.noise_to_bound <= PLAUSIBLE


def _example_unit(s: Scenario, z: float, ratio: float) -> Remedy | None:
    if s.unit is Unit.EXAMPLE:
        return None
    observer = Observer.SECAGG_SERVER if s.observer is Observer.SERVER else s.observer
    other = replace(s, unit=Unit.EXAMPLE, observer=observer, sampling=Sampling.POISSON, cohort=None, relation=None)
    other = _with_enough_batch(other)
    z_, ratio_ = outcome(other)
    text = (
        f"Protect each example instead of each client: one clipped sum per round over the {other.records:,} records of "
        f"all {s.clients:,} clients, in secret batches of {other.batch:,}. Multiplier {z_:.3g}, noise {ratio_:.2g} "
        "times the bound."
    )
    longer = replace(other, rounds=1000)
    if s.rounds < longer.rounds:
        z_long, ratio_long = outcome(longer)
        text += (
            f" A round is then a single step, so plan for more of them: {longer.rounds:,} rounds take multiplier "
            f"{z_long:.3g}, noise {ratio_long:.2g} times the bound."
        )
    return Remedy("the example unit", text, f"--unit example --observer {observer} --batch-size {other.batch}", ratio_)


def _with_enough_batch(s: Scenario) -> Scenario:
    """The same with the batch doubled until learning is plausible, at most to all records."""
    while outcome(s)[1] > PLAUSIBLE and s.batch < s.records:
        s = replace(s, batch_size=2 * s.batch)
    return s


def _other_observer(s: Scenario, z: float, ratio: float) -> Remedy | None:
    if s.observer is not Observer.SERVER:
        return None
    other = replace(s, observer=Observer.SECAGG_SERVER)
    if s.unit is Unit.EXAMPLE:
        other = _with_enough_batch(other)
    z_, ratio_ = outcome(other)
    what, batch = "each client then adds a share of the noise instead of all of it", ""
    if s.unit is Unit.EXAMPLE:
        what = f"one noisy sum over all clients' records, in secret batches of {other.batch:,}"
        batch = f" --batch-size {other.batch}"
    text = f"Show the server sums only: {what}. Multiplier {z_:.3g}, noise {ratio_:.3g} times the bound."
    return Remedy("secure aggregation", text, f"--observer secagg-server{batch}", ratio_)


def _larger_batch(s: Scenario, z: float, ratio: float) -> Remedy | None:
    if s.unit is Unit.CLIENT or s.batch >= s.records:
        return None
    other = _with_enough_batch(s)
    z_, ratio_ = outcome(other)
    text = f"Batches of {other.batch:,} (now {s.batch:,}): multiplier {z_:.3g}, noise {ratio_:.2g} times the bound."
    return Remedy("larger batches", text, f"--batch-size {other.batch}", ratio_)


def _larger_cohort(s: Scenario, z: float, ratio: float) -> Remedy | None:
    if s.unit is Unit.EXAMPLE or s.members >= s.clients:
        return None
    members = _least(lambda m: outcome(replace(s, cohort=m))[1] <= PLAUSIBLE, s.members + 1, s.clients) or s.clients
    z_, ratio_ = outcome(replace(s, cohort=members))
    text = f"{members:,} clients a round (now {s.members:,}): multiplier {z_:.3g}, noise {ratio_:.3g} times the bound."
    return Remedy("a larger cohort", text, f"--cohort {members}", ratio_)


def _more_clients(s: Scenario, z: float, ratio: float) -> Remedy | None:
    if s.unit is Unit.EXAMPLE:
        return None
    factor = 1.001 * ratio / PLAUSIBLE
    if s.plan.scheme.noise is Noise.LOCAL:
        factor **= 2
    for _ in range(3):  # the most drawn of more clients is drawn a little more often
        clients = math.ceil(s.clients * factor)
        cohort = None if s.members == s.clients else math.ceil(s.members * clients / s.clients)
        z_, ratio_ = outcome(replace(s, clients=clients, cohort=cohort))
        if ratio_ <= PLAUSIBLE:
            break
        factor *= (ratio_ / PLAUSIBLE) ** 2
    each = "" if cohort is None else f", {cohort:,} of them a round"
    text = f"{clients:,} clients (now {s.clients:,}){each}: multiplier {z_:.3g}, noise {ratio_:.3g} times the bound."
    return Remedy("more clients", text, f"--clients {clients}" + (f" --cohort {cohort}" if cohort else ""), ratio_)


def _fewer_parameters(s: Scenario, z: float, ratio: float) -> Remedy | None:
    dimension = math.floor(s.dimension * (PLAUSIBLE / ratio) ** 2)
    if dimension < 1:
        return None
    doubt = "; hardly a model" if dimension < 500 else ""
    text = f"Train {dimension:,} parameters (now {s.dimension:,}{doubt}), the rest frozen at public values."
    ratio_ = ratio_of(replace(s, dimension=dimension), z)
    return Remedy("fewer parameters", text, f"--dimension {dimension}", ratio_, doubtful=bool(doubt))


def _fewer_rounds(s: Scenario, z: float, ratio: float) -> Remedy | None:
    if s.epsilon is None:
        return None
    rounds = _most(lambda t: outcome(replace(s, rounds=t))[1] <= PLAUSIBLE, 1, s.rounds - 1)
    if rounds is None:
        return None
    z_, ratio_ = outcome(replace(s, rounds=rounds))
    text = f"{rounds:,} rounds (now {s.rounds:,}): multiplier {z_:.3g}, noise {ratio_:.3g} times the bound."
    return Remedy("fewer rounds", text, f"--rounds {rounds}", ratio_)


def _larger_epsilon(s: Scenario, z: float, ratio: float) -> Remedy | None:
    multiplier = z * PLAUSIBLE / ratio * (1 - 1e-9)
    epsilon = accounting.epsilon(schedule(s, multiplier), s.delta, relation_of(s)).epsilon
    if not math.isfinite(epsilon):
        return None
    doubt = ", which protects next to nothing" if epsilon > 20 else ""
    text = f"Epsilon {epsilon:,.3g} instead{doubt}: multiplier {multiplier:.3g}, noise {PLAUSIBLE:.0f} times the bound."
    options = f"--epsilon {math.ceil(epsilon * 100) / 100:g}"
    return Remedy("a larger epsilon", text, options, ratio_of(s, multiplier), doubtful=bool(doubt))


REMEDIES: tuple[Callable[[Scenario, float, float], Remedy | None], ...] = (
    _example_unit,
    _other_observer,
    _larger_batch,
    _larger_cohort,
    _fewer_parameters,
    _more_clients,
    _fewer_rounds,
    _larger_epsilon,
)


def _least(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The least whole number in [low, high] at which `holds`, which goes from false to true."""
    if low > high or not holds(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _most(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The largest whole number in [low, high] at which `holds`, which goes from true to false."""
    if low > high or not holds(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
