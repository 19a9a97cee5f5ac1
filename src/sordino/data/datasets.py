"""Data sets of other libraries, one per client: `torch.utils.data.Dataset` and Hugging Face `datasets`."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

import numpy as np

from sordino.data.check import Pair
from sordino.errors import BadInput


def pair_of(dataset: Sized, label: str, where: str) -> Pair:
    """All examples of `dataset` as arrays. Each is a pair (x, y), or a dictionary with the key `label`."""
    items: Any = dataset
    try:
        count = len(items)
    except TypeError:
        raise BadInput(f"{where} does not say how many examples it has: give one with a length.") from None
    examples = [_example(items[i], label, where) for i in range(count)]
    if not examples:
        raise BadInput(f"{where} has no examples: leave it out.")
    try:
        return np.stack([x for x, _ in examples]), np.stack([y for _, y in examples])
    except ValueError:
        raise BadInput(f"the examples of {where} differ in shape: make them alike.") from None


def _example(item: object, label: str, where: str) -> Pair:
    if isinstance(item, Mapping):
        if label not in item:
            raise BadInput(
                f"the examples of {where} have no {label!r}: name one of {', '.join(map(str, item))} as label."
            )
        others = {key: value for key, value in item.items() if key != label}
        if len(others) == 1:
            return _array(next(iter(others.values()))), _array(item[label])
        flat = [np.atleast_1d(_array(value)) for value in others.values()]
        if any(value.ndim > 1 or value.dtype.kind not in "fiub" for value in flat):
            raise BadInput(
                f"the examples of {where} have the fields {', '.join(map(str, others))}: keep one besides {label!r}, or numbers only."
            )
        return np.concatenate(flat), _array(item[label])
    if isinstance(item, (tuple, list)) and len(item) == 2:
        return _array(item[0]), _array(item[1])
    raise BadInput(f"the examples of {where} are neither pairs (x, y) nor dictionaries with a {label!r}.")


def _array(value: object) -> np.ndarray:
    """Numbers, arrays, tensors and pictures alike; wide floats as float32."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind == "f" else array
