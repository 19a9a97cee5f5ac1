"""What a preparation is: a public way to turn records into model input, and the statistics that it asks the data for.

A `Preparation` is part of a plan: plain settings, the same for every holder of data. Its `statistics` are released once,
before round 1 (the *prelude*, `schemes.prelude`), with noise that is settled together with that of the rounds. `stages`
fits it to one shape of record.

    settings   share          the part of the budget that all statistics together take (of 1/z^2, as Gaussians add up)
    stages     contributions  what each record adds to a statistic: cut to length 1 by the caller, so nothing rests on it
               decode         the statistic, from the noisy mean
               apply          model input, from a record and all that was released

To add one: a frozen dataclass here, its line in `KINDS` of this package, a test.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sordino.errors import between

Released = Sequence[np.ndarray]  # one flat vector (float64) for each statistic so far


@dataclass(frozen=True)
class Statistic:
    """One release of the prelude, as a statement names it."""

    words: str  # "the mean of ..."
    part: float = 1.0  # of the preparation's share; all parts add up to 1


@dataclass(frozen=True, eq=False)
class Products:
    """Contributions of records to a covariance: the products of each row's numbers, which are summed without being written out."""

    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


Block = np.ndarray | Products


class Stages(ABC):
    """A preparation for records of one shape."""

    shape: tuple[int, ...]  # of the model's input

    @abstractmethod
    def length(self, step: int) -> int:
        """Numbers in statistic `step`."""

    @abstractmethod
    def contributions(self, step: int, x: np.ndarray, released: Released) -> Iterator[Block]:
        """What each of one client's records (as stored) adds: blocks of rows, together one row of `length` for each record."""

    @abstractmethod
    def decode(self, step: int, mean: np.ndarray, noise: float) -> np.ndarray:
        """The statistic, from the noisy mean of the contributions; `noise` is the deviation of the noise in each entry."""

    @abstractmethod
    def apply(self, x: np.ndarray, released: Released) -> np.ndarray:
        """Model input (float32) of one client's records. Row i is a function of record i and of what was released."""


class Preparation(ABC):
    """Public settings; a frozen dataclass whose fields are plain data."""

    kind: ClassVar[str]
    share: float

    @property
    @abstractmethod
    def statistics(self) -> tuple[Statistic, ...]:
        """What is released, in order."""

    @property
    def found(self) -> str:
        """What the statistics find, in a few words."""
        parts = list(dict.fromkeys(statistic.words for statistic in self.statistics))
        return ", ".join(parts[:-1]) + (" and " if parts[1:] else "") + parts[-1]

    @abstractmethod
    def stages(self, shape: tuple[int, ...]) -> Stages:
        """For records of this shape; refuses a shape that it is not for."""

    def check_share(self) -> None:
        between(0, 1, share=self.share)

    def to_json(self) -> dict[str, object]:
        """Plain data, for a plan; settings that were not given are left out."""
        fields = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))  # type: ignore[arg-type]
        given = {
            name: list(value) if isinstance(value, tuple) else value for name, value in fields if value is not None
        }
        return {"kind": self.kind, **given}
