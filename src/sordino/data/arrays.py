"""Arrays out of what users hold: lists, numbers, numpy arrays and torch tensors alike."""

from __future__ import annotations

import numpy as np


def as_numpy(value: object) -> np.ndarray:
    """The value as a numpy array; a tensor is taken off its graph and its device first."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.asarray(value)


def as_single(value: object) -> np.ndarray:
    """The same; wide floats become float32, which is what models train in."""
    array = as_numpy(value)
    return array.astype(np.float32) if array.dtype.kind == "f" and array.dtype != np.float32 else array
