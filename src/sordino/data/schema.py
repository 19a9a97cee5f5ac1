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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.data.columns import AS_IS, Feature, Scale, as_word, feature_from, scale_from
from sordino.data.table import Table, is_number
from sordino.errors import BadInput, one_of
from sordino.plain import Plain

CLASSIFICATION, REGRESSION, MULTI_LABEL = "classification", "regression", "multi-label"
TASKS = (CLASSIFICATION, REGRESSION, MULTI_LABEL)


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
        """The names of a model's inputs: a column of words is one input for each word."""
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
        """The same schema with other fields, checked anew."""
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
        """What is predicted for each row: indices of classes, or numbers on the label's scale."""
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
        """The schema as a schema.toml states it."""
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
            features=tuple(feature_from(name, said) for name, said in plain["features"].items()),
            labels=(label,) if isinstance(label, str) else tuple(label),
            task=plain.get("task", CLASSIFICATION),
            classes=tuple(as_word(value) for value in plain.get("classes", ())),
            scale=scale_from("the label", plain.get("label_scale", {"as_is": True})),
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


def _alike(name: str, names: Sequence[str]) -> str:
    """A hint at a column that is only written differently."""
    plain = name.strip().lower().replace("_", " ")
    near = [other for other in names if other.strip().lower().replace("_", " ") == plain]
    return f" (it has {near[0]!r})" if near else ""
