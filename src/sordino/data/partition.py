"""How one data set is dealt out to clients: evenly, skewed by label, in shards, or by the owner each row really has.

Two partitions skew the labels by a Dirichlet distribution of one concentration alpha. `dirichlet` draws, for every class, the shares
of the clients (Yurochkin et al. 2019; Wang et al. 2020): sizes differ. `dirichlet-mix` draws, for every client, its mix of classes about
that of the whole data set (Hsu et al. 2019): all sizes are equal, up to one. `shards` is that of McMahan et al. (2017, section 3): sort by label, cut into equal
pieces, deal each client a few. All are functions of the seed alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.data.dataset import Dataset
from sordino.errors import BadInput, one_of, positive, whole

PARTITIONS = ("iid", "dirichlet", "dirichlet-mix", "shards", "natural")


@dataclass(frozen=True)
class Split:
    """The rows of every client; names and held-out rows too where they are natural."""

    indices: list[np.ndarray]
    ids: tuple[str, ...] | None = None
    tests: list[np.ndarray] | None = None


def split(
    data: Dataset, partition: str, *, clients: int | None = None, alpha: float = 1.0, seed: int = 0, shards: int = 2
) -> Split:
    """Deal out `data`; `clients` may be left out for `natural` only, where it then means all of them."""
    one_of(PARTITIONS, partition=partition)
    if partition == "natural":
        return natural(data, clients, seed)
    if clients is None:
        raise BadInput(f"the {partition} partition needs the number of clients: give clients, for example 10.")
    whole(clients=clients)
    if clients > len(data):
        raise BadInput(f"{clients} clients cannot share the {len(data)} examples of {data.name}: ask for fewer.")
    labels = np.asarray(data.y)
    if labels.ndim > 1 and partition != "iid":
        raise BadInput(
            f"examples of {data.name} have a label at every position, so that {partition} has no one label to skew: choose iid"
            f"{'' if data.groups is None else ' or natural'}."
        )
    generator = _stream(seed)
    if partition == "iid":
        rows = iid(len(labels), clients, generator)
    elif partition == "dirichlet":
        rows = dirichlet(labels, clients, alpha, generator)
    elif partition == "dirichlet-mix":
        rows = dirichlet_mix(labels, clients, alpha, generator)
    else:
        rows = by_shards(labels, clients, shards, generator)
    if data.test_y is None or not np.issubdtype(labels.dtype, np.integer):
        return Split(rows)
    return Split(rows, tests=alike(labels, rows, np.asarray(data.test_y), seed))


def alike(labels: np.ndarray, rows: list[np.ndarray], held: np.ndarray, seed: int) -> list[np.ndarray]:
    """The rows of a public test set, each dealt to one client, with the label shares that the partition gave the clients."""
    generator = stream_for(seed, "test-partition")
    shares = np.array([np.bincount(_codes(labels[own]), minlength=_codes(labels).max() + 1) for own in rows], float)
    shares /= np.maximum(shares.sum(0), 1)
    parts: list[list[np.ndarray]] = [[] for _ in rows]
    for label in range(shares.shape[1]):
        here = generator.permutation(np.flatnonzero(_codes(held) == label))
        cuts = np.round(np.cumsum(shares[:, label])[:-1] * len(here)).astype(np.int64)
        for part, piece in zip(parts, np.split(here, cuts)):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]


def _codes(labels: np.ndarray) -> np.ndarray:
    """One label for each example; of sequences the first."""
    return np.maximum(labels.reshape(len(labels), -1)[:, 0].astype(np.int64), 0)


def iid(examples: int, clients: int, generator: np.random.Generator) -> list[np.ndarray]:
    """A shuffle cut into pieces whose sizes differ by one at most."""
    return [np.sort(rows) for rows in np.array_split(generator.permutation(examples), clients)]


def dirichlet(labels: np.ndarray, clients: int, alpha: float, generator: np.random.Generator) -> list[np.ndarray]:
    """Label skew: small alpha gives clients of few classes. Nobody is left without data: see `_feed_the_empty`."""
    positive(alpha=alpha)
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        shares = _shares(alpha, clients, generator)
        cuts = np.minimum(np.round(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64), len(rows))
        for part, piece in zip(parts, np.split(rows, cuts)):
            part.append(piece)
    return [np.sort(rows) for rows in _feed_the_empty([np.concatenate(part) for part in parts])]


def dirichlet_mix(labels: np.ndarray, clients: int, alpha: float, generator: np.random.Generator) -> list[np.ndarray]:
    """A mix of classes for each client, from Dirichlet(alpha p) with p the shares of the classes; sizes differ by one at most.

    Clients draw their rows one after another, without replacement. A class that has run out is left out of the mixes that follow,
    as Hsu et al. do; so the last clients of a small alpha take what is left.
    """
    positive(alpha=alpha)
    classes, counts = np.unique(labels, return_counts=True)
    rows = [list(generator.permutation(np.flatnonzero(labels == label))) for label in classes]
    sizes = [len(part) for part in np.array_split(np.arange(len(labels)), clients)]
    prior = alpha * counts / counts.sum()
    parts = []
    for size in sizes:
        mix, left = _mix(prior, generator), np.array([len(pile) for pile in rows])
        taken: list[int] = []
        while len(taken) < size:
            open_ = left > 0
            weights = np.where(open_, mix, 0.0)
            if not weights.sum() > 0:  # every class that the client wanted has run out
                weights = np.where(open_, prior, 0.0)
            drawn = np.minimum(generator.multinomial(size - len(taken), weights / weights.sum()), left)
            for c in np.flatnonzero(drawn):
                taken += [rows[c].pop() for _ in range(int(drawn[c]))]
            left = left - drawn
        parts.append(np.sort(np.array(taken, dtype=np.int64)))
    return parts


def _mix(prior: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """One draw from Dirichlet(prior); for tiny parameters every Gamma draw can underflow, and one class takes all."""
    weights = generator.standard_gamma(prior)
    if weights.sum() > 0:
        return weights / weights.sum()
    return np.eye(len(prior))[generator.choice(len(prior), p=prior / prior.sum())]


def by_shards(labels: np.ndarray, clients: int, shards: int, generator: np.random.Generator) -> list[np.ndarray]:
    """`shards` pieces of the label-sorted data for each client."""
    whole(shards=shards)
    if clients * shards > len(labels):
        raise BadInput(f"{clients} clients of {shards} shards need more than {len(labels)} examples: ask for fewer.")
    # Ties are broken at random, so that which rows of a class share a piece does not depend on their order in the file.
    shuffled = generator.permutation(len(labels))
    pieces = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], clients * shards)
    dealt = generator.permutation(clients * shards).reshape(clients, shards)
    return [np.sort(np.concatenate([pieces[i] for i in hand])) for hand in dealt]


def natural(data: Dataset, clients: int | None, seed: int) -> Split:
    """Each row with its owner. Fewer clients than owners takes that many owners at random."""
    if data.groups is None:
        raise BadInput(
            f"{data.name} does not say whose its examples are: choose iid, dirichlet, dirichlet-mix or shards."
        )
    groups = np.asarray(data.groups)
    owners, positions = np.unique(groups, return_inverse=True)
    if clients is not None:
        whole(clients=clients)
        if clients > len(owners):
            raise BadInput(f"{data.name} has only {len(owners)} natural clients, not {clients}: ask for fewer.")
    chosen = np.arange(len(owners))
    if clients is not None and clients < len(owners):
        chosen = np.sort(_stream(seed).permutation(len(owners))[:clients])
    names = data.group_names
    ids = tuple(str(owners[i]) if names is None else names[int(owners[i])] for i in chosen)
    rows = _rows_of(positions, len(owners))
    if data.test_groups is None:
        return Split([rows[i] for i in chosen], ids)
    held = np.asarray(data.test_groups)
    return Split([rows[i] for i in chosen], ids, [np.flatnonzero(held == owners[i]) for i in chosen])


def _rows_of(positions: np.ndarray, groups: int) -> list[np.ndarray]:
    order = np.argsort(positions, kind="stable")
    return np.split(order, np.cumsum(np.bincount(positions, minlength=groups))[:-1])


def _shares(alpha: float, clients: int, generator: np.random.Generator) -> np.ndarray:
    """Dirichlet shares; for a tiny alpha every Gamma draw can underflow to zero, and then one client takes all."""
    weights = generator.standard_gamma(alpha, size=clients)
    total = weights.sum()
    if total > 0:
        return weights / total
    shares = np.zeros(clients)
    shares[generator.integers(clients)] = 1.0
    return shares


def _feed_the_empty(parts: list[np.ndarray]) -> list[np.ndarray]:
    """Give each client that drew nothing one row of the largest, so that alpha may be small and clients many."""
    sizes = np.array([len(part) for part in parts])
    for k in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        parts[k], parts[largest] = parts[largest][-1:], parts[largest][:-1]
        sizes[k], sizes[largest] = 1, sizes[largest] - 1
    return parts


def _stream(seed: int) -> np.random.Generator:
    return stream_for(seed, "partition")


def stream_for(seed: int, purpose: str) -> np.random.Generator:
    """The chance that deals out records: it follows from the partition's seed alone."""
    from sordino.privacy.randomness import stream

    return stream(seed, 0, -1, purpose)
