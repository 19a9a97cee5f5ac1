"""What must hold of data before anything is trained on it; every refusal is one sentence that names the client."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from sordino.data.arrays import as_single
from sordino.data.dataset import NO_LABEL, usual
from sordino.data.schema import CLASSIFICATION, MULTI_LABEL
from sordino.errors import BadInput

Pair = tuple[np.ndarray, np.ndarray]


def checked(
    x: ArrayLike, y: ArrayLike, classes: int | None, who: str, task: str = CLASSIFICATION, gaps: bool = False
) -> Pair:
    """One client's arrays, or the sentence that says what is wrong with them. `gaps`: numbers of x may be missing (NaN).

    A class is a whole number; of a sequence an example may have one at each of several positions, some of them `NO_LABEL`.

    >>> checked([[1.0]], [7], 5, "client 3")
    Traceback (most recent call last):
    sordino.errors.BadInput: client 3 has the label 7, out of range for 5 classes (0 to 4).
    """
    x, y = as_single(x), as_single(y)
    if y.size == 0:
        raise BadInput(f"{who} has no examples: leave it out, or ask for fewer clients.")
    if task == CLASSIFICATION and (y.ndim not in (1, 2) or y.shape[1:] == (1,)):
        raise BadInput(
            f"the labels of {who} have shape {y.shape}: give one whole number per example, or one for each of its positions."
        )
    if x.ndim == 0 or len(x) != len(y):
        raise BadInput(f"{who} has {len(x) if x.ndim else 1} examples but {len(y)} labels: give one label per example.")
    if x.dtype.kind not in "fiub":
        raise BadInput(f"the examples of {who} are of type {x.dtype}: turn them into numbers first.")
    if x.dtype.kind == "f" and not gaps and not _all_finite(x):
        raise BadInput(f"{who} has values that are NaN or infinite: fill them in or leave those examples out.")
    return x, _labels(y, classes, who) if task == CLASSIFICATION else _targets(y, classes, who, task)


def labeller(ids: Sequence[str] | None) -> Callable[[int], str]:
    """How clients are named in sentences: by number, and by natural id if there is one."""
    return lambda k: f"client {k}" if ids is None else f"client {k} ({ids[k]})"


def same_shape(arrays: list[np.ndarray], label: Callable[[int], str]) -> None:
    """Refuse clients whose examples differ in shape."""
    first = arrays[0].shape[1:]
    for k, x in enumerate(arrays):
        here = x.shape[1:]
        if here != first:
            raise BadInput(f"{label(k)} has examples of shape {here} but {label(0)} of {first}: make them alike.")


def same_labels(arrays: list[np.ndarray], name: Callable[[int], str]) -> None:
    """Refuse labels of which some are one to an example and others several."""
    first = arrays[0].shape[1:]
    for k, y in enumerate(arrays):
        if y.shape[1:] != first:
            raise BadInput(
                f"the labels of {name(k)} have shape {y.shape[1:]} for each example and those of {name(0)} {first}: make them alike."
            )


def alike(test: np.ndarray, train: np.ndarray) -> None:
    """Refuse a test set that the same model could not read."""
    if test.shape[1:] != train.shape[1:]:
        raise BadInput(f"test examples have shape {test.shape[1:]}, training ones {train.shape[1:]}: make them alike.")
    if usual(test.dtype) != usual(train.dtype):
        raise BadInput(f"test examples are {test.dtype}, training ones {train.dtype}: give both in the same type.")


def count_classes(classes: int | None, y: np.ndarray, test: Pair | None, task: str = CLASSIFICATION) -> int:
    """The number of classes: declared, or that of the public test set; read from the training labels where neither tells."""
    if task != CLASSIFICATION:
        return y.shape[1]
    if y[y != NO_LABEL].min() == y.max():
        raise BadInput(f"every training label is {y.min()}, which leaves nothing to learn: give at least 2 classes.")
    if classes is not None or test is None:
        return classes or int(y.max()) + 1
    return int(max(y.max(), test[1].max())) + 1


def _labels(y: np.ndarray, classes: int | None, who: str) -> np.ndarray:
    floating = y.dtype.kind == "f"
    if y.dtype.kind not in "fiub" or (floating and not (np.isfinite(y).all() and (y == np.round(y)).all())):
        raise BadInput(f"{who} has labels that are not whole numbers: number the classes from 0.")
    y = y.astype(np.int64)
    if y.min() < (0 if y.ndim == 1 else NO_LABEL):
        raise BadInput(f"{who} has the label {y.min()}: labels must be numbered from 0.")
    if y.ndim > 1 and not (y != NO_LABEL).any(1).all():
        raise BadInput(f"{who} has an example without any label ({NO_LABEL} at every position): leave it out.")
    if classes is not None and y.max() >= classes:
        raise BadInput(f"{who} has the label {y.max()}, out of range for {classes} classes (0 to {classes - 1}).")
    return y


def _targets(y: np.ndarray, outputs: int | None, who: str, task: str) -> np.ndarray:
    """[examples, outputs] of float32."""
    if y.ndim > 2 or y.dtype.kind not in "fiub":
        raise BadInput(
            f"the targets of {who} have shape {y.shape} and type {y.dtype}: give numbers, one row per example."
        )
    y = y.reshape(len(y), -1).astype(np.float32)
    if not np.isfinite(y).all():
        raise BadInput(f"{who} has targets that are NaN or infinite: fill them in or leave those examples out.")
    if task == MULTI_LABEL and not np.isin(y, (0.0, 1.0)).all():
        raise BadInput(f"{who} has labels other than 0 and 1: labels of a multi-label task are 0 or 1.")
    if outputs is not None and y.shape[1] != outputs:
        raise BadInput(f"{who} has {y.shape[1]} targets for an example and {outputs} are asked for: make them agree.")
    return y


def _all_finite(x: np.ndarray, rows: int = 65536) -> bool:
    # In pieces, so that the check of a memory-mapped file stays small.
    return all(bool(np.isfinite(x[i : i + rows]).all()) for i in range(0, len(x), rows))
