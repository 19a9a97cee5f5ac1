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

from collections.abc import Callable, Iterable, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from sordino.data.check import alike, checked, count_classes, labeller, same_labels, same_shape
from sordino.data.dataset import GAPS, Normalise, usual
from sordino.data.ingest import Source
from sordino.data.layout import Examples
from sordino.data.schema import CLASSIFICATION, TASKS, Schema
from sordino.errors import BadInput, one_of, whole
from sordino.federation import dealing
from sordino.federation.holdings import Holdings
from sordino.federation.origin import Origin, given

if TYPE_CHECKING:
    from sordino.data.dataset import Dataset
    from sordino.data.frames import Frame


class Federation(Holdings):
    """Build one with `from_arrays`, `from_file`, `from_folder`, `from_dataframe`, `from_datasets`, `from_dataset` or `on_demand`.

    >>> clients = [([[0.0], [1.0]], [0, 1]), ([[2.0]], [1])]
    >>> federation = Federation.from_arrays(clients)
    >>> federation.clients, federation.sizes.tolist(), federation[1][0].tolist()
    (2, [2, 1], [[2.0]])
    """

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
        rows, held, layout = dealing.packed(given_clients, test, label)
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
        labels = [y for _, y in pairs] + ([] if public is None else [public[1]])
        same_labels(labels, lambda k: label(k) if k < len(pairs) else "the test set")
        x = dealing.side_by_side([x for x, _ in pairs])
        y = np.concatenate([y for _, y in pairs])
        normalise = normalise or usual(x.dtype)
        if public is not None:
            alike(public[0], x)
        return cls(
            name=name,
            clients=len(pairs),
            classes=count_classes(classes, y, public, task),
            classes_from_labels=names_from_labels or dealing.told_by_labels(classes, y, public, task),
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
        ignore: Sequence[str] = (),
    ) -> Federation:
        """One ``.npz`` (arrays x and y), ``.csv`` or ``.parquet`` file per client; ``test.*`` is the public test set.

        In tables the labels are the column `label`, or the last one if no column has that name; columns are matched by name.
        """
        if not Path(path).is_dir():
            raise BadInput(f"{path} is not a folder: give one that holds a .npz, .csv or .parquet file per client.")
        source = Source(str(path), None, label, _path(test), _path(schema), task, classes, ",".join(ignore) or None)
        return cls.from_source(source)

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
        ignore: Sequence[str] = (),
    ) -> Federation:
        """One table; `client` is the column that says whose a row is. Without it rows are dealt out to `clients`.

        Columns that are named in `ignore` are left out.
        """
        ignored = ",".join(ignore) or None
        source = Source(str(path), client, label, _path(test), _path(schema), task, classes, ignored)
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
            ignore=source.ignore,
            task=task,
            classes=source.classes,
        )
        pairs = read.clients
        if dealt:
            pairs = dealing.deal(name, pairs[0], partition, clients, alpha, seed, task)
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
            origin=dealing.dealt(dataset, data.name, partition, alpha, seed, shards),
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


def _path(file: str | Path | None) -> str | None:
    return None if file is None else str(file)
