"""What would make learning plausible: each change by itself, the noise it leads to, and how to ask for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from sordino.planning.bands import best
from sordino.planning.scenario import Scenario, left, left_of, outcome, ratio_of, relation_of, schedule
from sordino.privacy import accounting
from sordino.privacy.vocabulary import Noise, Observer, Relation, Sampling, Unit
from sordino.recipes.frontier import ROUNDS
from sordino.recipes.settings import pooled_rounds

PLAUSIBLE = 0.5  # noise that is left over the signal, up to which learning is plausible
MOST_DRAWS = 20_000_000  # of clients, over all rounds of a remedy


@dataclass(frozen=True)
class Remedy:
    """A change, with what it would bring."""

    change: str  # one or two words
    text: str  # a sentence with numbers
    options: str  # for the command line
    noise_to_bound: float
    left: float  # noise over signal, when all rounds are averaged
    doubtful: bool = False  # it would do, and would not be worth it

    @property
    def reaches(self) -> bool:
        """Whether the noise that is left then is small enough to learn."""
        return self.left <= PLAUSIBLE * (1 + 1e-6)


def _example_unit(s: Scenario, z: float, remains: float) -> Remedy | None:
    if s.unit is Unit.EXAMPLE:
        return None
    observer = Observer.SECAGG_SERVER if s.observer is Observer.SERVER else s.observer
    records = s.clients * s.examples
    rounds, batch = pooled_rounds(records, s.epsilon or 1.0)  # what `sordino train` would choose
    if s.effective is not None:  # by recipe frontier, whose rate suits its own rounds
        rounds, batch = ROUNDS["grey"], max(1, records // 10)
    other = replace(s, unit=Unit.EXAMPLE, observer=observer, sampling=Sampling.POISSON, cohort=None, relation=None)
    other = replace(other, rounds=rounds, batch_size=batch)
    z_, ratio_ = outcome(other)
    text = (
        f"Protect each example instead of each client: one clipped sum per round over the {other.records:,} records of "
        f"all {s.clients:,} clients, in secret batches of {other.batch:,}, for {rounds} rounds. Multiplier {z_:.3g}, noise "
        f"{ratio_:.2g} times the bound."
    )
    options = f"--unit example --observer {observer}"
    options += "" if s.effective is not None else f" --rounds {rounds} --batch-size {other.batch}"
    return Remedy("the example unit", text, options, ratio_, left(other))


def _with_enough_batch(s: Scenario) -> Scenario:
    """The same with the recipe's batch at least, doubled until learning is plausible, at most to all records."""
    _, usual = pooled_rounds(s.records, s.epsilon or 1.0)
    s = replace(s, batch_size=max(s.batch, min(usual, s.records)))
    while left(s) > PLAUSIBLE and s.batch < s.records:
        s = replace(s, batch_size=2 * s.batch)
    return s


def _other_observer(s: Scenario, z: float, remains: float) -> Remedy | None:
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
    return Remedy("secure aggregation", text, f"--observer secagg-server{batch}", ratio_, left(other))


def _larger_batch(s: Scenario, z: float, remains: float) -> Remedy | None:
    if s.unit is Unit.CLIENT or s.batch >= s.records:
        return None
    other = _with_enough_batch(s)
    z_, ratio_ = outcome(other)
    text = f"Batches of {other.batch:,} (now {s.batch:,}): multiplier {z_:.3g}, noise {ratio_:.2g} times the bound."
    return Remedy("larger batches", text, f"--batch-size {other.batch}", ratio_, left(other))


def _larger_cohort(s: Scenario, z: float, remains: float) -> Remedy | None:
    if s.unit is Unit.EXAMPLE or s.members >= s.clients:
        return None
    members = _least(lambda m: left(replace(s, cohort=m)) <= PLAUSIBLE, s.members + 1, s.clients) or s.clients
    other = replace(s, cohort=members)
    z_, ratio_ = outcome(other)
    text = f"{members:,} clients a round (now {s.members:,}): multiplier {z_:.3g}, noise {ratio_:.3g} times the bound."
    return Remedy("a larger cohort", text, f"--cohort {members}", ratio_, left(other))


def _correlated_noise(s: Scenario, z: float, remains: float) -> Remedy | None:
    coins = s.unit is Unit.CLIENT and s.observer is Observer.PUBLIC and s.sampling is Sampling.POISSON
    if not coins or 2 * s.members > s.clients or s.relation not in (None, Relation.ZERO_OUT):
        return None
    found = best(s.plan.replace(method="dp-bandmf"))
    if found.bands == 1:
        return None
    text = (
        f"Noise that is correlated over {found.bands} rounds, for clients that take part in one round of {found.bands} at most: "
        f"{1 - found.relative:.0%} less noise in the model."
    )
    options = f"--method dp-bandmf --option bands={found.bands}"
    return Remedy("correlated noise", text, options, ratio_of(s, z) * found.relative, remains * found.relative)


def _more_clients(s: Scenario, z: float, remains: float) -> Remedy | None:
    if s.unit is Unit.EXAMPLE:
        return None
    factor = 1.001 * remains / PLAUSIBLE
    if s.plan.scheme.noise is Noise.LOCAL:
        factor **= 2
    for _ in range(3):  # the most drawn of more clients is drawn a little more often
        clients = math.ceil(s.clients * factor)
        cohort = None if s.members == s.clients else math.ceil(s.members * clients / s.clients)
        if cohort is not None and s.rounds * cohort > MOST_DRAWS:
            return None  # who is drawn most often would take minutes to tell, and nobody has so many clients
        other = replace(s, clients=clients, cohort=cohort)
        z_, ratio_ = outcome(other)
        if left(other) <= PLAUSIBLE:
            break
        factor *= (left(other) / PLAUSIBLE) ** 2
    each = "" if cohort is None else f", {cohort:,} of them a round"
    text = f"{clients:,} clients (now {s.clients:,}){each}: multiplier {z_:.3g}, noise {ratio_:.3g} times the bound."
    options = f"--clients {clients}" + (f" --cohort {cohort}" if cohort else "")
    return Remedy("more clients", text, options, ratio_, left(other), doubtful=clients > 20 * s.clients)


def _fewer_parameters(s: Scenario, z: float, remains: float) -> Remedy | None:
    dimension = math.floor(s.dimension * (PLAUSIBLE / remains) ** 2)
    if dimension < 1 or s.effective is not None:  # fewer features would have noise of the same size on a score
        return None
    doubt = "; hardly a model" if dimension < 500 else ""
    text = f"Train {dimension:,} parameters (now {s.dimension:,}{doubt}), the rest frozen at public values."
    other = replace(s, dimension=dimension)
    options = f"--dimension {dimension}"
    return Remedy("fewer parameters", text, options, ratio_of(other, z), left_of(other, z), doubtful=bool(doubt))


def _larger_epsilon(s: Scenario, z: float, remains: float) -> Remedy | None:
    multiplier = z * PLAUSIBLE / remains * (1 - 1e-9)
    ratio = ratio_of(s, multiplier)
    epsilon = accounting.epsilon(schedule(s, multiplier), s.delta, relation_of(s)).epsilon
    if not math.isfinite(epsilon):
        return None
    doubt = ", which protects next to nothing" if epsilon > 20 else ""
    text = f"Epsilon {epsilon:,.3g} instead{doubt}: multiplier {multiplier:.3g}, noise {ratio:.3g} times the bound."
    options = f"--epsilon {math.ceil(epsilon * 100) / 100:g}"
    return Remedy("a larger epsilon", text, options, ratio, left_of(s, multiplier), doubtful=bool(doubt))


REMEDIES: tuple[Callable[[Scenario, float, float], Remedy | None], ...] = (
    _example_unit,
    _other_observer,
    _larger_batch,
    _larger_cohort,
    _correlated_noise,
    _fewer_parameters,
    _more_clients,
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
