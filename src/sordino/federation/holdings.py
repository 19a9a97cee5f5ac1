"""What clients hold: their examples, their sizes, the public test set, and digests of all of it.

`Holdings` is read only and holds plain numpy arrays, so worker processes share it for nothing. Usually all training data
lies in one array in client order, and a client is a slice of it (`x`, `y`, `offsets`); the arrays may be memory-mapped
files. When clients are too many to hold, `make` produces a client's data when it is asked for, and nothing is kept.
`population` has the ways to build one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from sordino.data.check import Pair, checked
from sordino.data.dataset import Normalise
from sordino.data.layout import Layout
from sordino.data.schema import CLASSIFICATION, Schema
from sordino.errors import BadInput
from sordino.federation import fingerprint
from sordino.federation.origin import Origin


class Holdings:
    """Who holds which examples."""

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
        self.held_out: Self | None = None  # records that nothing is trained on (`federation.held_out`)

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
        """Whether there is a public test split for each client."""
        return self._local_tests is not None or self._test_rows is not None

    @property
    def class_names(self) -> tuple[str, ...]:
        """What each output of a model stands for."""
        if self.schema is not None:
            return self.schema.classes or self.schema.labels
        return tuple(str(k) for k in range(self.classes))

    @property
    def by_position(self) -> bool:
        """Whether a record has a class at each of several positions."""
        return self.task == CLASSIFICATION and self.y is not None and self.y.ndim > 1

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

    def followed_by(self, x: np.ndarray, y: np.ndarray) -> Self:
        """The same population, with examples that belong to no client behind its own: for canaries."""
        assert self.x is not None and self.y is not None
        made = copy.copy(self)
        made.x, made.y = (_frozen(np.concatenate(pair)) for pair in ((self.x, x), (self.y, y)))
        return made

    def tested_on(self, other: Holdings) -> Self:
        """The same population with the records of `other` in the place of a public test set: for attacks on a run of one's own."""
        made = copy.copy(self)
        made.__dict__.pop("test", None)
        made._test, made._test_rows = (other.x, other.y) if other.x is not None and other.y is not None else None, None
        return made

    def fingerprint_of(self, k: int) -> str:
        """A digest of client k's records; empty where they are made on demand. Private, as `fingerprint` is."""
        if self.offsets is None:
            return ""
        return fingerprint.of_client(self, k)

    def mapped(self, apply: Callable[[np.ndarray], np.ndarray]) -> Self:
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
        return fingerprint.of_population(self)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a statement must add to its assumptions because of how this population was described."""
        if not self.classes_from_labels:
            return ()
        what = f"The number of classes ({self.classes}) was" if self.schema is None else "Which classes there are was"
        how = "it (classes=)" if self.schema is None else "them (a schema, or a public test set)"
        return (f"{what} read from the training labels and is taken to be public; declare {how} to leave this out.",)

    @property
    def size_fact(self) -> int | str | None:
        """What was declared of the sizes of clients that are made on demand: one number for all, or that each has its own."""
        return "by client" if callable(self._size) else self._size

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {self.clients} clients, {self.classes} classes)"


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
