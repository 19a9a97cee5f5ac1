"""`schema.toml`: a schema as a small file that people edit, and the first draft of one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np

from sordino.data.schema import AS_IS, CLASSIFICATION, REGRESSION, Feature, Scale, Schema, vocabulary
from sordino.data.table import Table
from sordino.errors import BadInput

MOST_VALUES = 50  # of a column of words, before it is taken for names or free text


def load_schema(path: str | Path) -> Schema:
    """Read a schema.toml."""
    try:
        return Schema.from_json(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise BadInput(f"there is no schema file {str(path)!r}: sordino data describe writes one.") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"the schema file {str(path)!r} is not valid TOML: {error}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the schema file {str(path)!r} cannot be read ({error}).") from None
    except (TypeError, AttributeError) as error:
        raise BadInput(f"the schema file {str(path)!r} cannot be used ({error}).") from None


def to_toml(schema: Schema) -> str:
    """The text of a schema.toml, which `load_schema` reads."""
    plain = schema.to_json()
    features = plain.pop("features")
    scale = plain.pop("label_scale", None)
    lines = [f"{key} = {_word(value)}" for key, value in plain.items()]
    assert isinstance(features, dict)
    for title, said in [
        ("label_scale", scale),
        *((f"features.{_word(name)}", said) for name, said in features.items()),
    ]:
        if said:
            lines += ["", f"[{title}]", *(f"{key} = {_word(value)}" for key, value in said.items())]
    return "\n".join(lines) + "\n"


def label_columns(table: Table, label: str | None) -> tuple[str, ...]:
    """The columns that are predicted: those named (with commas between), else `label`, else the last one."""
    if len(table.names) < 2:
        raise BadInput(
            f"{table.where} has {len(table.names)} columns: give at least one of features and one of labels."
        )
    if label is None:
        return ("label",) if "label" in table else (table.names[-1],)
    if label in table:
        return (label,)
    named = tuple(part.strip() for part in label.split(","))
    for name in named:
        if name not in table:
            raise BadInput(f"{table.where} has no column {name!r}: name one of {', '.join(table.names[:8])}.")
    return named


def infer(table: Table, label: str | None, client: str | None, task: str, public: bool) -> Schema:
    """The schema of tables without one: every column but label and client, as it stands.

    Words become inputs only if the table is `public`: which values there are is not read from private records.
    """
    if client is not None and client not in table and not public:
        raise BadInput(f"{table.where} has no column {client!r}: name one of {', '.join(table.names[:8])}.")
    labels = label_columns(table, label)
    features = []
    for name in table.names:
        if name in labels or name == client:
            continue
        if not table.is_text(name):
            features.append(Feature(name))
            continue
        values = vocabulary(table.words(name).tolist()) if public else ()
        if not values or len(values) > MOST_VALUES:
            at = table.first_text(name)
            assert at is not None
            raise BadInput(
                f"{table.place(at, name)} holds {table.kind_of_text(at, name)}, not a number: leave the column out "
                f"(--ignore {name if ' ' not in name else repr(name)}), or declare its values in schema.toml (sordino data describe writes one)."
            )
        features.append(Feature(name, values=values))
    return Schema(tuple(features), labels, task, client=client, heading=table.named)


def from_public(schema: Schema, table: Table) -> Schema:
    """Means and deviations of a public table for every column that stands as it is; missing cells are filled."""
    features = []
    for feature in schema.features:
        if feature.values or not feature.scale.as_is:
            features.append(feature)
            continue
        numbers = table.numbers(feature.name)
        known = numbers[~np.isnan(numbers)]
        spread = float(known.std()) if len(known) else 0.0
        scale = Scale(mean=_short(float(known.mean())), std=_short(spread)) if spread > 0 else AS_IS
        features.append(Feature(feature.name, scale, missing="fill" if len(known) < len(numbers) else feature.missing))
    scale = schema.scale
    if schema.task == REGRESSION and scale.as_is and len(schema.labels) == 1:
        target = table.numbers(schema.labels[0])
        if target.std() > 0:
            scale = Scale(mean=_short(float(target.mean())), std=_short(float(target.std())))
    classes = schema.classes
    if schema.task == CLASSIFICATION and not classes:
        classes = vocabulary(table.words(schema.labels[0]).tolist())
    return schema.replace(features=tuple(features), scale=scale, classes=classes)


def _word(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def draft(table: Table, label: str | None, client: str | None, task: str) -> str:
    """A schema.toml of a private table: names and kinds of columns, and for each what must be declared. No value of it."""
    labels = label_columns(table, label)
    plain_label = labels[0] if len(labels) == 1 else list(labels)
    lines = [
        "# What is declared here must be public: known without looking at the records.",
        f"task = {json.dumps(task)}",
    ]
    lines.append(f"label = {json.dumps(plain_label)}")
    if task == CLASSIFICATION:
        lines.append("classes = []          # declare: every class by name")
    if client is not None:
        lines.append(f"client = {json.dumps(client)}")
    if task == REGRESSION:
        lines += ["", "[label_scale]", "range = []            # declare: lowest and highest target that is possible"]
    for name in table.names:
        if name in labels or name == client:
            continue
        lines += ["", f"[features.{_word(name)}]"]
        if table.is_text(name):
            lines.append("values = []           # declare: every value that is to count; or take this column out")
        else:
            lines.append(
                "range = []            # declare: lowest and highest value that is possible; or mean and std; or as_is = true"
            )
        lines.append('missing = "refuse"    # or "fill", or "flag"')
    return "\n".join(lines) + "\n"
