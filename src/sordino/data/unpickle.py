"""Reading the few data sets that are published as Python pickles, without letting them run anything.

A pickle is a program. This reader admits arrays, bytes, text, numbers, lists and dictionaries, and refuses every other
name that the file asks for, before it is looked up.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from sordino.errors import BadInput


def _latin1(text: str, encoding: str = "latin1") -> bytes:
    """How Python 3 writes bytes in old pickle protocols; no other codec is let in."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"codec {encoding}")
    return text.encode("latin1")


def _from_buffer(content: bytes, kind: np.dtype, shape: tuple[int, ...], order: str = "C") -> np.ndarray:
    """How protocol 5 writes arrays."""
    return np.frombuffer(content, dtype=kind).reshape(shape, order="F" if order == "F" else "C")


_reconstruct = np.empty(0).__reduce__()[0]
_scalar = np.float64(0).__reduce__()[0]
_ALLOWED: dict[tuple[str, str], object] = {("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype}
_ALLOWED[("_codecs", "encode")] = _latin1
for _core in ("numpy.core", "numpy._core"):
    _ALLOWED[(f"{_core}.multiarray", "_reconstruct")] = _reconstruct
    _ALLOWED[(f"{_core}.multiarray", "scalar")] = _scalar
    _ALLOWED[(f"{_core}.numeric", "_frombuffer")] = _from_buffer


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        try:
            return _ALLOWED[(module, name)]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name}") from None


def plain(content: bytes, where: str) -> Any:
    """The arrays, lists and dictionaries in a pickle; text of Python 2 comes back as bytes."""
    try:
        return _Reader(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:
        raise BadInput(f"{where} holds more than arrays, lists and dictionaries: {error}.") from error


class _Part:
    """Stands for a piece of a table: keeps what it is given and does nothing with it."""

    def __init__(self, *given: object) -> None:
        self.given = given

    def __setstate__(self, state: object) -> None:
        self.given = (state,)


def _index(kind: type, fields: dict) -> dict:
    return fields


def _block(values: object, placement: object, ndim: int) -> tuple[object, object]:
    return values, placement


_TABLE: dict[tuple[str, str], object] = {
    ("pandas.core.frame", "DataFrame"): _Part,
    ("pandas.core.internals.managers", "BlockManager"): _Part,
    ("pandas.core.indexes.base", "Index"): _Part,
    ("pandas.core.indexes.range", "RangeIndex"): _Part,
    ("pandas.core.indexes.base", "_new_Index"): _index,
    ("pandas._libs.internals", "_unpickle_block"): _block,
    ("builtins", "slice"): slice,
}


class _TableReader(_Reader):
    def find_class(self, module: str, name: str) -> object:
        return _TABLE.get((module, name)) or super().find_class(module, name)


def table(content: bytes, where: str) -> dict[str, np.ndarray]:
    """The columns of a pickled pandas table, put together without pandas and without trusting the file."""
    try:
        frame = _TableReader(io.BytesIO(content)).load()
        blocks, axes = frame.given[0]["_mgr"].given
        names = [str(name) for name in axes[0]["data"]]
        columns: dict[str, np.ndarray] = {}
        for values, placement in blocks:
            rows = np.asarray(values)
            places = range(len(names))[placement] if isinstance(placement, slice) else placement
            columns.update({names[place]: rows[i] for i, place in enumerate(places)})
        return {name: columns[name] for name in names}
    except Exception as error:
        raise BadInput(f"{where} is not a plain table: {error!r}.") from error
