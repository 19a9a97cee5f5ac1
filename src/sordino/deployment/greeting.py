"""The first exchange of a run across machines: everybody says what is public about its records, and they are made to agree.

Tables agree by the names of their columns. Arrays agree by the shape and the type of an example.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence

import numpy as np

from sordino.data.dataset import GAPS, Normalise, usual
from sordino.data.schema import CLASSIFICATION, Feature, Schema
from sordino.engines.flower.engine import Patience
from sordino.engines.flower.holder import VERSION
from sordino.engines.flower.part import Facts
from sordino.engines.flower.transport import SecureChannel
from sordino.engines.flower.wire import MalformedMessage, Message
from sordino.errors import BadInput, SordinoError
from sordino.plan import Plan

log = logging.getLogger("sordino.server")


def greet(
    post: SecureChannel,
    plan: Plan,
    classes: int,
    normalise: Normalise | None,
    schema: Schema | None,
    patience: Patience,
) -> Facts:
    """The facts that everybody is told: sizes, the shape of an example, and the schema of tables."""
    hellos = _hellos(post, patience)
    try:
        sizes = tuple(hello.get("records", int) for hello in hellos)
        versions = {hello.get("version", int) for hello in hellos}
        if versions != {VERSION}:
            raise BadInput(f"the clients have versions {sorted(versions)} of the protocol: one is needed.")
        tables = {
            name: hello.get("columns", (list, int))
            for name, hello in zip(post.names, hellos)
            if "columns" in hello.head
        }
        if tables:
            schema = schema or _schema(plan, tables, classes)
            _check_columns(schema, tables)
        arrays = {name: hello for name, hello in zip(post.names, hellos) if name not in tables}
        shapes = {name: tuple(hello.get("shape", list)) for name, hello in arrays.items()}
        types = {np.dtype(hello.get("type", str)) for hello in arrays.values()}
    except (MalformedMessage, TypeError) as error:
        raise SordinoError(f"a client said what cannot be used: {error}") from None
    shape = (len(schema.inputs),) if schema is not None else next(iter(shapes.values()))
    other = next((name for name, found in shapes.items() if found != shape), None)
    if other is not None:
        raise BadInput(f"the records of {other} have the shape {shapes[other]} and {shape} is needed: make them alike.")
    if schema is not None:
        return Facts(plan.data, schema.outputs, shape, sizes, GAPS if schema.gaps else None, schema, schema.task)
    if normalise is None:
        ways = {json.dumps(None if w is None else w.to_json()) for w in map(usual, types)}
        if len(ways) != 1:
            raise BadInput(f"the clients' records are of types {', '.join(map(str, types))}; make them agree.")
        normalise = usual(types.pop())
    return Facts(plan.data, classes, shape, sizes, normalise, None, plan.task)


def _hellos(post: SecureChannel, patience: Patience) -> list[Message]:
    """Everybody must be there once."""
    limit = time.monotonic() + patience.wait
    said: dict[int, Message] = {}
    while len(said) < len(post.names):
        missing = [k for k in post.present() if k not in said]
        if missing:
            new = post.ask({k: Message("hello") for k in missing}, min(60.0, patience.deadline))
            for k, hello in new.items():
                said[k] = hello
                log.info("%s is there (%d of %d)", post.names[k], len(said), len(post.names))
        if len(said) < len(post.names):
            if time.monotonic() > limit:
                absent = ", ".join(name for k, name in enumerate(post.names) if k not in said)
                raise SordinoError(f"these clients did not come within {patience.wait:g} s: {absent}.")
            time.sleep(0.2)
    return [said[k] for k in range(len(post.names))]


def _schema(plan: Plan, tables: dict[str, list[str] | int], classes: int) -> Schema:
    """Where neither a schema nor a test table says it: the columns of the first holder, as they stand."""
    first = next((names for names in tables.values() if isinstance(names, list)), None)
    if first is None:
        count = next(iter(tables.values()))
        assert isinstance(count, int)
        first = [str(k) for k in range(count)]
    _check_words(first)
    label = plan.label or ("label" if "label" in first else first[-1])
    ignored = [name.strip() for name in (plan.ignore or "").split(",")]
    features = tuple(Feature(name) for name in first if name not in (label, plan.client_column, *ignored))
    named = any(isinstance(names, list) for names in tables.values())
    words = tuple(str(k) for k in range(classes)) if plan.task == CLASSIFICATION else ()
    return Schema(features, (label,), plan.task, words, heading=named)


def _check_columns(schema: Schema, tables: dict[str, list[str] | int]) -> None:
    """Name the holder that lacks a column."""
    wanted = [f.name for f in schema.features]
    for holder, names in tables.items():
        if isinstance(names, int):
            if names != len(wanted) + len(schema.labels):
                raise BadInput(
                    f"{holder} has {names} columns without names and {len(wanted) + len(schema.labels)} are needed."
                )
            continue
        lacking = next((name for name in wanted if name not in names), None)
        if lacking is not None and schema.heading:
            raise BadInput(
                f"{holder} has no column {lacking!r}, which the others or the schema have: add it there, or rename it."
            )


def _check_words(names: Sequence[object]) -> None:
    if not all(isinstance(name, str) for name in names) or len(names) < 2:
        raise MalformedMessage("a client's table has no usable names of columns.")
