"""Tables to fixed features: columns brought to one scale, and beside them cosines of random directions (Rahimi and Recht 2007).

A record is standardised (`standard`; not what a schema has scaled), goes through asinh, and becomes a row: its columns, and cosines of public
directions drawn from a seed. Some directions mix all columns, some turn with one column or two only: what tells classes apart often depends on few, and a
cosine of one column is a step towards any function of it. Columns and cosines take half of a row's square length each, about. Rows then go the way
of those of signals (`rows`): unit length, a mean that is released, directions that are flattened, a constant for the bias.

The head over them is linear and starts at zero. Its noise moves every score alike, however many features there are, so that they may be many; cosines
that are trained must be few (docs/regret.md has the figures).

What a record contributes must follow from that record alone, to the last bit, or neighbours would differ in more than one contribution. A library's product
of matrices promises no such thing. So columns and directions are whole multiples of small steps: their products and sums fit into a double, and come
out exact in any order. Cosines are rounded too, so that machines whose libraries differ in the last bit agree.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sordino.errors import BadInput, positive, whole
from sordino.preparation import rows
from sordino.preparation.base import Block, Preparation, Products, Released, Stages, Statistic
from sordino.preparation.standard import Standard
from sordino.privacy import products

_SOME = products.MOST  # records at a time
MOST_COSINES = 10_000
# Columns lie within `FARTHEST` (the asinh of the largest number in single precision is 89.4), directions within 2^18 of their own steps: products of
# the two have at most 2^41 steps, and sums over up to 2,048 columns are exact. More columns take coarser directions, so that theirs are too.
COLUMN_STEP, COSINE_STEP, FARTHEST = 2.0**-16, 2.0**-20, 90.0
DIRECTION_BITS, SUM_BITS = 18, 29  # of a direction, and of a direction times the number of columns


@dataclass(frozen=True)
class Fourier(Preparation):
    """`dense`, `singles` and `pairs`: how many cosines mix all columns, turn with one, or with two.

    `scaling` is the part of the share that finds the scale of columns (0: they are on one scale), and `covariance` the part of all covariances
    together; the rest finds the mean. `columns`, `low`, `high` and `cut` are those of `standard`.
    """

    share: float = 0.3
    dense: int = 80
    singles: int = 60
    pairs: int = 60
    frequency: float = 1.0
    """By how many radians a record of usual size turns a cosine."""
    scaling: float = 0.2
    covariances: int = 0
    covariance: float = 0.0
    bias: float = 0.3
    columns: tuple[int, ...] | None = None
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    cut: float = 5.0
    seed: int = 0
    digest: str | None = None

    kind = "fourier"

    def __post_init__(self) -> None:
        self.check_share()
        positive(frequency=self.frequency, bias=self.bias)
        whole(0, dense=self.dense, singles=self.singles, pairs=self.pairs, covariances=self.covariances, seed=self.seed)
        if not 1 <= self.cosines <= MOST_COSINES:
            raise BadInput(
                f"dense, singles and pairs are {self.cosines} cosines together; use between 1 and {MOST_COSINES:,}."
            )
        for name in ("scaling", "covariance"):
            if not 0 <= getattr(self, name) < 1:
                raise BadInput(f"{name} must be 0 or a part of the share below 1, not {getattr(self, name)!r}.")
        if bool(self.covariances) != bool(self.covariance):
            raise BadInput(
                f"{self.covariances} covariances take the part {self.covariance!r} of the share; give both, or neither."
            )
        if self.mean <= 0:
            raise BadInput(
                f"scaling {self.scaling!r} and covariance {self.covariance!r} leave nothing of the share for the mean; together they must stay below 1."
            )
        if not self.scaling and not (self.columns is self.low is self.high is None):
            raise BadInput("columns, low and high say what to scale, and scaling is 0; give it a part of the share.")
        for name, value in (
            ("columns", self.standard.columns),
            ("low", self.standard.low),
            ("high", self.standard.high),
        ):
            object.__setattr__(self, name, value)

    @property
    def standard(self) -> Standard:
        """What brings columns to one scale."""
        return Standard(self.share, self.columns, self.low, self.high, self.cut)

    @property
    def cosines(self) -> int:
        return self.dense + self.singles + self.pairs

    @property
    def mean(self) -> float:
        """The part of the share that finds the mean."""
        return 1 - self.scaling - self.covariance

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        scale = self.standard.statistics if self.scaling else ()
        again = "the covariance of columns and cosines"
        return (
            *(Statistic(one.words, one.part * self.scaling) for one in scale),
            Statistic("the mean of columns and cosines of all records", self.mean),
            *(Statistic(again, self.covariance / self.covariances) for _ in range(self.covariances)),
        )

    def stages(self, shape: tuple[int, ...]) -> Stages:
        if len(shape) != 1:
            raise BadInput(
                f"preparation fourier is for tables, whose records are rows of numbers, not of shape {tuple(shape)}."
            )
        return _Rows(self, shape[0])

    def pinned(self, shape: tuple[int, ...]) -> Fourier:
        """The same with the digest of the directions that are drawn here."""
        return replace(self, digest=directions_digest(*directions(self, shape[0])))


class _Rows(Stages):
    """Statistics are those of scaling, then the mean, then covariances."""

    def __init__(self, settings: Fourier, columns: int) -> None:
        self.settings, self.columns = settings, columns
        self.scale = settings.standard.stages((columns,)) if settings.scaling else None
        self.first = len(settings.standard.statistics) if settings.scaling else 0  # the step of the mean
        self.numbers = columns + settings.cosines
        self.shape = (rows.width(self.numbers),)

    @cached_property
    def drawn(self) -> tuple[np.ndarray, np.ndarray]:
        """How cosines turn, and their phases, when they are first asked for."""
        drawn, told = directions(self.settings, self.columns), self.settings.digest
        if told is not None and directions_digest(*drawn) != told:
            raise BadInput(
                f"the directions drawn here have the digest {directions_digest(*drawn)}, and the plan says {told}: this is another "
                "version of numpy or of sordino than the one that made the plan; install that one."
            )
        return drawn

    def length(self, step: int) -> int:
        if self.scale is not None and step < self.first:
            return self.scale.length(step)
        return rows.length(self.numbers, step > self.first)

    def contributions(self, step: int, x: np.ndarray, released: Released) -> Iterator[Block]:
        if self.scale is not None and step < self.first:
            yield from self.scale.contributions(step, x, released)
            return
        for start in range(0, len(x), _SOME):
            found = self._rows(x[start : start + _SOME], released)
            yield found if step == self.first else Products(rows.finished(found, released[self.first :]))

    def decode(self, step: int, mean: np.ndarray, noise: float) -> np.ndarray:
        if self.scale is not None and step < self.first:
            return self.scale.decode(step, mean, noise)
        return rows.decode(mean, noise, self.numbers, step > self.first)

    def apply(self, x: np.ndarray, released: Released) -> np.ndarray:
        blocks = (
            (start, rows.finished(self._rows(x[start : start + _SOME], released), released[self.first :]))
            for start in range(0, len(x), _SOME)
        )
        return rows.with_bias(blocks, len(x), self.numbers, self.settings.bias)

    def _rows(self, x: np.ndarray, released: Released) -> np.ndarray:
        """Columns and cosines of some records, of unit length, in double precision. Each row follows from its record alone, to the last bit."""
        turns, phases = self.drawn
        scaled = np.asarray(x, np.float64) if self.scale is None else self.scale.apply(x, released[: self.first])
        finite = np.nan_to_num(scaled.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        seen = on_grid(np.clip(np.arcsinh(finite), -FARTHEST, FARTHEST), COLUMN_STEP)
        waves = on_grid(np.cos(seen @ turns + phases), COSINE_STEP) * math.sqrt(2 / self.settings.cosines)
        return rows.unit(np.concatenate([seen / math.sqrt(self.columns), waves], axis=1))


def on_grid(numbers: np.ndarray, step: float) -> np.ndarray:
    """Rounded to whole multiples of a step."""
    return np.asarray(np.rint(numbers / step) * step)


def directions(settings: Fourier, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """How each cosine turns with each column [columns, cosines], and its phase. Columns of deviation 1 turn it by `frequency` radians, whichever it sees.

    Both are whole multiples of a power of two.
    """
    drawn = np.random.Generator(np.random.PCG64(settings.seed))
    turns = drawn.standard_normal((columns, settings.cosines))
    phases = drawn.uniform(0, 2 * math.pi, settings.cosines)
    seen = np.ones((columns, settings.cosines))
    few = [1] * settings.singles + [min(2, columns)] * settings.pairs
    for k, count in enumerate(few, start=settings.dense):
        seen[:, k] = 0
        seen[drawn.choice(columns, count, replace=False), k] = 1
    turns = settings.frequency * turns * seen / np.sqrt(seen.sum(axis=0))
    bits = min(DIRECTION_BITS, SUM_BITS - math.ceil(math.log2(columns)))
    step = 2.0 ** (math.ceil(math.log2(float(np.abs(turns).max()))) - bits)
    return on_grid(turns, step), on_grid(phases, COLUMN_STEP)


def directions_digest(turns: np.ndarray, phases: np.ndarray) -> str:
    """Names directions: equal digests, equal cosines."""
    found = hashlib.blake2b(repr(turns.shape).encode(), digest_size=16, person=b"sordino.fourier")
    for array in (turns, phases):
        found.update(np.ascontiguousarray(array, "<f8").tobytes())
    return found.hexdigest()
