"""Examples of several arrays (a dictionary, a tuple) as rows of one: how they are packed, and how they come apart again.

Everything between the data and the model (drawing, batching, per-example gradients) knows one array. A model that takes a
dictionary or a tuple, as those of Hugging Face do, is wrapped (`models.packed`) and takes the packed rows apart itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sordino.data.arrays import as_numpy
from sordino.errors import BadInput
from sordino.plain import Json

_EXACT = 2**24  # whole numbers up to here are the same in float32


@dataclass(frozen=True)
class Field:
    """One array of an example."""

    name: str  # of a tuple: its place
    shape: tuple[int, ...]
    whole: bool  # whole numbers: tokens, masks

    @property
    def size(self) -> int:
        """How many numbers of a row this array takes."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The fields of a packed row, in order. `named`: the model takes them by name."""

    fields: tuple[Field, ...]
    named: bool

    @property
    def tokens(self) -> bool:
        """Whether every array holds whole numbers."""
        return all(field.whole for field in self.fields)

    def to_json(self) -> Json:
        """The layout as plain data, for a run's own record."""
        fields = [{"name": f.name, "shape": list(f.shape), "whole": f.whole} for f in self.fields]
        return {"named": self.named, "fields": fields}

    @classmethod
    def from_json(cls, plain: Json) -> Layout:
        """The layout that `to_json` described."""
        fields = (Field(str(f["name"]), tuple(f["shape"]), bool(f["whole"])) for f in plain["fields"])
        return cls(tuple(fields), bool(plain["named"]))


Parts = Mapping[str, object] | Sequence[object]
Examples = ArrayLike | Parts  # of one client: an array, or several by name or by place


def is_parts(x: object) -> bool:
    """Whether x is several arrays: a dictionary of them, or a tuple."""
    return isinstance(x, Mapping) or (isinstance(x, tuple) and len(x) > 0 and all(hasattr(part, "shape") for part in x))


def pack(x: Parts, who: str) -> tuple[np.ndarray, Layout]:
    """[examples, all numbers of one], and how to take it apart. Integers alone stay integers; beside floats they are floats."""
    named = isinstance(x, Mapping)
    pairs = x.items() if isinstance(x, Mapping) else ((str(k), part) for k, part in enumerate(x))
    arrays = {str(name): as_numpy(part) for name, part in pairs}
    if not arrays:
        raise BadInput(f"the examples of {who} have no fields: give at least one.")
    lengths = {len(array) if array.ndim else -1 for array in arrays.values()}
    if len(lengths) != 1 or -1 in lengths:
        raise BadInput(f"the fields of {who} ({', '.join(arrays)}) have different lengths: give one entry per example.")
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub":
            raise BadInput(f"the field {name!r} of {who} is of type {array.dtype}: turn it into numbers first.")
    fields = tuple(Field(name, array.shape[1:], array.dtype.kind in "iub") for name, array in arrays.items())
    layout = Layout(fields, named)
    kind = np.int64 if layout.tokens else np.float32
    for field, array in zip(fields, arrays.values()):
        if kind == np.float32 and field.whole and array.size and int(np.abs(array).max()) >= _EXACT:
            raise BadInput(
                f"the field {field.name!r} of {who} has numbers of {_EXACT:,} and more beside floats: number them anew."
            )
    return np.concatenate([a.reshape(len(a), -1).astype(kind) for a in arrays.values()], axis=1), layout
