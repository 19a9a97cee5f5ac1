"""Ledgers in which each client has a budget of its own (FedMAP): what every client was granted, added up.

A client chooses the noise of its steps itself, so there are no events to recompute. The ledger says what each client was
granted as Renyi divergence at one order, which was fixed before round one. dp-accounting turns the largest sum into
epsilon.
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from collections.abc import Mapping

import numpy as np

from sordino.plain import Plain
from sordino.verify.chain import Chain, Row
from sordino.verify.verdict import Broken

_MOST = 10**8  # clients; a header that names more is no ledger of ours
_TYPES = ("|u1", "<u2", "<u4", "<u8")


def largest(ledger: Chain) -> tuple[float, float]:
    """(the most that any client was granted, the order)."""
    settings = ledger.header["spending"]
    count, order = settings.get("clients"), settings.get("order")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST:
        raise Broken(f"the header of ledger.jsonl names {count!r} clients.")
    if isinstance(order, bool) or not isinstance(order, (int, float)) or not 1 < order < math.inf:
        raise Broken(f"the header of ledger.jsonl names the Renyi order {order!r}.")
    sums = np.zeros(count)
    for grant in ledger.grants:
        where = f"line {grant['seq'] + 1} of ledger.jsonl"
        try:
            ids = _ids(grant["clients"], count)
            costs = np.broadcast_to(_costs(grant["costs"], ids.size), ids.shape)
        except (KeyError, TypeError, ValueError, zlib.error, binascii.Error) as error:
            raise Broken(f"{where} does not say what each client was granted ({error}).") from None
        if ids.size and (ids.min() < 0 or ids.max() >= count or (np.diff(ids) <= 0).any()):
            raise Broken(f"{where} names clients that do not exist, or one twice.")
        if not (costs >= 0).all():
            raise Broken(f"{where} grants less than nothing.")
        if not _covered(grant["event"], float(costs.max(initial=0.0)), float(order)):
            raise Broken(f"{where} grants a client more than its event costs.")
        sums[ids] += costs
    return float(sums.max()), float(order)


def epsilon(largest_sum: float, order: float, delta: float) -> float:
    """dp-accounting's conversion at the one order that was committed."""
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    return float(compute_epsilon([order], [largest_sum], delta)[0])


def _covered(event: Row, cost: float, order: float) -> bool:
    """The event is a Gaussian whose divergence at the order, order / (2 z^2), is the largest cost of the round."""
    if event.get("kind") == "nothing":
        return cost == 0
    z = event.get("multiplier")
    return event.get("kind") == "gaussian" and isinstance(z, float) and cost <= order / (2 * z * z) * (1 + 1e-9)


def _ids(packed: Plain, most: int) -> np.ndarray:
    """Ascending numbers, stored as their differences."""
    kind, size = packed["type"], packed["n"]
    if kind not in _TYPES or not 0 <= size <= most:
        raise ValueError("a cohort that cannot be read")
    steps = np.frombuffer(_bytes(packed["steps"], size * np.dtype(kind).itemsize), dtype=kind)
    return np.cumsum(steps, dtype=np.int64)


def _costs(packed: Plain | float, size: int) -> np.ndarray:
    """One number for all; places in a list of prices; or eight planes of bytes of the doubles."""
    if not isinstance(packed, Mapping):
        return np.asarray(float(packed))
    if packed["n"] != size:
        raise ValueError("costs for another number of clients")
    if "prices" in packed:
        return np.asarray(packed["prices"], np.float64)[np.frombuffer(_bytes(packed["places"], size), np.uint8)]
    planes = np.frombuffer(_bytes(packed["planes"], 8 * size), np.uint8).reshape(8, size)
    return np.ascontiguousarray(planes.T).view("<f8").reshape(-1).astype(np.float64)


def _bytes(text: str, length: int) -> bytes:
    """Unpacked, and no more than it should be: a few bytes could unpack to gigabytes."""
    raw = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), length + 1)
    if len(raw) != length:
        raise ValueError("packed numbers of another length")
    return raw
