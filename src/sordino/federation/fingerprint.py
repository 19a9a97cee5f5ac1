"""Digests of what clients hold, by which a run that resumes, and a data holder, know their records again.

They are functions of private data: they stay in a run's own files, salted (`binding`). Records that are made on demand are not
hashed; only what is declared about them is.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hashlib import _Hash

    from sordino.federation.holdings import Holdings

_HASHED = 4096  # rows at a time


def of_client(holdings: Holdings, k: int) -> str:
    """A digest of client k's records."""
    digest = hashlib.sha256()
    for array in holdings.raw(k):
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        _add_rows(digest, array)
    if holdings.held_out is not None:
        digest.update(holdings.held_out.fingerprint_of(k).encode())
    return digest.hexdigest()


def of_population(holdings: Holdings) -> str:
    """A digest of the name, shapes, sizes and records of all clients."""
    facts: list[object] = [holdings.name, holdings.clients, holdings.classes, list(holdings.input_shape)]
    facts.append(holdings.size_fact)
    facts.append(None if holdings.normalise is None else holdings.normalise.to_json())
    if holdings.schema is not None:
        facts.append(holdings.schema.to_json())
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    sizes = holdings.declared_sizes()
    if isinstance(sizes, np.ndarray):
        digest.update(np.ascontiguousarray(sizes, dtype="<i8").tobytes())
    for array in (holdings.x, holdings.y):
        if array is not None:
            _add_rows(digest, array)
    if holdings.held_out is not None:
        digest.update(holdings.held_out.fingerprint().encode())
    return digest.hexdigest()


def _add_rows(digest: _Hash, array: np.ndarray) -> None:
    """In stretches, so that a memory-mapped file is never held whole."""
    for start in range(0, len(array), _HASHED):
        digest.update(np.ascontiguousarray(array[start : start + _HASHED]).data)
