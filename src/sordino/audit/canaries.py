"""Who the canaries are: secret coins, secret directions, and when each takes part.

A canary is a unit like any other, put in so that an audit knows what to look for. Half of them, by fair coins that
only the auditor knows, contribute; the audit tries to tell which. A contribution points in a direction of the
canary's own and reaches far beyond the bound, so that clipping brings it to exactly the bound: nothing a real unit
can do is easier to notice.

The coordinates of the model are dealt out among the canaries at random, and each direction is uniform on the sphere of
its own coordinates (for Laplace noise: a single one of them). Directions are thus orthogonal, and looking for all of
them costs one pass over the model. And a direction that was not used has a known distribution of cosines with whatever
was released (Andrew et al. 2023 draw from the whole sphere; the null is the same, in fewer dimensions).

`turning` canaries point forwards or backwards by a secret coin for each round, so that what real units give round after
round does not drown them; only an observer of all rounds can see them. `steady` ones also show in the final model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sordino.errors import BadInput
from sordino.federation import sampling
from sordino.plan import Plan
from sordino.privacy.bounds import Bound, Coordinates, Grouped
from sordino.privacy.randomness import SERVER, stream
from sordino.privacy.vocabulary import Sampling, Unit

FAR = 1e6  # in bounds: every group of a grouped bound is clipped too


@dataclass(frozen=True)
class Canaries:
    """So many canaries in a model of this dimension, all drawn from one secret."""

    count: int
    dimension: int
    secret: int
    single: bool = False  # one coordinate each: the worst direction for Laplace noise
    turning: bool = False  # forwards or backwards, by a coin for each round

    def __post_init__(self) -> None:
        if self.count > self.dimension:
            raise BadInput(
                f"{self.count} canaries need a coordinate each, and the model has {self.dimension}; ask for fewer canaries."
            )

    @property
    def block(self) -> int:
        """How many coordinates each canary has to itself."""
        return self.dimension // self.count

    @cached_property
    def coins(self) -> np.ndarray:
        """Which canaries contribute."""
        return stream(self.secret, 0, SERVER, "canary coins").random(self.count) < 0.5

    @cached_property
    def owner(self) -> np.ndarray:
        """The canary that each coordinate belongs to; those left over belong to nobody (-1)."""
        order = stream(self.secret, 0, SERVER, "canary coordinates").permutation(self.dimension)
        owner = np.full(self.dimension, -1)
        owner[order[: self.block * self.count]] = np.repeat(np.arange(self.count), self.block)
        return owner

    @cached_property
    def direction(self) -> np.ndarray:
        """All directions in one vector: they do not overlap."""
        drawn = stream(self.secret, 0, SERVER, "canary directions").standard_normal(self.dimension)
        if self.single:
            last = np.full(self.count, -1)
            last[self.owner[self.owner >= 0]] = np.flatnonzero(self.owner >= 0)
            drawn = np.where(np.isin(np.arange(self.dimension), last), np.sign(drawn), 0.0)
        drawn[self.owner < 0] = 0.0
        return drawn / np.where(self.owner < 0, 1.0, np.sqrt(self.sums(drawn**2))[self.owner])

    def sums(self, values: np.ndarray) -> np.ndarray:
        """The sum of `values` over each canary's coordinates."""
        mine = self.owner >= 0
        return np.bincount(self.owner[mine], values[mine], minlength=self.count)

    # ---- what they do ------------------------------------------------------------------------------------------------

    def signs(self, t: int) -> np.ndarray:
        """Which way each canary points in this round. Turning, it cannot be mistaken for what the others always give."""
        if not self.turning:
            return np.ones(self.count)
        return np.where(stream(self.secret, t, SERVER, "canary signs").random(self.count) < 0.5, -1.0, 1.0)

    def update(self, canary: int, bound: Bound, t: int) -> np.ndarray:
        """What a canary gives before clipping: far beyond the bound, in the space where it clips."""
        length = FAR * bound.size * self.signs(t)[canary]
        v = length * np.where(self.owner == canary, self.direction, 0.0)
        return bound.mean + bound.scale * v if isinstance(bound, Coordinates) else v

    def shifts(self, bound: Bound, t: int) -> np.ndarray:
        """What each canary adds to the sum after clipping, all in one vector."""
        return self._clipped(bound) * self._per_owner(self.signs(t))

    def _clipped(self, bound: Bound) -> np.ndarray:
        if not isinstance(bound, Grouped):
            if bound.norm_kind == "l1":
                return bound.size * self.direction / self._per_owner(self.sums(np.abs(self.direction)))
            return bound.size * self.direction
        group = np.repeat(np.arange(len(bound.sizes)), bound.sizes)
        cell = np.maximum(self.owner, 0) * len(bound.sizes) + group
        squares = np.bincount(cell, self.direction**2, minlength=self.count * len(bound.sizes))
        norms = np.sqrt(squares)[cell]
        unit = np.divide(self.direction, norms, out=np.zeros(self.dimension), where=norms > 0)
        return unit * np.array(bound.bounds)[group]

    def _per_owner(self, values: np.ndarray) -> np.ndarray:
        return np.where(self.owner < 0, 1.0, values[self.owner])

    # ---- when they do it ---------------------------------------------------------------------------------------------

    def cohort(self, plan: Plan, t: int, rate: float) -> np.ndarray:
        """Which canaries take part in this round (a mask), beside the real units, whose own draw does not change.

        Towards the public each has its own coin, of the rate that the proof rests on, or is one of a sample of fixed
        size at a rate that is no larger. Where the observer sees who takes part, each does when a certain real client
        does: no oftener than the busiest, for whom the proof accounts.
        """
        if plan.scheme.cohort_seen:
            there = np.isin(np.arange(plan.clients), sampling.public_cohort(plan, t))
            return there[np.arange(self.count) % plan.clients]
        if rate == 1:
            return np.ones(self.count, bool)
        coins = stream(self.secret, t, SERVER, "canary cohort")
        if plan.sampling == Sampling.FIXED:
            chosen = coins.choice(self.count, int(self.count * rate + 1e-9), replace=False)
            return np.isin(np.arange(self.count), chosen)
        return coins.random(self.count) < rate


def enough(plan: Plan) -> None:
    """Refuse a number of canaries of which none would ever be drawn."""
    fixed = plan.unit == Unit.CLIENT and plan.sampling == Sampling.FIXED and not plan.scheme.cohort_seen
    if fixed and plan.canaries * plan.cohort_size < plan.clients:
        raise BadInput(
            f"{plan.canaries} canaries drawn at a rate of {plan.cohort_size}/{plan.clients} make less than one in a round; "
            f"ask for at least {-(-plan.clients // plan.cohort_size)}."
        )
