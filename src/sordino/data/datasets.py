"""Data sets of other libraries, one per client: `torch.utils.data.Dataset` and Hugging Face `datasets`.

An example is a pair (x, y), or a dictionary in which one key is the label. If the other fields are single numbers they are
the columns of a table; if one of them is an array (token ids, masks, pictures) the model takes them by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sordino.data.arrays import as_single
from sordino.errors import BadInput

Fields = dict[str, np.ndarray]


def pair_of(dataset: Sized, label: str, where: str) -> tuple[ArrayLike | Fields, np.ndarray]:
    """All examples of `dataset` as arrays."""
    items: Any = dataset
    try:
        count = len(items)
    except TypeError:
        raise BadInput(f"{where} does not say how many examples it has: give one with a length.") from None
    if isinstance(items, Mapping):
        raise BadInput(f"{where} is a dictionary of data sets ({', '.join(map(str, items))}): give one of them.")
    examples = [_example(items[i], label, where) for i in range(count)]
    if not examples:
        raise BadInput(f"{where} has no examples: leave it out.")
    names = list(examples[0][0])
    for fields, _ in examples:
        if list(fields) != names:
            raise BadInput(f"the examples of {where} do not all have the fields {', '.join(names)}: make them alike.")
    try:
        arrays = {name: np.stack([fields[name] for fields, _ in examples]) for name in names}
        y = np.stack([y for _, y in examples])
    except ValueError:
        raise BadInput(f"the examples of {where} differ in shape: pad or cut them to one length.") from None
    return _joined(arrays, where), y


def declared_classes(datasets: Sequence[object], label: str) -> int | None:
    """How many classes Hugging Face's `ClassLabel` declares; None where nothing is declared."""
    found = getattr(datasets[0], "features", None) if datasets else None
    count = getattr(found.get(label), "num_classes", None) if isinstance(found, Mapping) else None
    return count if isinstance(count, int) else None


def _example(item: object, label: str, where: str) -> tuple[Fields, np.ndarray]:
    if isinstance(item, Mapping):
        if label not in item:
            raise BadInput(
                f"the examples of {where} have no {label!r}: name one of {', '.join(map(str, item))} as label."
            )
        others = {str(key): _own(value) for key, value in item.items() if key != label}
        for name, value in others.items():
            if value.dtype.kind not in "fiub":
                raise BadInput(
                    f"the field {name!r} of {where} is no number: turn it into numbers (tokens) first, or take it out."
                )
        return others, _own(item[label])
    if isinstance(item, (tuple, list)) and len(item) == 2:
        return {"x": _own(item[0])}, _own(item[1])
    raise BadInput(f"the examples of {where} are neither pairs (x, y) nor dictionaries with a {label!r}.")


def _joined(arrays: Fields, where: str) -> np.ndarray | Fields:
    """One array where there is one field, or columns of single numbers; else the fields by name."""
    if not arrays:
        raise BadInput(f"the examples of {where} have nothing besides their label: give at least one field.")
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    if all(array.ndim == 1 for array in arrays.values()):
        columns = np.stack(list(arrays.values()), axis=1)
        return columns if columns.dtype.kind == "f" else columns.astype(np.float32)
    return arrays


def _own(value: object) -> np.ndarray:
    """A copy: a data set may fill the same buffer for one example after the other."""
    return np.array(as_single(value))
