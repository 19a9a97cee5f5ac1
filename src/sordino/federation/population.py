"""The population of clients: who holds which examples, and the public test set.

A `Federation` is read only and holds plain numpy arrays, so worker processes share it for nothing. Usually all training data
lies in one array in client order, and a client is a slice of it (`x`, `y`, `offsets`); the arrays may be memory-mapped files.
When clients are too many to hold, `on_demand` makes a client's data when it is asked for and keeps nothing.

    federation[k]            (x, y) of client k, ready for a model: float32 (or int64 tokens) and int64 labels
    federation.raw(k)        the same as stored (bytes stay bytes), a view without a copy
    federation.prepare(x)    turns stored rows, such as ``federation.x[rows]``, into model input
    federation.test          the public test set, ready for a model, or None
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino.data.dataset import Normalise, usual
from sordino.errors import BadInput, whole

if TYPE_CHECKING:
    from sordino.data.dataset import Dataset

Pair = tuple[np.ndarray, np.ndarray]


class Federation:
    """Build one with `from_arrays`, `from_folder`, `from_dataset` or `on_demand`.

    >>> clients = [([[0.0], [1.0]], [0, 1]), ([[2.0]], [1])]
    >>> federation = Federation.from_arrays(clients)
    >>> federation.clients, federation.sizes.tolist(), federation[1][0].tolist()
    (2, [2, 1], [[2.0]])
    """

    def __init__(
        self,
        *,
        name: str,
        clients: int,
        classes: int,
        x: np.ndarray | None = None,
        y: np.ndarray | None = None,
        offsets: np.ndarray | None = None,
        make: Callable[[int], Pair] | None = None,
        size: int | Callable[[int], int] | None = None,
        test: Pair | None = None,
        local_tests: Sequence[Pair] | None = None,
        ids: Sequence[str] | None = None,
        normalise: Normalise | None = None,
    ) -> None:
        self.name, self.clients, self.classes = name, clients, classes
        self.x, self.y, self.offsets = x, y, offsets
        self.sizes: np.ndarray | None = None if offsets is None else np.diff(offsets)
        self.ids = None if ids is None else tuple(ids)
        self.normalise = normalise
        self._make, self._size = make, size
        self._test, self._local_tests = test, local_tests
        for array in (self.x, self.y, self.offsets, self.sizes):
            if array is not None and array.flags.writeable:
                array.flags.writeable = False

    # ---- what a client holds -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.clients

    def __iter__(self) -> Iterator[Pair]:
        return (self[k] for k in range(self.clients))

    def __getitem__(self, k: int) -> Pair:
        x, y = self.raw(k)
        return self.prepare(x), np.asarray(y, dtype=np.int64)

    def raw(self, k: int) -> Pair:
        """Client k's data as stored: slices of the pooled arrays, or whatever was made on demand."""
        if not 0 <= k < self.clients:
            raise IndexError(f"client {k} of {self.clients}")
        if self.offsets is not None:
            assert self.x is not None and self.y is not None
            here = slice(int(self.offsets[k]), int(self.offsets[k + 1]))
            return self.x[here], self.y[here]
        assert self._make is not None
        x, y = self._make(int(k))
        return _checked(x, y, self.classes, self.name_of(k))

    def size(self, k: int) -> int:
        """How many examples client k holds, without making them if that can be avoided."""
        if self.sizes is not None:
            return int(self.sizes[k])
        if callable(self._size):
            return int(self._size(int(k)))
        return len(self.raw(k)[1]) if self._size is None else int(self._size)

    def name_of(self, k: int) -> str:
        """The client as a person would name it: its natural id if it has one, else its number."""
        return f"client {k}" if self.ids is None else f"client {k} ({self.ids[k]})"

    def prepare(self, x: np.ndarray) -> np.ndarray:
        """Stored rows as model input; a view where nothing has to be done."""
        return np.asarray(x) if self.normalise is None else self.normalise(x)

    # ---- public data ---------------------------------------------------------------------------------------------------

    @cached_property
    def test(self) -> Pair | None:
        """The public test set, ready for a model."""
        if self._test is None:
            return None
        return self.prepare(self._test[0]), np.asarray(self._test[1], dtype=np.int64)

    def local_test(self, k: int) -> Pair | None:
        """Client k's own held-out examples, where the data set has such a split."""
        if self._local_tests is None:
            return None
        x, y = self._local_tests[k]
        return self.prepare(x), np.asarray(y, dtype=np.int64)

    @property
    def has_local_tests(self) -> bool:
        return self._local_tests is not None

    @cached_property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple((self.x if self.x is not None else self.raw(0)[0]).shape[1:])

    @property
    def examples(self) -> int:
        """Examples of all clients together (an on-demand federation with a size function is counted client by client)."""
        if self.sizes is not None:
            return int(self.sizes.sum())
        if isinstance(self._size, int):
            return self._size * self.clients
        return sum(self.size(k) for k in range(self.clients))

    def fingerprint(self) -> str:
        """A digest of the name, shapes and sizes: tells a run that resumes whether this is the population it started with.

        It is a function of the sizes, so it belongs in the run's own files and not in what is published.
        """
        facts: list[Any] = [self.name, self.clients, self.classes, list(self.input_shape), self._size_fact()]
        facts.append(None if self.normalise is None else self.normalise.to_json())
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        if self.sizes is not None:
            digest.update(np.ascontiguousarray(self.sizes, dtype="<i8").tobytes())
        return digest.hexdigest()

    def _size_fact(self) -> int | str | None:
        return "by client" if callable(self._size) else self._size

    def __repr__(self) -> str:
        return f"Federation({self.name}: {self.clients} clients, {self.classes} classes)"

    # ---- ways to build one ---------------------------------------------------------------------------------------------

    @classmethod
    def from_arrays(
        cls,
        clients: Iterable[tuple[Any, Any]],
        test: tuple[Any, Any] | None = None,
        *,
        classes: int | None = None,
        name: str = "arrays",
        ids: Sequence[str] | None = None,
        local_tests: Iterable[tuple[Any, Any]] | None = None,
        normalise: Normalise | None = None,
    ) -> Federation:
        """One (x, y) per client: lists, numpy arrays or torch tensors. Bytes are taken for pixels, other integers for tokens."""
        clients = list(clients)
        if not clients:
            raise BadInput("a federation needs at least one client, and this one has none: give one (x, y) pair per client.")
        if ids is not None and len(ids) != len(clients):
            raise BadInput(f"there are {len(clients)} clients but {len(ids)} ids: give one id per client.")
        label = _labeller(ids)
        pairs = [_checked(x, y, classes, label(k)) for k, (x, y) in enumerate(clients)]
        _same_shape([x for x, _ in pairs], label)
        offsets = np.concatenate([[0], np.cumsum([len(y) for _, y in pairs])]).astype(np.int64)
        public = None if test is None else _checked(*test, classes, "the test set")
        own = None
        if local_tests is not None:
            own = [_checked(*held, classes, f"the test of {label(k)}") for k, held in enumerate(local_tests)]
        if own is not None and len(own) != len(pairs):
            raise BadInput(f"there are {len(pairs)} clients but {len(own)} local test sets: give one per client.")
        x = np.concatenate([x for x, _ in pairs])
        y = np.concatenate([y for _, y in pairs])
        normalise = normalise or usual(x.dtype)
        if public is not None:
            _alike(public[0], x)
        return cls(
            name=name,
            clients=len(pairs),
            classes=_classes(classes, y, public),
            x=x,
            y=y,
            offsets=offsets,
            test=public,
            local_tests=own,
            ids=ids,
            normalise=normalise,
        )

    @classmethod
    def from_folder(cls, path: str | Path, label: str | None = None, classes: int | None = None) -> Federation:
        """One ``.npz`` (arrays x and y), ``.csv`` or ``.parquet`` file per client; ``test.*`` is the public test set.

        In tables the labels are the column `label`, or the last one if no column has that name.
        """
        from sordino.data.folder import read_folder

        ids, clients, test = read_folder(Path(path), label)
        return cls.from_arrays(clients, test, classes=classes, name=Path(path).resolve().name, ids=ids)

    @classmethod
    def from_dataset(
        cls,
        dataset: str | Dataset,
        partition: str = "iid",
        clients: int | None = None,
        alpha: float = 1.0,
        seed: int = 0,
        shards: int = 2,
    ) -> Federation:
        """One data set (or its name), dealt out to clients: `iid`, `dirichlet`, `shards`, or `natural` by its own ids."""
        from sordino.data.partition import split
        from sordino.data.sets import load

        data = load(dataset) if isinstance(dataset, str) else dataset
        _checked(data.x, data.y, data.classes, f"the data set {data.name}")
        rows = split(data, partition, clients=clients, alpha=alpha, seed=seed, shards=shards)
        order = np.concatenate(rows.indices)
        untouched = len(order) == len(data) and bool((order[:-1] < order[1:]).all())
        test = None if data.test_x is None or data.test_y is None else (data.test_x, data.test_y)
        return cls(
            name=data.name,
            clients=len(rows.indices),
            classes=data.classes,
            # Data that already lies in client order stays where it is, memory-mapped; otherwise one copy puts it in order.
            x=data.x if untouched else data.x[order],
            y=data.y if untouched else data.y[order],
            offsets=np.concatenate([[0], np.cumsum([len(r) for r in rows.indices])]).astype(np.int64),
            test=test,
            local_tests=None if rows.tests is None or test is None else [(test[0][r], test[1][r]) for r in rows.tests],
            ids=rows.ids,
            normalise=data.normalise or usual(data.x.dtype),
        )

    @classmethod
    def on_demand(
        cls,
        clients: int,
        make: Callable[[int], tuple[Any, Any]],
        size: int | Callable[[int], int] | None,
        classes: int,
        test: tuple[Any, Any] | None = None,
        *,
        name: str = "on-demand",
        normalise: Normalise | None = None,
    ) -> Federation:
        """Clients whose data `make(k)` produces each time it is needed; it must give the same data for the same k."""
        whole(clients=clients)
        whole(least=2, classes=classes)
        if isinstance(size, int):
            whole(size=size)
        public = None if test is None else _checked(*test, classes, "the test set")
        federation = cls(name=name, clients=clients, classes=classes, make=make, size=size, test=public, normalise=normalise)
        if normalise is None:
            federation.normalise = usual(federation.raw(0)[0].dtype)
        return federation


# ---- checks --------------------------------------------------------------------------------------------------------------


def _labeller(ids: Sequence[str] | None) -> Callable[[int], str]:
    return lambda k: f"client {k}" if ids is None else f"client {k} ({ids[k]})"


def _array(value: Any) -> np.ndarray:
    """Lists, numpy arrays and torch tensors alike; wide floats become float32, which is what models train in."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind == "f" and array.dtype != np.float32 else array


def _checked(x: Any, y: Any, classes: int | None, who: str) -> Pair:
    """One client's arrays, or the sentence that says what is wrong with them."""
    x, y = _array(x), _array(y)
    if y.size == 0:
        raise BadInput(f"{who} has no examples: leave it out, or ask for fewer clients.")
    if y.ndim != 1:
        raise BadInput(f"the labels of {who} have shape {y.shape}: give one whole number per example.")
    if x.ndim == 0 or len(x) != len(y):
        raise BadInput(f"{who} has {len(x) if x.ndim else 1} examples but {len(y)} labels: give one label per example.")
    if x.dtype.kind not in "fiub":
        raise BadInput(f"the examples of {who} are of type {x.dtype}: turn them into numbers first.")
    if x.dtype.kind == "f" and not _all_finite(x):
        raise BadInput(f"{who} has values that are NaN or infinite: fill them in or leave those examples out.")
    return x, _labels(y, classes, who)


def _labels(y: np.ndarray, classes: int | None, who: str) -> np.ndarray:
    if y.dtype.kind not in "fiub" or (y.dtype.kind == "f" and not (np.isfinite(y).all() and (y == np.round(y)).all())):
        raise BadInput(f"{who} has labels that are not whole numbers: number the classes from 0.")
    y = y.astype(np.int64)
    if y.min() < 0:
        raise BadInput(f"{who} has the label {y.min()}: labels must be numbered from 0.")
    if classes is not None and y.max() >= classes:
        raise BadInput(f"{who} has the label {y.max()}, out of range for {classes} classes (0 to {classes - 1}).")
    return y


def _all_finite(x: np.ndarray, rows: int = 65536) -> bool:
    # In pieces, so that the check of a memory-mapped file stays small.
    return all(bool(np.isfinite(x[i : i + rows]).all()) for i in range(0, len(x), rows))


def _same_shape(arrays: list[np.ndarray], label: Callable[[int], str]) -> None:
    for k, x in enumerate(arrays):
        if x.shape[1:] != arrays[0].shape[1:]:
            raise BadInput(
                f"{label(k)} has examples of shape {x.shape[1:]} but {label(0)} of {arrays[0].shape[1:]}: make them alike."
            )


def _alike(test: np.ndarray, train: np.ndarray) -> None:
    if test.shape[1:] != train.shape[1:]:
        raise BadInput(f"test examples have shape {test.shape[1:]} and training ones {train.shape[1:]}: make them alike.")
    if usual(test.dtype) != usual(train.dtype):
        raise BadInput(f"test examples are {test.dtype} and training ones {train.dtype}: give both in the same type.")


def _classes(classes: int | None, y: np.ndarray, test: Pair | None) -> int:
    if y.min() == y.max():
        raise BadInput(f"every training label is {y.min()}: there is nothing to learn from one class, so give at least 2.")
    return classes or int(max(y.max(), -1 if test is None else test[1].max())) + 1
