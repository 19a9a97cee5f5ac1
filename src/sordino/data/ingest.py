"""From a user's files to arrays: one table, or a folder with a file for each client, read through one schema.

The schema is the one that was declared; else it follows from the public test set, or, where there is none, from the columns
of the first client. Which classes there are is declared, or read from the test set; where only the training labels tell it,
`names_from_labels` says so and the statement repeats it.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sordino.data.check import Pair, labeller
from sordino.data.csv_file import read_csv
from sordino.data.folder import client_files
from sordino.data.frames import read_parquet
from sordino.data.schema import CLASSIFICATION, Schema, vocabulary
from sordino.data.schema_file import infer, load_schema
from sordino.data.table import Table, is_number
from sordino.errors import BadInput

TABLES = (".csv", ".tsv", ".txt", ".data", ".parquet")
SUFFIXES = (".npz", *TABLES)
Records = Table | Pair
NO_TEST, HOLDOUT = "none", "holdout="


@dataclass(frozen=True)
class Source:
    """Where records lie, and how they are to be read. Names of columns and files as the user gave them."""

    path: str
    client_column: str | None = None
    label: str | None = None
    test: str | None = None  # NO_TEST: there is none, and that is meant; HOLDOUT: a share of the records themselves
    schema: str | None = None
    task: str | None = None  # None: what the schema says, or classification
    classes: int | None = None
    ignore: str | None = None  # columns that are left out, with commas between


@dataclass(frozen=True)
class Ingested:
    """What was read. `owners`: one name for each client, in the order of `clients`; None: one table that nobody owns."""

    clients: list[Pair]
    test: Pair | None
    owners: tuple[str, ...] | None
    schema: Schema | None
    names_from_labels: bool = False


def read_records(file: Path) -> Records:
    """One file: a table, or the arrays x and y."""
    if not file.exists():
        raise BadInput(f"there is no file {str(file)!r}: check the path.")
    if file.is_dir():
        raise BadInput(f"{file} is a folder: give one file.")
    if file.suffix == ".npz":
        return read_npz(file)
    if file.suffix == ".parquet":
        return read_parquet(file)
    if file.suffix in TABLES:
        return read_csv(file)
    raise BadInput(f"{file} is none of {', '.join(SUFFIXES)}: save it as one of these.")


def named_test(source: Source) -> Records | None:
    """The public test file that the user named."""
    return read_records(Path(str(source.test))) if is_file(source.test) else None


def is_file(test: str | None) -> bool:
    """Whether a plan's `test` names a file, and is not a share of the records or a word that there is none."""
    return test is not None and test != NO_TEST and not test.startswith(HOLDOUT)


def read_npz(file: Path) -> Pair:
    """The arrays x and y of a file, or a refusal that says what it holds instead."""
    try:
        with np.load(file, allow_pickle=False) as arrays:
            if not {"x", "y"} <= set(arrays.files):
                raise BadInput(f"{file} holds {', '.join(arrays.files) or 'nothing'}: save it with arrays x and y.")
            return arrays["x"], arrays["y"]
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{file} cannot be read as .npz: save it again with numpy.savez(x=..., y=...).") from error


def left_out(records: Sequence[Records], test: Records | None, source: Source) -> tuple[list[Records], Records | None]:
    """All of it without the columns that the user wants ignored; one that is nowhere is a slip."""
    if source.ignore is None:
        return list(records), test
    if source.schema is not None:
        raise BadInput(
            f"a schema ({source.schema}) names the columns that count: take ignore ({source.ignore}) out, and the columns there."
        )
    everything = [*records, *([] if test is None else [test])]
    tables = [each for each in everything if isinstance(each, Table)]
    wanted = [name.strip() for name in source.ignore.split(",") if name.strip()]
    for name in wanted:
        if not any(name in table for table in tables):
            have = ", ".join(tables[0].names[:8]) if tables else "no columns"
            raise BadInput(f"there is no column {name!r} to ignore: the data has {have}.")
        if name in (source.label, source.client_column):
            raise BadInput(
                f"column {name!r} is to be ignored, and it is the label or the client: take it out of ignore."
            )
    kept = [each.without(wanted) if isinstance(each, Table) else each for each in everything]
    return kept[: len(records)], None if test is None else kept[-1]


def ingest(source: Source) -> Ingested:
    """Everything that `source` names."""
    path = Path(source.path)
    owners: tuple[str, ...] | None = None
    records: Sequence[Records]
    test = named_test(source)
    if path.is_dir():
        owners, records, beside = _folder(path)
        if source.client_column is not None:
            raise BadInput(f"{path} holds one file per client: leave client_column ({source.client_column}) out.")
        if test is not None and beside is not None:
            raise BadInput(f"{path} holds a test file and another is named ({source.test}): keep one.")
        records, test = left_out(records, beside if test is None else test, source)
    else:
        (whole,), test = left_out([read_records(path)], test, source)
        if isinstance(whole, Table) and (column := _client_column(source, whole)) is not None:
            owners, records = split_by_owner(whole, column)
        elif source.client_column is not None and not isinstance(whole, Table):
            raise BadInput(f"{path} holds arrays, which have no column {source.client_column!r}: give a table.")
        else:
            records = [whole]
    return arrays_of(records, test, owners, source)


def arrays_of(
    records: Sequence[Records], test: Records | None, owners: tuple[str, ...] | None, source: Source
) -> Ingested:
    """Records of each client and of the test set, read through one schema."""
    tables = [r for r in records if isinstance(r, Table)]
    if not tables and not isinstance(test, Table):
        if source.schema is not None:
            raise BadInput(
                f"a schema ({source.schema}) describes the columns of tables, and these are arrays: leave it out."
            )
        return Ingested([r for r in records if not isinstance(r, Table)], _pair(test), owners, None)
    schema = schema_for(tables, test if isinstance(test, Table) else None, source)
    schema, from_labels = with_classes(schema, tables, test if isinstance(test, Table) else None, source.classes)
    label = labeller(owners)
    clients = [_read(schema, r, label(k) if owners is not None else "") for k, r in enumerate(records)]
    held = None if test is None else _read(schema, test, "the test set")
    return Ingested(clients, held, owners, schema, from_labels)


def schema_for(tables: Sequence[Table], test: Table | None, source: Source) -> Schema:
    """Declared, or inferred from the public test set or from the first client."""
    if source.schema is not None:
        declared = load_schema(source.schema)
        if source.label is not None and source.label not in declared.labels:
            raise BadInput(
                f"{source.schema} predicts {', '.join(declared.labels)} and label is {source.label!r}: make them agree."
            )
        if source.task not in (None, declared.task):
            raise BadInput(f"{source.schema} is for {declared.task} and task is {source.task}: make them agree.")
        return declared
    every = [*([test] if test is not None else []), *tables]
    reference = next((table for table in every if table.named), every[0])
    schema = infer(
        reference, source.label, source.client_column, source.task or CLASSIFICATION, public=reference is test
    )
    _refuse_others(schema, reference, tables)
    return schema


def with_classes(
    schema: Schema, tables: Sequence[Table], test: Table | None, classes: int | None
) -> tuple[Schema, bool]:
    """The schema with its classes, and whether private labels had to tell them."""
    if schema.task != CLASSIFICATION or schema.classes:
        if classes is not None and schema.classes and classes != len(schema.classes):
            raise BadInput(f"classes is {classes} and the schema names {len(schema.classes)}: make them agree.")
        return schema, False
    name = schema.labels[0]
    told = set() if test is None else set(schema.fitted(test).words(name).tolist())
    seen = {value for table in tables for value in schema.fitted(table).words(name).tolist()}
    if classes is not None and all(_fits(value, classes) for value in told | seen):
        return schema.replace(classes=tuple(str(k) for k in range(classes))), False
    both = vocabulary(sorted(told | seen))
    if classes is not None and len(both) > classes:
        raise BadInput(f"column {name!r} has {len(both)} different labels and classes is {classes}: make them agree.")
    if len(both) < 2:
        raise BadInput(
            f"every label in column {name!r} is the same, which leaves nothing to learn: give at least 2 classes."
        )
    if len(both) > 1000:
        raise BadInput(
            f"column {name!r} has {len(both):,} different labels: name another label, or use task regression for numbers."
        )
    if any(is_number(value) and not value.lstrip("-").isdigit() for value in both):
        mixed = not all(is_number(value) for value in both)
        what = (
            "mix words and numbers that are not whole: correct them"
            if mixed
            else "are not whole numbers: use task regression"
        )
        raise BadInput(f"the labels in column {name!r} {what}, or name another label.")
    return schema.replace(classes=both), both != vocabulary(sorted(told))


def split_by_owner(table: Table, column: str) -> tuple[tuple[str, ...], list[Table]]:
    """The rows of each owner, in the order of their names."""
    names = table.words(column)
    empty = np.flatnonzero(names == "")
    if len(empty):
        raise BadInput(f"{table.place(int(empty[0]), column)} is empty: every row needs its client.")
    owners, place = np.unique(names.astype(str), return_inverse=True)
    order = np.argsort(place, kind="stable")
    pieces = np.split(order, np.cumsum(np.bincount(place))[:-1])
    return tuple(owners.tolist()), [table.take(rows) for rows in pieces]


def _client_column(source: Source, table: Table) -> str | None:
    """Named by the user, or by the schema."""
    column = source.client_column
    if column is None and source.schema is not None:
        column = load_schema(source.schema).client
    if column is not None and column not in table:
        raise BadInput(f"{table.where} has no column {column!r}: name one of {', '.join(table.names[:8])}.")
    return column


def _folder(folder: Path) -> tuple[tuple[str, ...], list[Records], Records | None]:
    clients, test = client_files(folder)
    return (
        tuple(file.stem for file in clients),
        [read_records(file) for file in clients],
        None if test is None else read_records(test),
    )


def _read(schema: Schema, records: Records, who: str) -> Pair:
    if isinstance(records, Table):
        return schema.read(records)
    x, y = records
    if x.ndim != 2 or x.shape[1] != len(schema.inputs):
        raise BadInput(
            f"{who or 'the file'} has examples of shape {tuple(x.shape[1:])} and the tables have {len(schema.inputs)} "
            "columns of features: make them alike."
        )
    return np.asarray(x, np.float32), np.asarray(y)


def _refuse_others(schema: Schema, reference: Table, tables: Sequence[Table]) -> None:
    """Without a declared schema a column that only some have is a mistake that would pass unseen."""
    known = {*(f.name for f in schema.features), *schema.labels, schema.client}
    for table in tables:
        schema.fitted(table)
        extra = (
            next((name for name in table.names if name not in known), None) if table.named and schema.heading else None
        )
        if extra is not None:
            raise BadInput(
                f"{table.where} has a column {extra!r} and {reference.where} has none: take it out, or name the columns "
                "that count in a schema (sordino data describe writes one)."
            )


def _fits(value: str, classes: int) -> bool:
    return value == "" or (value.isdigit() and int(value) < classes)


def _pair(records: Records | None) -> Pair | None:
    assert not isinstance(records, Table)
    return records
