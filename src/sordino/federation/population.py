"""The population of clients: who holds which examples, and the public test set.

A `Federation` is read only and holds plain numpy arrays, so worker processes share it for nothing. Usually all training
data lies in one array in client order, and a client is a slice of it (`x`, `y`, `offsets`); the arrays may be
memory-mapped files. When clients are too many to hold, `on_demand` makes a client's data when it is asked for and keeps
nothing.

    federation[k]            (x, y) of client k, ready for a model: float32 (or int64 tokens) and int64 labels
    federation.raw(k)        the same as stored (bytes stay bytes), a view without a copy
    federation.prepare(x)    turns stored rows, such as ``federation.x[rows]``, into model input
    federation.test          the public test set, ready for a model, or None
"""

from __future__ import annotations

import copy
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import ArrayLike

from sordino.data.check import Pair, alike, checked, count_classes, labeller, same_shape
from sordino.data.dataset import GAPS, Normalise, usual
from sordino.data.ingest import Source
from sordino.data.layout import Examples, Layout, is_parts, pack
from sordino.data.schema import CLASSIFICATION, TASKS, Schema
from sordino.errors import BadInput, one_of, whole
from sordino.federation.origin import Origin, given

if TYPE_CHECKING:
    from sordino.data.dataset import Dataset
    from sordino.data.frames import Frame


_HASHED = 4096  # rows at a time


class Federation:
    """Build one with `from_arrays`, `from_file`, `from_folder`, `from_dataframe`, `from_datasets`, `from_dataset` or `on_demand`.

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
        test_rows: Sequence[np.ndarray] | None = None,
        ids: Sequence[str] | None = None,
        normalise: Normalise | None = None,
        classes_from_labels: bool = False,
        task: str = CLASSIFICATION,
        schema: Schema | None = None,
        origin: Origin | None = None,
        layout: Layout | None = None,
    ) -> None:
        self.name, self.clients, self.classes = name, clients, classes  # classes: of another task, its outputs
        self.classes_from_labels = classes_from_labels  # private labels decided a public number
        self.task, self.schema = task, schema
        self.origin, self.layout = origin, layout  # layout: of examples of several arrays
        self.x, self.y, self.offsets = _frozen(x), _frozen(y), _frozen(offsets)
        self.sizes = None if offsets is None else _frozen(np.diff(offsets))
        self.ids = None if ids is None else tuple(ids)
        self.normalise = normalise
        self._make, self._size = make, size
        self._test, self._local_tests = test, local_tests
        self._test_rows = test_rows if test is not None else None  # which of the public test set is each client's
        self.held_out: Federation | None = None  # records that nothing is trained on (`federation.held_out`)

    # ---- what a client holds ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.clients

    def __iter__(self) -> Iterator[Pair]:
        return (self[k] for k in range(self.clients))

    def __getitem__(self, k: int) -> Pair:
        x, y = self.raw(k)
        return self.prepare(x), self.labels(y)

    def labels(self, y: np.ndarray) -> np.ndarray:
        """Stored labels as a loss takes them: class numbers, or float32 targets."""
        return np.asarray(y, dtype=np.int64 if self.task == CLASSIFICATION else np.float32)

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
        return checked(x, y, self.classes, self.name_of(k), self.task)

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

    # ---- public data -----------------------------------------------------------------------------------------

    @cached_property
    def test(self) -> Pair | None:
        """The public test set, ready for a model."""
        if self._test is None:
            return None
        return self.prepare(self._test[0]), self.labels(self._test[1])

    @property
    def raw_test(self) -> Pair | None:
        """The public test set as stored."""
        return self._test

    def local_test(self, k: int) -> Pair | None:
        """Client k's own held-out examples, where the data set has such a split; they are public."""
        if self._test_rows is not None and self.test is not None:
            x, y = self.test
            return x[self._test_rows[k]], y[self._test_rows[k]]
        if self._local_tests is None:
            return None
        x, y = self._local_tests[k]
        return self.prepare(x), self.labels(y)

    @property
    def has_local_tests(self) -> bool:
        return self._local_tests is not None or self._test_rows is not None

    @property
    def class_names(self) -> tuple[str, ...]:
        """What each output of a model stands for."""
        if self.schema is not None:
            return self.schema.classes or self.schema.labels
        return tuple(str(k) for k in range(self.classes))

    @cached_property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple((self.x if self.x is not None else self.raw(0)[0]).shape[1:])

    @cached_property
    def places(self) -> np.ndarray | None:
        """Where each client's records begin if all were laid side by side; None where their number is not declared."""
        if self.offsets is not None:
            return self.offsets
        sizes = self.declared_sizes()
        if sizes is None:
            return None
        each = np.broadcast_to(np.asarray(sizes, np.int64), (self.clients,))
        return np.concatenate([[0], np.cumsum(each)]).astype(np.int64)

    def take(self, rows: np.ndarray) -> Pair:
        """Examples by their place (`places`), ready for a model; of clients that are made on demand, these alone are made."""
        if self.x is not None and self.y is not None:
            return self.prepare(self.x[rows]), self.labels(self.y[rows])
        places = self.places
        assert places is not None
        owners = np.searchsorted(places, rows, side="right") - 1
        made: dict[int, Pair] = {}
        for k in np.unique(owners).tolist():
            made[k] = self[k]
            if len(made[k][1]) != places[k + 1] - places[k]:
                raise BadInput(f"{self.name_of(k)} does not hold as many examples as was declared; correct size.")
        picked = [(made[k][0][row - places[k]], made[k][1][row - places[k]]) for k, row in zip(owners.tolist(), rows)]
        return np.stack([x for x, _ in picked]), np.stack([y for _, y in picked])

    def declared_sizes(self) -> np.ndarray | int | None:
        """How many examples each client says it holds; None where nobody said. Work on a client's data enforces it."""
        if self.sizes is not None:
            return self.sizes
        if callable(self._size):
            return np.array([self.size(k) for k in range(self.clients)], np.int64)
        return self._size

    @property
    def examples(self) -> int:
        """Examples of all clients together; with a size function they are counted client by client."""
        if self.sizes is not None:
            return int(self.sizes.sum())
        if isinstance(self._size, int):
            return self._size * self.clients
        return sum(self.size(k) for k in range(self.clients))

    def followed_by(self, x: np.ndarray, y: np.ndarray) -> Federation:
        """The same population, with examples that belong to no client behind its own: for canaries."""
        assert self.x is not None and self.y is not None
        made = copy.copy(self)
        made.x, made.y = (_frozen(np.concatenate(pair)) for pair in ((self.x, x), (self.y, y)))
        return made

    def tested_on(self, other: Federation) -> Federation:
        """The same population with the records of `other` in the place of a public test set: for attacks on a run of one's own."""
        made = copy.copy(self)
        made.__dict__.pop("test", None)
        made._test, made._test_rows = (other.x, other.y) if other.x is not None and other.y is not None else None, None
        return made

    def fingerprint_of(self, k: int) -> str:
        """A digest of client k's records; empty where they are made on demand. Private, as `fingerprint` is."""
        if self.offsets is None:
            return ""
        digest = hashlib.sha256()
        for array in self.raw(k):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            for start in range(0, len(array), _HASHED):
                digest.update(np.ascontiguousarray(array[start : start + _HASHED]).data)
        if self.held_out is not None:
            digest.update(self.held_out.fingerprint_of(k).encode())
        return digest.hexdigest()

    def mapped(self, apply: Callable[[np.ndarray], np.ndarray]) -> Federation:
        """The same population with other model input: `apply` takes stored rows, and looks at each row by itself.

        Clients are taken one by one, as on machines of their own; the result is kept as it is.
        """
        made = copy.copy(self)
        made.normalise = None
        made.__dict__.pop("test", None)
        made.__dict__.pop("input_shape", None)
        if self.x is not None and self.offsets is not None:
            ends = [*self.offsets.tolist(), len(self.x)]  # canaries' records may lie behind those of the clients
            made.x = _frozen(_filled(self.x, ends, apply))
        if self._make is not None:
            make = self._make
            made._make = lambda k: (apply(np.asarray((pair := make(k))[0])), pair[1])
        if self._test is not None:
            made._test = apply(self._test[0]), self._test[1]
        if self._local_tests is not None:
            made._local_tests = [(apply(x), y) for x, y in self._local_tests]
        if self.held_out is not None:
            made.held_out = self.held_out.mapped(apply)
        return made

    def fingerprint(self) -> str:
        """A digest of the name, shapes, sizes and records, by which a run that resumes knows its population again.

        It is a function of private data, so it stays in the run's own files, salted (`binding`). Records that are made on
        demand are not hashed: only what is declared about them is.
        """
        facts: list[object] = [self.name, self.clients, self.classes, list(self.input_shape), self._size_fact()]
        facts.append(None if self.normalise is None else self.normalise.to_json())
        if self.schema is not None:
            facts.append(self.schema.to_json())
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        sizes = self.declared_sizes()
        if isinstance(sizes, np.ndarray):
            digest.update(np.ascontiguousarray(sizes, dtype="<i8").tobytes())
        for array in (self.x, self.y):
            if array is not None:
                for start in range(0, len(array), _HASHED):
                    digest.update(np.ascontiguousarray(array[start : start + _HASHED]).data)
        if self.held_out is not None:
            digest.update(self.held_out.fingerprint().encode())
        return digest.hexdigest()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a statement must add to its assumptions because of how this population was described."""
        if not self.classes_from_labels:
            return ()
        what = f"The number of classes ({self.classes}) was" if self.schema is None else "Which classes there are was"
        how = "it (classes=)" if self.schema is None else "them (a schema, or a public test set)"
        return (f"{what} read from the training labels and is taken to be public; declare {how} to leave this out.",)

    def _size_fact(self) -> int | str | None:
        return "by client" if callable(self._size) else self._size

    def __repr__(self) -> str:
        return f"Federation({self.name}: {self.clients} clients, {self.classes} classes)"

    # ---- ways to build one -----------------------------------------------------------------------------------

    @classmethod
    def from_arrays(
        cls,
        clients: Iterable[tuple[Examples, ArrayLike]],
        test: tuple[Examples, ArrayLike] | None = None,
        *,
        classes: int | None = None,
        name: str = "arrays",
        ids: Sequence[str] | None = None,
        local_tests: Iterable[tuple[ArrayLike, ArrayLike]] | None = None,
        normalise: Normalise | None = None,
        task: str = CLASSIFICATION,
        schema: Schema | None = None,
        origin: Origin | None = None,
        names_from_labels: bool = False,
    ) -> Federation:
        """One (x, y) per client: lists, numpy arrays or torch tensors.

        Bytes are taken for pixels (and divided by 255), other integers for tokens, unless `normalise` says otherwise.
        `task` is classification, regression or multi-label; of the latter y has a number, or a row of them, per example.
        An x may be a dictionary or a tuple of arrays, which the model then takes by name or by place.
        """
        one_of(TASKS, task=task)
        given_clients = list(clients)
        if not given_clients:
            raise BadInput("there are no clients: give at least one (x, y) pair.")
        if ids is not None and len(ids) != len(given_clients):
            raise BadInput(f"there are {len(given_clients)} clients but {len(ids)} ids: give one id per client.")
        label = labeller(ids)
        rows, held, layout = _packed(given_clients, test, label)
        gaps = normalise is not None and normalise.fill
        pairs = [checked(x, y, classes, label(k), task, gaps) for k, (x, y) in enumerate(rows)]
        same_shape([x for x, _ in pairs], label)
        offsets = np.concatenate([[0], np.cumsum([len(y) for _, y in pairs])]).astype(np.int64)
        public = None if held is None else checked(*held, classes, "the test set", task, gaps)
        own = None
        if local_tests is not None:
            own = [checked(*split, classes, f"the test of {label(k)}", task) for k, split in enumerate(local_tests)]
        if own is not None and len(own) != len(pairs):
            raise BadInput(f"there are {len(pairs)} clients but {len(own)} local test sets: give one per client.")
        x = _side_by_side([x for x, _ in pairs])
        y = np.concatenate([y for _, y in pairs])
        normalise = normalise or usual(x.dtype)
        if public is not None:
            alike(public[0], x)
        return cls(
            name=name,
            clients=len(pairs),
            classes=count_classes(classes, y, public, task),
            classes_from_labels=names_from_labels or _told_by_labels(classes, y, public, task),
            x=x,
            y=y,
            offsets=offsets,
            test=public,
            local_tests=own,
            ids=ids,
            normalise=normalise,
            task=task,
            schema=schema,
            origin=origin or Origin(given(name), task=task, classes=classes),
            layout=layout,
        )

    @classmethod
    def from_folder(
        cls,
        path: str | Path,
        label: str | None = None,
        classes: int | None = None,
        *,
        test: str | Path | None = None,
        schema: str | Path | None = None,
        task: str | None = None,
    ) -> Federation:
        """One ``.npz`` (arrays x and y), ``.csv`` or ``.parquet`` file per client; ``test.*`` is the public test set.

        In tables the labels are the column `label`, or the last one if no column has that name; columns are matched by name.
        """
        if not Path(path).is_dir():
            raise BadInput(f"{path} is not a folder: give one that holds a .npz, .csv or .parquet file per client.")
        return cls.from_source(Source(str(path), None, label, _path(test), _path(schema), task, classes))

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        client: str | None = None,
        label: str | None = None,
        *,
        test: str | Path | None = None,
        schema: str | Path | None = None,
        task: str | None = None,
        classes: int | None = None,
        partition: str = "iid",
        clients: int | None = None,
        alpha: float = 1.0,
        seed: int = 0,
    ) -> Federation:
        """One table; `client` is the column that says whose a row is. Without it rows are dealt out to `clients`."""
        source = Source(str(path), client, label, _path(test), _path(schema), task, classes)
        return cls.from_source(source, partition, clients, alpha, seed)

    @classmethod
    def from_source(
        cls, source: Source, partition: str = "iid", clients: int | None = None, alpha: float = 1.0, seed: int = 0
    ) -> Federation:
        """What a plan or the command line names: a file or a folder. The last four deal out a table that names no clients."""
        from sordino.data.ingest import ingest

        read, path = ingest(source), Path(source.path)
        task = read.schema.task if read.schema is not None else source.task or CLASSIFICATION
        name = path.resolve().name if path.is_dir() else path.stem
        dealt = read.owners is None
        origin = Origin(
            data=source.path,
            partition=partition if dealt else "natural",
            alpha=alpha if dealt else None,
            partition_seed=seed if dealt else None,
            client_column=source.client_column,
            label=source.label,
            test=source.test,
            schema=source.schema,
            task=task,
            classes=source.classes,
        )
        pairs = read.clients
        if dealt:
            pairs = _deal(name, pairs[0], partition, clients, alpha, seed, task)
        outputs = source.classes if read.schema is None else read.schema.outputs
        return cls.from_arrays(
            pairs,
            read.test,
            classes=outputs,
            name=name,
            ids=read.owners,
            task=task,
            schema=read.schema,
            origin=origin,
            names_from_labels=read.names_from_labels,
            normalise=GAPS if read.schema is not None and read.schema.gaps else None,
        )

    @classmethod
    def from_dataframe(
        cls,
        frame: Frame,
        client: str,
        label: str | Sequence[str],
        *,
        test: Frame | None = None,
        schema: str | Path | None = None,
        task: str | None = None,
        classes: int | None = None,
        name: str = "dataframe",
    ) -> Federation:
        """A pandas or polars frame; `client` is the column that says whose a row is, `label` what is predicted."""
        from sordino.data.frames import from_frame
        from sordino.data.ingest import arrays_of, split_by_owner

        table = from_frame(frame)
        if client not in table:
            raise BadInput(f"the data frame has no column {client!r}: name one of {', '.join(table.names[:8])}.")
        owners, tables = split_by_owner(table, client)
        labels = label if isinstance(label, str) else ",".join(label)
        source = Source("", client, labels, None, _path(schema), task, classes)
        held = None if test is None else from_frame(test, "the test frame")
        read = arrays_of(tables, held, owners, source)
        assert read.schema is not None
        task = read.schema.task
        return cls.from_arrays(
            read.clients,
            read.test,
            classes=read.schema.outputs,
            name=name,
            ids=owners,
            task=task,
            schema=read.schema,
            origin=Origin(given(name), client_column=client, label=labels, schema=source.schema, task=task),
            names_from_labels=read.names_from_labels,
            normalise=GAPS if read.schema.gaps else None,
        )

    @classmethod
    def from_datasets(
        cls,
        datasets: Sequence[Sized],
        test: Sized | None = None,
        *,
        label: str = "label",
        classes: int | None = None,
        task: str = CLASSIFICATION,
        ids: Sequence[str] | None = None,
        name: str = "datasets",
    ) -> Federation:
        """One `torch.utils.data.Dataset` or Hugging Face `datasets.Dataset` per client, and perhaps a public one to test on.

        An example is a pair (x, y), or a dictionary in which `label` names y; all of them are read once. Of a dictionary the
        other fields are columns, if they are single numbers; else the model takes them by name.
        """
        from sordino.data.datasets import declared_classes, pair_of

        classes = classes if classes is not None else declared_classes(datasets, label)
        pairs = [pair_of(one, label, f"data set {k}") for k, one in enumerate(datasets)]
        held = None if test is None else pair_of(test, label, "the test set")
        return cls.from_arrays(pairs, held, classes=classes, task=task, ids=ids, name=name)

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
        """One data set or its name, dealt out `iid`, by `dirichlet`, in `shards`, or by its own ids (`natural`)."""
        from sordino.data.partition import split
        from sordino.data.sets import load

        data = load(dataset) if isinstance(dataset, str) else dataset
        checked(data.x, data.y, data.classes, f"the data set {data.name}")
        rows = split(data, partition, clients=clients, alpha=alpha, seed=seed, shards=shards)
        order = np.concatenate(rows.indices)
        untouched = len(order) == len(data) and bool((order[:-1] < order[1:]).all())
        test = None if data.test_x is None or data.test_y is None else (data.test_x, data.test_y)
        return cls(
            name=data.name,
            clients=len(rows.indices),
            classes=data.classes,
            # Data that already lies in client order stays where it is, perhaps on disk; else one copy orders it.
            x=data.x if untouched else data.x[order],
            y=np.asarray(data.y, dtype=np.int64)[order],
            offsets=np.concatenate([[0], np.cumsum([len(r) for r in rows.indices])]).astype(np.int64),
            test=test,
            test_rows=rows.tests,
            ids=rows.ids,
            normalise=data.normalise or usual(data.x.dtype),
            origin=_dealt(dataset, data.name, partition, alpha, seed, shards),
        )

    @classmethod
    def on_demand(
        cls,
        clients: int,
        make: Callable[[int], tuple[np.ndarray, np.ndarray]],
        size: int | Callable[[int], int] | None,
        classes: int,
        test: tuple[ArrayLike, ArrayLike] | None = None,
        *,
        name: str = "on-demand",
        normalise: Normalise | None = None,
    ) -> Federation:
        """Clients whose data `make(k)` produces each time it is needed; it must give the same data for the same k."""
        whole(clients=clients)
        whole(least=2, classes=classes)
        if isinstance(size, int):
            whole(size=size)
        public = None if test is None else checked(*test, classes, "the test set")
        if normalise is None:
            normalise = usual(checked(*make(0), classes, "client 0")[0].dtype)
        return cls(
            name=name,
            clients=clients,
            classes=classes,
            make=make,
            size=size,
            test=public,
            normalise=normalise,
            origin=Origin(given(name), classes=classes),
        )


def _packed(
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


def _side_by_side(arrays: list[np.ndarray]) -> np.ndarray:
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
        for start in range(0, len(array), _HASHED):
            piece = array[start : start + _HASHED]
            made[at : at + len(piece)] = piece
            at += len(piece)
    return made


def _path(file: str | Path | None) -> str | None:
    return None if file is None else str(file)


def _told_by_labels(classes: int | None, y: np.ndarray, test: Pair | None, task: str) -> bool:
    """Whether private labels decide how many classes there are."""
    if task != CLASSIFICATION or classes is not None:
        return False
    return test is None or int(y.max()) > int(test[1].max())


def _dealt(dataset: str | Dataset, name: str, partition: str, alpha: float, seed: int, shards: int) -> Origin:
    """A set of the catalogue can be named in a plan, one that was built in Python, or cut otherwise, cannot."""
    named = isinstance(dataset, str) and (partition != "shards" or shards == 2)
    return Origin(name if named else given(name), partition, alpha if partition == "dirichlet" else None, seed)


def _deal(
    name: str, whole: Pair, partition: str, clients: int | None, alpha: float, seed: int, task: str
) -> list[Pair]:
    """A table that does not say whose its rows are, dealt out as a data set is."""
    from sordino.data.dataset import Dataset
    from sordino.data.partition import split

    x, y = (np.asarray(array) for array in whole)
    if task != CLASSIFICATION and partition != "iid":
        raise BadInput(f"partition {partition} goes by classes, and {task} has none: use iid, or name a client column.")
    if partition == "natural":
        raise BadInput(f"{name} does not say whose its rows are: name the column (client_column), or choose iid.")
    rows = split(Dataset(name, x, y, None, None, 0), partition, clients=clients, alpha=alpha, seed=seed)
    return [(x[r], y[r]) for r in rows.indices]


def _filled(x: np.ndarray, ends: Sequence[int], apply: Callable[[np.ndarray], np.ndarray]) -> np.ndarray | None:
    """`apply` of one stretch after another, in one array: large input is never held twice."""
    out: np.ndarray | None = None
    for low, high in zip(ends[:-1], ends[1:]):
        if high > low:
            part = apply(x[low:high])
            if out is None:
                out = np.empty((len(x), *part.shape[1:]), part.dtype)
            out[low:high] = part
    return out


def _frozen(array: np.ndarray | None) -> np.ndarray | None:
    """A view nobody can write through; the caller's own array stays as it was."""
    if array is None:
        return None
    view = array.view()
    view.flags.writeable = False
    return view
