"""The schema of a table: which columns a model sees, in which order and on which scale, and what is to be predicted.

It is public. Every client, every data holder and the test set are read through the same one, so that columns are matched by
name and numbers mean the same everywhere; `sordino predict` reads new data through it. Ranges, means and values in it are
declared or come from public data, never computed from the records of a run.

    range = [0, 120]          clipped to it, and laid onto -1 to 1
    mean = 40.0, std = 12.0   standardised
    values = ["f", "m"]       one input for each value; any other value is none of them
    as_is = true              the number as it stands
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.data.table import Table, is_number
from sordino.errors import BadInput, one_of
from sordino.plain import Plain

CLASSIFICATION, REGRESSION, MULTI_LABEL = "classification", "regression", "multi-label"
TASKS = (CLASSIFICATION, REGRESSION, MULTI_LABEL)
MISSING = ("refuse", "fill", "flag")


@dataclass(frozen=True)
class Scale:
    """How a number reaches the model: exactly one of a range, a mean with its deviation, or as it is."""

    range: tuple[float, float] | None = None
    mean: float | None = None
    std: float | None = None
    as_is: bool = False

    def check(self, name: str) -> None:
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
        said: dict[str, object] = {"values": list(self.values)} if self.values else self.scale.to_json()
        return said if self.missing == "refuse" else said | {"missing": self.missing}


@dataclass(frozen=True)
class Schema:
    """Columns in the model's order, and what is predicted: `classes` by name, or numbers on `scale`."""

    features: tuple[Feature, ...]
    labels: tuple[str, ...]
    task: str = CLASSIFICATION
    classes: tuple[str, ...] = ()
    scale: Scale = AS_IS  # of a regression's target
    client: str | None = None  # the column that says whose row it is
    heading: bool = True  # False: columns have no names and are known by their place

    def __post_init__(self) -> None:
        one_of(TASKS, task=self.task)
        if not self.features:
            raise BadInput("the schema has no features: name at least one column.")
        if not self.labels or (self.task == CLASSIFICATION and len(self.labels) != 1):
            raise BadInput(f"the schema of a {self.task} names {len(self.labels)} label columns: name one.")
        names = [f.name for f in self.features]
        for name in (*self.labels, *([self.client] if self.client else [])):
            if name in names:
                raise BadInput(
                    f"column {name!r} is a label or the client and a feature too: take it out of the features."
                )
        if self.task == REGRESSION:
            self.scale.check("the label")
        if len(set(self.classes)) != len(self.classes):
            raise BadInput("the classes of the schema are listed twice: list each once.")
        if self.task == CLASSIFICATION and len(self.classes) == 1:
            raise BadInput(f"the schema has one class, {self.classes[0]!r}: at least 2 are needed.")

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(name for feature in self.features for name in feature.inputs)

    @property
    def outputs(self) -> int:
        """How many numbers a model gives."""
        return len(self.classes) if self.task == CLASSIFICATION else len(self.labels)

    @property
    def unscaled(self) -> tuple[str, ...]:
        """Columns that reach the model as they stand."""
        return tuple(f.name for f in self.features if not f.values and f.scale.as_is)

    @property
    def gaps(self) -> bool:
        """Whether missing numbers reach the model's input as NaN, to be filled there (`dataset.GAPS`)."""
        return any(f.gaps for f in self.features)

    def replace(self, **changes: Any) -> Schema:
        return dataclasses.replace(self, **changes)

    # ---- reading a table -------------------------------------------------------------------------

    def read(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """(x, y) for a model."""
        table = self.fitted(table)
        return self._x(table), self.targets(table)

    def x(self, table: Table) -> np.ndarray:
        """What the model sees; labels need not be there."""
        return self._x(self.fitted(table, labels=False))

    def _x(self, table: Table) -> np.ndarray:
        made = np.concatenate([feature.read(table) for feature in self.features], axis=1).astype(np.float32)
        wrong = np.isinf(made) if self.gaps else ~np.isfinite(made)
        if wrong.any():
            at, column = np.argwhere(wrong)[0]
            raise BadInput(
                f"{table.place(int(at), self.inputs[column])} is too large for 32 bits: scale it in schema.toml."
            )
        return made

    def targets(self, table: Table) -> np.ndarray:
        if self.task == CLASSIFICATION:
            return self._indices(table)
        columns = []
        for name in self.labels:
            numbers = table.numbers(name)
            if np.isnan(numbers).any():
                raise BadInput(
                    f"{table.place(int(np.isnan(numbers).argmax()), name)} is empty: every row needs a label."
                )
            if self.task == MULTI_LABEL and not np.isin(numbers, (0.0, 1.0)).all():
                at = int((~np.isin(numbers, (0.0, 1.0))).argmax())
                raise BadInput(f"{table.place(at, name)} is neither 0 nor 1: labels of a multi-label task are.")
            columns.append(numbers)
        made = np.stack(columns, axis=1)
        return (self.scale(made) if self.task == REGRESSION else made).astype(np.float32)

    def _indices(self, table: Table) -> np.ndarray:
        name, index = self.labels[0], {value: k for k, value in enumerate(self.classes)}
        words = table.words(name)
        made = np.array([index.get(value, -1) for value in words.tolist()], np.int64)
        wrong = np.flatnonzero(made < 0)
        if len(wrong):
            at = int(wrong[0])
            if words[at] == "":
                raise BadInput(f"{table.place(at, name)} is empty: every row needs a label.")
            named = ", ".join(self.classes[:8]) + (", ..." if len(self.classes) > 8 else "")
            raise BadInput(
                f"{table.place(at, name)} holds a label that is not declared ({named}): declare it, or correct it."
            )
        return made

    def fitted(self, table: Table, labels: bool = True) -> Table:
        """The table with every column that is asked for, or the sentence that names the one that is not there."""
        wanted = [*(f.name for f in self.features), *(self.labels if labels else ())]
        if (
            table.label is not None
            and len(self.labels) == 1
            and table.label not in wanted
            and self.labels[0] not in table
        ):
            table = table.renamed(table.label, self.labels[0])
        if not table.named and all(name in table for name in wanted):
            return table  # places are its names
        if not table.named or not self.heading:
            full = [*(f.name for f in self.features), *self.labels]
            names = full if len(table.names) == len(full) else wanted
            if len(table.names) != len(names):
                raise BadInput(
                    f"{table.where} has {len(table.names)} columns and {len(full)} are needed: give it a heading, so that columns "
                    "are matched by name."
                )
            return Table(table.where, tuple(names), table.columns, True, table.lines)
        for name in wanted:
            if name not in table:
                raise BadInput(
                    f"{table.where} has no column {name!r}{_alike(name, table.names)}: add it, or rename it."
                )
        return table

    # ---- plain data ------------------------------------------------------------------------------

    def to_json(self) -> dict[str, object]:
        made: dict[str, object] = {
            "task": self.task,
            "label": self.labels[0] if len(self.labels) == 1 else list(self.labels),
        }
        if self.classes:
            made["classes"] = list(self.classes)
        if self.client is not None:
            made["client"] = self.client
        if not self.heading:
            made["heading"] = False
        if self.task == REGRESSION:
            made["label_scale"] = self.scale.to_json()
        return made | {"features": {f.name: f.to_json() for f in self.features}}

    @classmethod
    def from_json(cls, plain: Plain) -> Schema:
        """What `to_json` or a schema.toml says; one sentence about what is not understood."""
        known = {"task", "label", "classes", "client", "heading", "label_scale", "features"}
        for key in plain:
            if key not in known:
                raise BadInput(f"a schema has no entry {key!r}; it has {', '.join(sorted(known))}.")
        if "label" not in plain or "features" not in plain:
            raise BadInput("a schema needs label (a column) and features (a table for each column).")
        label = plain["label"]
        return cls(
            features=tuple(_feature(name, said) for name, said in plain["features"].items()),
            labels=(label,) if isinstance(label, str) else tuple(label),
            task=plain.get("task", CLASSIFICATION),
            classes=tuple(_word(value) for value in plain.get("classes", ())),
            scale=_scale("the label", plain.get("label_scale", {"as_is": True})),
            client=plain.get("client"),
            heading=bool(plain.get("heading", True)),
        )


def vocabulary(words: Sequence[str]) -> tuple[str, ...]:
    """Classes in order. Whole numbers from 0 are numbered through, so that a class that nobody has keeps its place.

    >>> vocabulary(["2", "0"]), vocabulary(["7", "10"]), vocabulary(["yes", "no"])
    (('0', '1', '2'), ('7', '10'), ('no', 'yes'))
    """
    distinct = sorted(set(words) - {""})
    if all(is_number(value) for value in distinct):
        distinct = sorted(distinct, key=float)
        if (
            distinct
            and all(value.isdigit() for value in distinct)
            and distinct[0] == "0"
            and int(distinct[-1]) < 10_000
        ):
            return tuple(str(k) for k in range(int(distinct[-1]) + 1))
    return tuple(distinct)


def _feature(name: str, said: object) -> Feature:
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
        return Feature(name, values=tuple(_word(value) for value in said["values"]), missing=missing)
    return Feature(
        name, _scale(name, {k: v for k, v in said.items() if k not in ("missing", "values")}), missing=missing
    )


def _scale(name: str, said: Plain) -> Scale:
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


def _word(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)


def _alike(name: str, names: Sequence[str]) -> str:
    """A hint at a column that is only written differently."""
    plain = name.strip().lower().replace("_", " ")
    near = [other for other in names if other.strip().lower().replace("_", " ") == plain]
    return f" (it has {near[0]!r})" if near else ""


def _finite(*values: object) -> bool:
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v) for v in values)
