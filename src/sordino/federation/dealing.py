"""Small steps between what a user has and the arrays of a population: packing, laying side by side, dealing out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from sordino.data.check import Pair
from sordino.data.dataset import Dataset
from sordino.data.layout import Examples, Layout, is_parts, pack
from sordino.data.partition import split
from sordino.data.schema import CLASSIFICATION
from sordino.errors import BadInput
from sordino.federation.origin import Origin, given

_COPIED = 4096  # rows at a time


def packed(
    clients: list[tuple[Examples, ArrayLike]],
    test: tuple[Examples, ArrayLike] | None,
    label: Callable[[int], str],
) -> tuple[list[tuple[ArrayLike, ArrayLike]], tuple[ArrayLike, ArrayLike] | None, Layout | None]:
    """Examples of several arrays as rows of one."""
    if not any(is_parts(x) for x, _ in clients):
        return cast(list[tuple[ArrayLike, ArrayLike]], clients), cast(tuple[ArrayLike, ArrayLike] | None, test), None
    made: list[tuple[ArrayLike, ArrayLike]] = []
    layouts: list[Layout] = []
    for k, (x, y) in enumerate([*clients, *([test] if test is not None else [])]):
        who = label(k) if k < len(clients) else "the test set"
        if not is_parts(x):
            raise BadInput(f"{who} has one array and {label(0)} several: give all of them alike.")
        rows, layout = pack(x, who)  # type: ignore[arg-type]
        made.append((rows, y))
        layouts.append(layout)
        if layout != layouts[0]:
            raise BadInput(
                f"the fields of {who} are not those of {label(0)} (names, shapes and types): make them alike."
            )
    return made[: len(clients)], made[-1] if test is not None else None, layouts[0]


def side_by_side(arrays: list[np.ndarray]) -> np.ndarray:
    """One array. Memory-mapped ones are put together in a file, which is gone when nobody has it open any more."""
    if not any(isinstance(array, np.memmap) or isinstance(array.base, np.memmap) for array in arrays):
        return np.concatenate(arrays)
    if len(arrays) == 1:
        return arrays[0]
    shape, kind = (sum(map(len, arrays)), *arrays[0].shape[1:]), np.result_type(*arrays)
    with tempfile.TemporaryFile() as file:
        made = np.memmap(file, kind, "w+", shape=shape)
    at = 0
    for array in arrays:
        for start in range(0, len(array), _COPIED):
            piece = array[start : start + _COPIED]
            made[at : at + len(piece)] = piece
            at += len(piece)
    return made


def told_by_labels(classes: int | None, y: np.ndarray, test: Pair | None, task: str) -> bool:
    """Whether private labels decide how many classes there are."""
    if task != CLASSIFICATION or classes is not None:
        return False
    return test is None or int(y.max()) > int(test[1].max())


def dealt(dataset: str | Dataset, name: str, partition: str, alpha: float, seed: int, shards: int) -> Origin:
    """A set of the catalogue can be named in a plan, one that was built in Python, or cut otherwise, cannot."""
    named = isinstance(dataset, str) and (partition != "shards" or shards == 2)
    return Origin(name if named else given(name), partition, alpha if partition == "dirichlet" else None, seed)


def deal(name: str, whole: Pair, partition: str, clients: int | None, alpha: float, seed: int, task: str) -> list[Pair]:
    """A table that does not say whose its rows are, dealt out as a data set is."""
    x, y = (np.asarray(array) for array in whole)
    if task != CLASSIFICATION and partition != "iid":
        raise BadInput(f"partition {partition} goes by classes, and {task} has none: use iid, or name a client column.")
    if partition == "natural":
        raise BadInput(f"{name} does not say whose its rows are: name the column (client_column), or choose iid.")
    rows = split(Dataset(name, x, y, None, None, 0), partition, clients=clients, alpha=alpha, seed=seed)
    return [(x[r], y[r]) for r in rows.indices]
