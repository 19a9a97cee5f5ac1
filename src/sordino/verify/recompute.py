"""Epsilon from the ledger's events, by dp-accounting alone. No code is shared with the accountant that printed it.

What has to be known about dp-accounting (0.6): zero-out is its REPLACE_SPECIAL. Under REPLACE_ONE its PLD accountant
doubles the sensitivity by itself and its RDP accountant does not, so multipliers are halved for the latter. Under
replace-one it has no Laplace noise; without sampling, Laplace noise of half the multiplier under add-remove is the same.

`recompute` gives an upper bound that is as tight as the library allows. Where that is a Renyi bound only, or none, it also
gives a lower bound on the true epsilon: that of a neighbour whose unit is replaced by one that contributes nothing, drawn
at the same rate. An epsilon below it is wrong, whatever proves it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from sordino.plain import Plain
from sordino.verify.verdict import Broken

if TYPE_CHECKING:
    from dp_accounting import DpEvent, NeighboringRelation

MANY = 24  # different events from which on loss distributions take more than seconds
_ORDERS = [1.1, 1.25, 1.5, 1.75, *(2 + x / 4 for x in range(32)), *range(10, 64), 80, 96, 128, 192, 256, 512, 1024]
_FEW_ORDERS = [1.5, *range(2, 33), 48, 64, 128, 256]
Row = Plain


@dataclass(frozen=True)
class Leaf:
    """One noisy release, on a sample or on everyone."""

    noise: str  # gaussian, laplace, or zcdp: a Renyi curve of rho x order, as of a Gaussian of this multiplier
    multiplier: float
    sampling: str = "none"  # none, poisson or fixed
    rate: float = 1.0
    counts: tuple[int, int] = (1, 1)  # population and cohort of a fixed-size sample


@dataclass(frozen=True)
class Recomputed:
    """What dp-accounting says. `accountant` None: it has no upper bound for these events."""

    epsilon: float | None
    accountant: str | None  # gaussian, pld or rdp
    at_least: float | None = None  # a lower bound, where the upper one is not tight
    why: str = ""  # it is not tight

    @property
    def tight(self) -> bool:
        """Whether the other accountant is tight too, so that both numbers must agree."""
        return self.accountant in ("gaussian", "pld")


# --- from the ledger's JSON to leaves ---------------------------------------------------------------------------------


def leaves(row: Row, count: int = 1) -> Counter[Leaf] | None:
    """Each kind of release in an event and how often it is made; None if something left without noise."""
    kind = row.get("kind")
    if kind == "nothing":
        return Counter()
    if kind == "nonprivate":
        return None
    if kind in ("gaussian", "laplace"):
        return Counter({Leaf(kind, _positive(row.get("multiplier"))): count})
    if kind == "zcdp" and not row.get("xi"):
        return Counter({Leaf(kind, (2 * _positive(row.get("rho"))) ** -0.5): count})
    if kind == "repeated":
        return leaves(_inner(row), count * _whole(row.get("count")))
    if kind == "composed":
        total: Counter[Leaf] = Counter()
        for part in _parts(row):
            found = leaves(part, count)
            if found is None:
                return None
            total.update(found)
        return total
    if kind in ("poisson", "without-replacement"):
        return _sampled(kind, row, count)
    raise Broken(f"ledger.jsonl holds an event of the unknown kind {kind!r}.")


def _sampled(kind: str, row: Row, count: int) -> Counter[Leaf] | None:
    """A sample; several Gaussians on one sample are one Gaussian, 1/z^2 adding up."""
    inside = leaves(_inner(row))
    if not inside:
        return inside
    if any(leaf.sampling != "none" for leaf in inside):
        raise Broken("ledger.jsonl holds a sample of a sample, which no accountant here can follow.")
    kinds = {leaf.noise for leaf in inside}
    if "zcdp" in kinds or kinds != {"gaussian"} and inside.total() > 1:
        raise Broken("ledger.jsonl holds noises on one sample that no accountant here can follow.")
    noise = next(iter(inside)).noise
    z = next(iter(inside)).multiplier if inside.total() == 1 else _joint(inside)
    if kind == "poisson":
        rate = _positive(row.get("rate"))
        if rate > 1:
            raise Broken(f"ledger.jsonl holds a sampling rate of {rate}.")
        return Counter({Leaf(noise, z) if rate == 1 else Leaf(noise, z, "poisson", rate): count})
    population, cohort = _whole(row.get("population")), _whole(row.get("cohort"))
    if cohort > population:
        raise Broken(f"ledger.jsonl holds a cohort of {cohort} out of {population}.")
    if cohort == population:
        return Counter({Leaf(noise, z): count})
    return Counter({Leaf(noise, z, "fixed", cohort / population, (population, cohort)): count})


def _joint(gaussians: Counter[Leaf]) -> float:
    return math.fsum(count / leaf.multiplier**2 for leaf, count in gaussians.items()) ** -0.5


def _inner(row: Row) -> Row:
    if not isinstance(row.get("event"), dict):
        raise Broken(f"ledger.jsonl holds an event of kind {row.get('kind')} without the event inside it.")
    return row["event"]


def _parts(row: Row) -> list[Row]:
    parts = row.get("events")
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise Broken("ledger.jsonl holds a composed event without its parts.")
    return parts


def _positive(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value > 0):
        raise Broken(f"ledger.jsonl holds the number {value!r} where a positive one belongs.")
    return float(value)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Broken(f"ledger.jsonl holds the count {value!r} where a whole number of at least 1 belongs.")
    return value


# --- from leaves to epsilon -------------------------------------------------------------------------------------------


def recompute(total: Counter[Leaf], delta: float, relation: str, printed: float, thorough: bool = True) -> Recomputed:
    """What all of `total` costs. `printed` only sets how fine the library's grid of losses is."""
    if not total:
        return Recomputed(0.0, "gaussian")
    if all(leaf.noise == "gaussian" and leaf.sampling == "none" for leaf in total):
        return Recomputed(_one_gaussian(_joint(total), delta, relation), "gaussian")
    if len(total) > MANY and not thorough:
        return Recomputed(None, None, None, f"{len(total)} different events take long; run sordino verify")
    grid = _grid(total, printed)
    with _quiet():
        tight = _by_pld(total, delta, relation, grid)
        if tight is not None:
            return Recomputed(tight, "pld")
        least = _by_pld(_nothing_instead(total), delta, "zero-out", grid)
        bound = _by_rdp(total, delta, relation)
        what = ", ".join(
            sorted({f"{leaf.noise} noise on a {leaf.sampling} sample" for leaf in total if leaf.sampling != "none"})
        )
        why = f"dp-accounting has no loss distribution for {what or 'these events'} under {relation}"
        return Recomputed(bound, None if bound is None else "rdp", least, why)


def _one_gaussian(z: float, delta: float, relation: str) -> float:
    """Unsampled Gaussians compose to one, whose delta the library knows exactly; epsilon by bisection, from above."""
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

    loss = GaussianPrivacyLoss(z, sensitivity=2.0 if relation == "replace-one" else 1.0)
    low, high = 0.0, 1.0
    while cast(float, loss.get_delta_for_epsilon(high)) > delta:
        low, high = high, 2 * high
        if high > 1e9:
            return math.inf
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if cast(float, loss.get_delta_for_epsilon(middle)) <= delta else (middle, high)
    return high


def _grid(total: Counter[Leaf], printed: float) -> float:
    """Steps of the loss. The library's rounding adds about rounds x step^2, so many rounds take a finer grid."""
    relative = 1e-4 if len(total) <= MANY else 1e-3
    if total.total() > 1000:
        relative = 5e-5
    return min(max(printed * relative, 1e-5), 1.0)


def _by_pld(total: Counter[Leaf], delta: float, relation: str, grid: float) -> float | None:
    """By loss distributions; None where the library has none (or none that fits in doubles)."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    if any(leaf.sampling == "fixed" for leaf in total):
        return None
    if relation == "replace-one" and any(leaf.noise == "laplace" for leaf in total):
        if any(leaf.sampling != "none" for leaf in total):
            return None
        total, relation = Counter({Leaf(leaf.noise, leaf.multiplier / 2): n for leaf, n in total.items()}), "add-remove"
    account = PLDAccountant(_relation(relation), value_discretization_interval=grid)
    try:
        for leaf, count in total.items():
            account.compose(_event(leaf), count)
        found = float(account.get_epsilon(delta))
    except (dp_accounting.UnsupportedEventError, OverflowError, MemoryError, FloatingPointError):
        return None
    return found if math.isfinite(found) else None


def _by_rdp(total: Counter[Leaf], delta: float, relation: str) -> float | None:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    if relation == "zero-out" and any(leaf.sampling == "fixed" for leaf in total):
        # Where one unit leaves a sample of fixed size another takes its place, so the theorem is about twice the bound.
        relation = "replace-one"
    theirs, half = _relation(relation), 2.0 if relation == "replace-one" else 1.0
    account = RdpAccountant(_ORDERS if len(total) <= MANY else _FEW_ORDERS, theirs)
    try:
        for leaf, count in total.items():
            account.compose(_event(leaf, half), count)
        found = float(account.get_epsilon(delta))
    except (dp_accounting.UnsupportedEventError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _nothing_instead(total: Counter[Leaf]) -> Counter[Leaf]:
    """The same releases for a unit that is drawn at the same rate and may contribute nothing: no relation costs less."""
    return Counter(
        {
            Leaf(leaf.noise, leaf.multiplier, "none" if leaf.sampling == "none" else "poisson", leaf.rate): n
            for leaf, n in total.items()
        }
    )


def _relation(word: str) -> NeighboringRelation:
    import dp_accounting

    theirs = dp_accounting.NeighboringRelation
    known = {
        "add-remove": theirs.ADD_OR_REMOVE_ONE,
        "zero-out": theirs.REPLACE_SPECIAL,
        "replace-one": theirs.REPLACE_ONE,
    }
    if word not in known:
        raise Broken(f"ledger.jsonl names the unknown relation {word!r}.")
    return known[word]


def _event(leaf: Leaf, half: float = 1.0) -> DpEvent:
    import dp_accounting

    z = leaf.multiplier / half
    if leaf.noise == "zcdp":
        return dp_accounting.ZCDpEvent(0.5 / z**2)
    noise = dp_accounting.GaussianDpEvent(z) if leaf.noise == "gaussian" else dp_accounting.LaplaceDpEvent(z)
    if leaf.sampling == "poisson":
        return dp_accounting.PoissonSampledDpEvent(leaf.rate, noise)
    if leaf.sampling == "fixed":
        return dp_accounting.SampledWithoutReplacementDpEvent(*leaf.counts, noise)
    return noise


@contextmanager
def _quiet() -> Iterator[None]:
    """The library logs orders that do not converge; it leaves them out, which is safe."""
    from absl import logging

    before = logging.get_verbosity()
    logging.set_verbosity(min(before, logging.ERROR))
    try:
        yield
    finally:
        logging.set_verbosity(before)
