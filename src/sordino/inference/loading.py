"""`sordino.load(RUN)`: the model of a finished run with its weights, its schema and the names of its classes.

Nothing that is read can run code: weights are safetensors, everything else is JSON and TOML. A network of the catalogue, or
one named ``module:function``, is built again; one that was handed over in Python is handed over again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from torch import nn

from sordino import record
from sordino.data.dataset import Normalise
from sordino.data.frames import Frame, from_frame
from sordino.data.ingest import read_records
from sordino.data.layout import Layout, Parts, is_parts, pack
from sordino.data.schema import CLASSIFICATION, MULTI_LABEL, REGRESSION, Schema
from sordino.data.schema_file import load_schema
from sordino.data.table import Table
from sordino.errors import BadInput
from sordino.evaluation import probabilities
from sordino.federation.checkpoint import load_weights
from sordino.inference.running import scores_of
from sordino.models import build
from sordino.models.packed import packed
from sordino.plain import Json
from sordino.plan import Plan
from sordino.schemes import prelude

Data = np.ndarray | Table | Frame | str | Path | Parts


@dataclass(frozen=True)
class Predictions:
    """One row per example: the class (or the number), and for classes how sure the model is of each."""

    task: str
    outputs: tuple[str, ...]
    labels: tuple[object, ...]  # class names; numbers; of several labels the names of those that hold
    scores: np.ndarray  # [examples, outputs]: probabilities, or numbers in the units of the table

    def rows(self) -> list[dict[str, object]]:
        """As a table: the prediction, and a column for each output."""
        made = []
        for label, scores in zip(self.labels, self.scores):
            said: dict[str, object] = {"prediction": label}
            if self.task != REGRESSION or len(self.outputs) > 1:
                said |= {name: round(float(score), 6) for name, score in zip(self.outputs, scores)}
            made.append(said)
        return made


@dataclass(frozen=True, eq=False)
class Trained:
    """The model of a finished run, and what it takes to use it."""

    module: nn.Module
    plan: Plan
    facts: Json  # data.json
    statement: Json
    schema: Schema | None
    folder: Path
    prepare: Callable[[np.ndarray], np.ndarray] | None = None  # what a prelude made of stored records

    @property
    def task(self) -> str:
        """What the model was trained for: classification, regression or multi-label."""
        return str(self.facts.get("task", CLASSIFICATION))

    @property
    def outputs(self) -> tuple[str, ...]:
        """What each output of the model stands for."""
        return tuple(self.facts["classes"])

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one example, as it is stored."""
        return tuple(self.facts["shape"])

    @property
    def layout(self) -> Layout | None:
        """Of examples of several arrays: how they are packed into rows."""
        told = self.facts.get("layout")
        return None if told is None else Layout.from_json(told)

    def inputs(self, data: Data) -> np.ndarray:
        """Model input from a file, a data frame, an array of examples, or a dictionary or tuple of arrays."""
        if is_parts(data):
            rows, layout = pack(data, "the data")  # type: ignore[arg-type]
            if layout != self.layout:
                raise BadInput("the fields of the data are not those of the training data (names, shapes and types).")
            return rows
        if isinstance(data, (str, Path)):
            records = read_records(Path(data))
            data = records if isinstance(records, Table) else records[0]
        if not isinstance(data, (np.ndarray, Table)):
            data = from_frame(cast(Frame, data))
        if isinstance(data, Table):
            if self.schema is None:
                raise BadInput(
                    f"the run in {self.folder} was trained on arrays: give an .npz file with x and y, or an array."
                )
            stored = self.schema.x(data)
        else:
            stored = self._stored(data)
        if self.prepare is not None:
            return self.prepare(stored)
        normalise = self.facts.get("normalise")
        return stored if normalise is None else Normalise.from_json(normalise)(stored)

    def _stored(self, x: np.ndarray) -> np.ndarray:
        if tuple(x.shape[1:]) != self.shape:
            raise BadInput(
                f"the examples have the shape {tuple(x.shape[1:])} and the model takes {self.shape}: make them alike."
            )
        return x.astype(np.float32) if x.dtype.kind == "f" else x

    def predict(self, data: Data) -> Predictions:
        """What the model says of each example; of a model that predicts at every position of a sequence, at the last."""
        scores = scores_of(packed(self.module, self.layout), self.inputs(data))
        raw = (scores[:, -1] if scores.ndim > 2 else scores)[:, : len(self.outputs)].astype(np.float64)
        if self.task == CLASSIFICATION:
            chances = probabilities(raw)
            return Predictions(self.task, self.outputs, tuple(self.outputs[k] for k in raw.argmax(1)), chances)
        if self.task == MULTI_LABEL:
            chances = 1 / (1 + np.exp(-raw))
            held: Sequence[object] = [" ".join(n for n, c in zip(self.outputs, row) if c > 0.5) for row in chances]
            return Predictions(self.task, self.outputs, tuple(held), chances)
        numbers = raw if self.schema is None else self.schema.scale.back(raw)
        return Predictions(self.task, self.outputs, tuple(float(row[0]) for row in numbers), numbers)


def load(run: str | Path, model: nn.Module | None = None) -> Trained:
    """The model of the run in `run`. `model`: the module, where the run was started from Python with one of its own."""
    folder = Path(run)
    if not folder.is_dir():
        raise BadInput(f"there is no run folder {str(folder)!r}; give the folder that `sordino train` wrote.")
    if not (folder / "plan.toml").is_file():
        raise BadInput(f"{folder} is not a run folder (it has no plan.toml); give the folder of a run.")
    plan, facts, statement = (
        Plan.load(folder / "plan.toml"),
        _json(folder / record.NAME),
        _json(folder / "statement.json"),
    )
    shape = tuple(facts["shape"])
    if model is None:
        seen = shape if plan.preparation is None else plan.preparation.stages(shape).shape
        model = build(plan.model, seen, len(facts["classes"]), plan.seed)
    load_weights(model, folder / "model.safetensors")
    schema = load_schema(folder / record.SCHEMA) if (folder / record.SCHEMA).is_file() else None
    prepare = None if plan.preparation is None else prelude.model_input(folder, plan, shape)
    return Trained(model.eval(), plan, facts, statement, schema, folder, prepare)


def _json(file: Path) -> Json:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(
            f"{file.parent} has no {file.name}: the run has not ended; finish it with sordino train --resume."
        ) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read ({error}); restore it.") from None
    return found
