"""A share of every client's records that nothing is trained on: the model is tested on it (`schemes.held_out`).

``test = "holdout=0.1"`` in a plan asks for it. Which records are held out follows from their places, the seed and the
clients' sizes, which are public, and never from what the records hold. So a record is either trained on or tested on,
whatever stands in it, and two neighbouring populations hold out the same places.

A client of n records holds out share x n of them on average: the fraction is rounded up or down by a coin of the client's
own stream, so that small clients count as well, and one record at least is left to train on.
"""

from __future__ import annotations

import copy
import tempfile
from typing import TYPE_CHECKING

import numpy as np

from sordino.data.ingest import HOLDOUT as PREFIX
from sordino.errors import BadInput
from sordino.privacy.randomness import stream

if TYPE_CHECKING:
    from sordino.data.check import Pair
    from sordino.federation.population import Federation

FAIRNESS = PUBLIC, NOISY = (
    "public",
    "noisy",
)  # what clients are compared on: public splits, or held-out records with noise
_SOME = 4096  # rows of a memory-mapped file that are copied at a time


def share_in(test: str | None) -> float | None:
    """The share that a plan's `test` asks for; None: it names a file, or nothing.

    >>> share_in("holdout=0.1"), share_in("test.csv"), share_in(None)
    (0.1, None, None)
    """
    if test is None or not test.startswith(PREFIX):
        return None
    try:
        share = float(test.removeprefix(PREFIX))
    except ValueError:
        share = -1.0
    if not 0 < share <= 0.5:
        raise BadInput(f"test {test!r} must hold out a share above 0 and up to 0.5, as in holdout=0.1.")
    return share


def count(share: float, seed: int, client: int, records: int) -> int:
    """How many of a client's records are held out: a public number."""
    return _count(share, records, _coins(seed, client))


def places(share: float, seed: int, client: int, records: int) -> np.ndarray:
    """Which of them are, as a mask over the client's records."""
    coins = _coins(seed, client)
    held = _count(share, records, coins)
    mask = np.zeros(records, bool)
    mask[coins.permutation(records)[:held]] = True
    return mask


def _coins(seed: int, client: int) -> np.random.Generator:
    return stream(seed, 0, client, "held-out")


def _count(share: float, records: int, coins: np.random.Generator) -> int:
    return min(int(share * records + coins.random()), max(records - 1, 0))


def hold_out(federation: Federation, share: float, seed: int) -> Federation:
    """The population that is trained on; what is held out is its `held_out`, with the same clients."""
    if federation.by_position:
        raise BadInput(
            "a held-out share is tested by the one class of a record, and these records have one at every position; give a "
            "public test set, or test none."
        )
    sizes = federation.declared_sizes()
    if sizes is None:
        raise BadInput(
            "how many records each client holds is not declared, and a held-out share rests on it; give "
            "Federation.on_demand a size, or test none."
        )
    each = np.broadcast_to(np.asarray(sizes, np.int64), (federation.clients,))
    counts = np.array([count(share, seed, k, int(n)) for k, n in enumerate(each)], np.int64)
    if not counts.any():
        raise BadInput(
            f"{PREFIX}{share:g} of {int(each.sum()):,} records is no record; hold out more, or give test none."
        )
    trained, held = copy.copy(federation), copy.copy(federation)
    for made, of_each in ((trained, each - counts), (held, counts)):
        made.__dict__.pop("places", None)
        _fill(made, federation, of_each, share, seed, out=made is held)
    held._test, held._local_tests, held._test_rows = None, None, None
    held.__dict__.pop("test", None)
    trained.held_out = held
    return trained


def _fill(made: Federation, whole: Federation, sizes: np.ndarray, share: float, seed: int, out: bool) -> None:
    """Give `made` its part of every client's records."""
    if whole.x is None or whole.y is None or whole.offsets is None:
        make = whole._make
        assert make is not None

        def part(k: int) -> Pair:
            x, y = make(k)
            mask = places(share, seed, k, len(y)) == out
            return np.asarray(x)[mask], np.asarray(y)[mask]

        made._make, made._size = part, lambda k: int(sizes[k])
        return
    masks = [places(share, seed, k, int(n)) == out for k, n in enumerate(np.diff(whole.offsets))]
    rows = np.flatnonzero(np.concatenate(masks))
    made.x, made.y = _taken(whole.x, rows), _taken(whole.y, rows)
    made.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    made.sizes = sizes
    for array in (made.x, made.y, made.offsets, made.sizes):
        array.flags.writeable = False


def _taken(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """These rows. Of a memory-mapped array they go into a file, which is gone when nobody has it open any more."""
    base: object = array
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    if not isinstance(base, np.memmap):
        return array[rows]
    with tempfile.TemporaryFile() as file:
        made = np.memmap(file, array.dtype, "w+", shape=(len(rows), *array.shape[1:]))
    for start in range(0, len(rows), _SOME):
        made[start : start + _SOME] = array[rows[start : start + _SOME]]
    return made
