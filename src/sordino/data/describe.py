"""What `sordino data check` sees in a user's files, and the schema that `sordino data describe` writes.

The first is for the holder of the records: it counts, and shows no cell. The second is public, so of private
records it holds the names and kinds of columns alone; scales and values are left open, to be declared, or come from a public
test file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sordino.data.check import checked, labeller
from sordino.data.folder import client_files
from sordino.data.ingest import (
    Records,
    Source,
    left_out,
    named_test,
    read_records,
    schema_for,
    split_by_owner,
    with_classes,
)
from sordino.data.schema import CLASSIFICATION, Schema
from sordino.data.schema_file import draft, from_public, infer, to_toml
from sordino.data.table import Table
from sordino.errors import BadInput

WIDE = 10.0  # means or deviations of columns that differ by more want a scale


@dataclass(frozen=True)
class Seen:
    """What a look at the files found. `problems` keep a run from starting; `advice` does not."""

    clients: tuple[tuple[str, int], ...]  # name and rows of each
    columns: tuple[dict[str, object], ...]  # name, kind, missing cells
    label: str
    classes: tuple[str, ...]
    test: int | None
    problems: tuple[str, ...]
    advice: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """What `sordino data check --json` prints."""
        return {
            "clients": {name: rows for name, rows in self.clients},
            "columns": list(self.columns),
            "label": self.label,
            "classes": list(self.classes),
            "test": self.test,
            "problems": list(self.problems),
            "advice": list(self.advice),
        }

    def text(self) -> str:
        """What a terminal shows: clients, columns, classes and problems."""
        rows = [count for _, count in self.clients]
        each = f"{min(rows):,} to {max(rows):,} examples each" if rows else ""
        lines = [f"Clients    {len(rows):,}: {each}, {sum(rows):,} in all"]
        for column in self.columns:
            missing = column["missing"]
            lines.append(
                f"Column     {column['name']}: {column['kind']}" + (f", {missing:,} missing" if missing else "")
            )
        if self.label:
            named = ", ".join(self.classes[:8]) + (", ..." if len(self.classes) > 8 else "")
            lines.append(
                f"Label      {self.label}" + (f": {len(self.classes)} classes ({named})" if self.classes else "")
            )
        lines.append(
            "Test       " + (f"{self.test:,} examples" if self.test is not None else "none: accuracy is not measured")
        )
        lines += [f"Advice     {sentence}" for sentence in self.advice]
        lines += [f"Problem    {sentence}" for sentence in self.problems]
        return "\n".join(lines)


def look(source: Source) -> Seen:
    """Everything that is wrong, and not the first thing only."""
    problems: list[str] = []
    owners, records, test = _read(source, problems)
    tables = [r for r in records if isinstance(r, Table)]
    schema = _schema(tables, test if isinstance(test, Table) else None, source, problems)
    label = labeller(owners) if owners else (lambda k: "the file")
    for k, each in enumerate([*records, *([test] if test is not None else [])]):
        who = "the test set" if k == len(records) else label(k)
        _try(each, schema, source, who, problems)
    names = owners or tuple("all" for _ in records)
    return Seen(
        clients=tuple((name, _rows(r)) for name, r in zip(names, records)),
        columns=_columns(tables, schema),
        label="" if schema is None else ", ".join(schema.labels),
        classes=() if schema is None else schema.classes,
        test=None if test is None else _rows(test),
        problems=tuple(dict.fromkeys(problems)),
        advice=_advice(schema, test, source, owners),
    )


def describe(source: Source) -> str:
    """The text of a schema.toml for these files."""
    test = named_test(source)
    task = source.task or CLASSIFICATION
    if test is not None and source.ignore is not None:
        test = left_out([read_records(Path(source.path))] if Path(source.path).is_file() else [], test, source)[1]
    if isinstance(test, Table):
        known = from_public(infer(test, source.label, source.client_column, task, public=True), test)
        return "# Scales, values and classes are those of the public test file.\n" + to_toml(known)
    problems: list[str] = []
    _, records, beside = _read(source, problems)
    first = next((r for r in records if isinstance(r, Table)), None)
    if first is None:
        raise BadInput(
            problems[0] if problems else f"{source.path} holds arrays: a schema describes the columns of tables."
        )
    if isinstance(beside, Table):
        known = from_public(infer(beside, source.label, source.client_column, task, public=True), beside)
        return "# Scales, values and classes are those of the public test file.\n" + to_toml(known)
    return draft(first, source.label, source.client_column, task)


def unscaled(schema: Schema | None, x: np.ndarray | None) -> str | None:
    """The warning that columns are on unlike scales. `x` is public test data; private records are not looked at."""
    remedy = (
        "declare them in a schema (sordino data describe writes one) and give it with --schema, or have them scaled with noise, "
        "out of the same budget (--scale private)."
    )
    if schema is not None and not schema.unscaled:
        return None
    if x is None and schema is not None:
        return f"{len(schema.unscaled)} columns reach the model as they stand; if their scales differ, it learns little: {remedy}"
    if x is None or x.ndim != 2 or x.dtype.kind != "f":
        return None  # pictures, series and tokens have scales of their own
    names = schema.inputs if schema is not None else [f"column {k}" for k in range(x.shape[1])]
    sizes = np.sqrt(np.square(np.nan_to_num(x.astype(np.float64))).mean(0))
    own = sizes if schema is None else np.array([sizes[names.index(name)] for name in schema.unscaled])
    largest, typical = float(own.max()), float(np.median(sizes[sizes > 0])) if (sizes > 0).any() else 0.0
    if largest <= WIDE and largest <= WIDE * max(typical, 0.1):
        return None
    name = names[int(own.argmax())] if schema is None else schema.unscaled[int(own.argmax())]
    return (
        f"columns are on unlike scales ({name} is about {largest:.3g} on the test data, others {typical:.3g}), so the model "
        f"will learn little: {remedy}"
    )


def _read(source: Source, problems: list[str]) -> tuple[tuple[str, ...] | None, list[Records], Records | None]:
    path = Path(source.path)
    if not path.exists():
        raise BadInput(f"there is no file or folder {source.path!r}: check the path.")
    test = named_test(source)
    if not path.is_dir():
        (whole,), test = left_out([read_records(path)], test, source)
        if source.client_column is not None and isinstance(whole, Table):
            if source.client_column not in whole:
                raise BadInput(
                    f"{path} has no column {source.client_column!r}: name one of {', '.join(whole.names[:8])}."
                )
            owners, tables = split_by_owner(whole, source.client_column)
            return owners, list(tables), test
        return None, [whole], test
    files, beside = client_files(path)
    found: list[tuple[str, Records]] = []
    for file in files:
        try:
            found.append((file.stem, read_records(file)))
        except BadInput as wrong:
            problems.append(str(wrong))
    if beside is not None and test is None:
        test = read_records(beside)
    kept, test = left_out([records for _, records in found], test, source)
    return tuple(name for name, _ in found), kept, test


def _schema(tables: Sequence[Table], test: Table | None, source: Source, problems: list[str]) -> Schema | None:
    if not tables and test is None:
        return None
    try:
        schema = schema_for(tables, test, source)
        return with_classes(schema, tables, test, source.classes)[0]
    except BadInput as wrong:
        problems.append(str(wrong))
        return None


def _try(records: Records, schema: Schema | None, source: Source, who: str, problems: list[str]) -> None:
    try:
        if isinstance(records, Table):
            if schema is not None:
                schema.read(records)
        else:
            checked(*records, source.classes, who, source.task or CLASSIFICATION)
    except BadInput as wrong:
        problems.append(str(wrong))


def _columns(tables: Sequence[Table], schema: Schema | None) -> tuple[dict[str, object], ...]:
    """Every column that any of the tables has, in the order in which they are met."""
    names = list(dict.fromkeys(name for table in tables for name in table.names))
    found = []
    known = None if schema is None else {*(f.name for f in schema.features), *schema.labels, schema.client}
    for name in names:
        having = [table for table in tables if name in table]
        text = any(table.is_text(name) for table in having)
        missing = sum(int((t.words(name) == "").sum()) for t in having)
        used = known is None or name in known
        kind = ("text" if text else "numbers") + ("" if used else ", not used")
        kind += f", in {len(having)} of {len(tables)} clients only" if len(having) < len(tables) else ""
        found.append({"name": name, "kind": kind, "missing": missing})
    return tuple(found)


def _advice(
    schema: Schema | None, test: Records | None, source: Source, owners: tuple[str, ...] | None
) -> tuple[str, ...]:
    said = []
    if owners is None:
        said.append("no column says whose a row is: rows are dealt out to --clients; name it with --client-column.")
    try:
        if schema is not None:  # gaps are told elsewhere
            filled = tuple(replace(f, missing="fill") if f.missing == "refuse" else f for f in schema.features)
            schema = schema.replace(features=filled)
        known = schema.x(test) if schema is not None and isinstance(test, Table) else None
        scale = unscaled(schema, known)
    except BadInput:
        scale = None
    return (*said, *([scale] if scale else []))


def _rows(records: Records) -> int:
    return len(records) if isinstance(records, Table) else len(records[1])
