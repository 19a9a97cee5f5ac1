"""`data.json` in a run folder: what was trained on, in facts that may be shown, and commitments to each client's records.

A commitment is a digest of the records under a secret salt. The salt stays in `checkpoint/population.json`, which only the
owner of the folder can read: with it and the data anyone can check that these were the records; without it nothing can be
guessed. In a deployment each holder keeps its own, and the server's folder has none.
"""

from __future__ import annotations

import datetime
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sordino.data.schema_file import to_toml
from sordino.federation.binding import commitment
from sordino.files import write_atomically

if TYPE_CHECKING:
    from torch import nn

    from sordino.federation.population import Federation

NAME, SCHEMA = "data.json", "schema.toml"
FORMAT = "sordino-data-1"
PACKAGES = ("sordino", "numpy", "scipy", "torch", "dp-accounting", "cryptography", "flwr")
_MOST_CLIENTS = 10_000  # beyond so many one commitment to all of them is in checkpoint/population.json


def write(folder: Path, federation: Federation, model: nn.Module, salt: bytes) -> None:
    """Everything that is known before the first round."""
    facts = describe(federation, model)
    if federation.offsets is not None and federation.clients <= _MOST_CLIENTS:
        here = np.flatnonzero(np.diff(federation.offsets))
        facts["commitments"] = {str(k): commitment(federation, int(k), salt) for k in here}
    write_atomically(folder / NAME, json.dumps(facts, indent=2, ensure_ascii=False) + "\n", durable=True)
    if federation.schema is not None:
        write_atomically(folder / SCHEMA, to_toml(federation.schema), durable=True)


def describe(federation: Federation, model: nn.Module) -> dict[str, object]:
    """The facts that are public anyway: shapes, names of columns and classes, sizes that the proof takes to be public."""
    schema, test = federation.schema, federation.raw_test
    return {
        "format": FORMAT,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "data": federation.name,
        "task": federation.task,
        "clients": federation.clients,
        "shape": list(federation.input_shape),
        "features": None if schema is None else list(schema.inputs),
        "labels": None if schema is None else list(schema.labels),
        "classes": list(federation.class_names),
        "test_examples": None if test is None else len(test[1]),
        "held_out": None if federation.held_out is None else federation.held_out.examples,
        "layout": None if federation.layout is None else federation.layout.to_json(),
        "normalise": None if federation.normalise is None else federation.normalise.to_json(),
        "model": {"class": type(model).__name__, "parameters": sum(p.numel() for p in model.parameters())},
        "software": software(),
    }


def about_weights(federation: Federation, statement: dict[str, object]) -> dict[str, str]:
    """What `model.safetensors` says of itself, in its metadata."""
    facts = {key: statement[key] for key in ("method", "variant", "unit", "relation", "observer", "epsilon", "delta")}
    facts |= {"task": federation.task, "classes": list(federation.class_names)}
    if federation.schema is not None:
        facts["features"] = list(federation.schema.inputs)
    return {"sordino": json.dumps(facts, ensure_ascii=False)}


def software() -> dict[str, str]:
    """The versions that took part."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
