"""One column of a table as a model sees it: its scale, its values, and what is done where it is empty."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sordino.data.table import Table
from sordino.errors import BadInput, one_of
from sordino.plain import Plain

MISSING = ("refuse", "fill", "flag")


@dataclass(frozen=True)
class Scale:
    """How a number reaches the model: exactly one of a range, a mean with its deviation, or as it is."""

    range: tuple[float, float] | None = None
    mean: float | None = None
    std: float | None = None
    as_is: bool = False

    def check(self, name: str) -> None:
        """Refuse a scale that is given in no way, or in two."""
        ways = [self.range is not None, self.mean is not None or self.std is not None, self.as_is]
        if sum(ways) != 1:
            raise BadInput(
                f"the schema must say one of range, mean with std, or as_is = true for {name!r}; "
                "declare what is publicly known of it."
            )
        if self.range is not None and not (_finite(*self.range) and self.range[0] < self.range[1]):
            raise BadInput(
                f"the range of {name!r} must be two finite numbers, low before high, not {list(self.range)}."
            )
        if ways[1] and not (_finite(self.mean, self.std) and self.std is not None and self.std > 0):
            raise BadInput(f"{name!r} needs a mean and an std above 0, not {self.mean!r} and {self.std!r}.")

    def __call__(self, values: np.ndarray) -> np.ndarray:
        if self.range is not None:
            low, high = self.range
            return (np.clip(values, low, high) - (low + high) / 2) / ((high - low) / 2)
        if self.mean is not None and self.std is not None:
            return (values - self.mean) / self.std
        return values

    def back(self, values: np.ndarray) -> np.ndarray:
        """From the model's numbers to those of the table."""
        if self.range is not None:
            low, high = self.range
            return values * ((high - low) / 2) + (low + high) / 2
        if self.mean is not None and self.std is not None:
            return values * self.std + self.mean
        return values

    def to_json(self) -> dict[str, object]:
        """The scale as a schema file states it."""
        if self.range is not None:
            return {"range": list(self.range)}
        return {"as_is": True} if self.as_is else {"mean": self.mean, "std": self.std}


AS_IS = Scale(as_is=True)


@dataclass(frozen=True)
class Feature:
    """One column that the model sees."""

    name: str
    scale: Scale = AS_IS
    values: tuple[str, ...] = ()  # of a column of words; the scale says nothing then
    # fill: with the middle of the scale; where the scale is private, with the mean that a prelude finds; as it is, with 0.
    # flag: that, and an input that says so.
    missing: str = "refuse"

    def __post_init__(self) -> None:
        one_of(MISSING, **{f"missing of {self.name!r}": self.missing})
        if not self.values:
            self.scale.check(self.name)
        elif len(set(self.values)) != len(self.values):
            raise BadInput(f"the values of {self.name!r} are listed twice: list each once.")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the model's inputs that come of this column."""
        own = tuple(f"{self.name}={value}" for value in self.values) or (self.name,)
        return (*own, f"{self.name} is missing") if self.missing == "flag" else own

    @property
    def gaps(self) -> bool:
        """Whether a missing number stays NaN until the column is scaled: only then it is known what the middle is."""
        return not self.values and self.scale.as_is and self.missing != "refuse"

    def read(self, table: Table) -> np.ndarray:
        """[rows, inputs] of this column."""
        if self.values:
            words = table.words(self.name)
            gone = words == ""
            made = np.stack([words == value for value in self.values], axis=1).astype(np.float64)
        else:
            numbers = table.numbers(self.name)
            gone = np.isnan(numbers)
            hole = np.nan if self.gaps else 0.0
            made = np.where(gone, hole, self.scale(np.where(gone, 0.0, numbers)))[:, None]
        if self.missing == "refuse" and gone.any():
            raise BadInput(
                f"{table.place(int(np.flatnonzero(gone)[0]), self.name)} is empty: fill it in, leave the row out, or say "
                'missing = "fill" for this column in schema.toml.'
            )
        return np.concatenate([made, gone[:, None]], axis=1) if self.missing == "flag" else made

    def to_json(self) -> dict[str, object]:
        """The column as a schema file states it."""
        said: dict[str, object] = {"values": list(self.values)} if self.values else self.scale.to_json()
        return said if self.missing == "refuse" else said | {"missing": self.missing}


def feature_from(name: str, said: object) -> Feature:
    """What a schema says of a column."""
    if not isinstance(said, Mapping):
        raise BadInput(f"the schema says {said!r} of {name!r}: write a table, such as range = [0, 1].")
    for key in said:
        if key not in ("range", "mean", "std", "as_is", "values", "missing"):
            raise BadInput(
                f"the schema says {key!r} of {name!r}; it may say range, mean, std, as_is, values or missing."
            )
    missing = said.get("missing", "refuse")
    if "values" in said and not said["values"]:
        raise BadInput(f"the schema does not say the values of {name!r} yet: list them, or take the column out.")
    if "values" in said:
        return Feature(name, values=tuple(as_word(value) for value in said["values"]), missing=missing)
    return Feature(
        name, scale_from(name, {k: v for k, v in said.items() if k not in ("missing", "values")}), missing=missing
    )


def scale_from(name: str, said: Plain) -> Scale:
    """What a schema says of a number."""
    span = said.get("range")
    if span is not None and (not isinstance(span, (list, tuple)) or len(span) != 2):
        raise BadInput(
            f"the schema does not say the range of {name!r} yet: declare range = [low, high], mean and std, or as_is = true."
        )
    made = Scale(
        None if span is None else (span[0], span[1]), said.get("mean"), said.get("std"), bool(said.get("as_is", False))
    )
    made.check(name)
    return made


def as_word(value: object) -> str:
    """A value as tables write it: whole numbers without a point."""
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)


def _finite(*values: object) -> bool:
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v) for v in values)
