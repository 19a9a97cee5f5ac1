"""The lines of a ledger: sealing and reading one, packing a cohort into one, writing it so that it stays.

A line is a JSON object in a fixed form whose last two fields are the hash of the line before and its own: the BLAKE2b
hash (128 bits) of all the bytes before it.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TypedDict, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sordino.errors import BadInput, SordinoError
from sordino.privacy.client_budgets import ClientBudgetsJson
from sordino.privacy.filter.base import FilterJson

HEX = 32
START = "0" * HEX  # stands for the line before the first
_TAIL = len(',"hash":""}') + HEX
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=True).encode
_decoder = json.JSONDecoder()


class PackedIds(TypedDict):
    """A cohort (`pack_ids`)."""

    n: int
    type: str
    steps: str


class PackedCosts(TypedDict, total=False):
    """What the clients of a cohort were charged (`pack_costs`): places in a list of prices, or the doubles."""

    n: int
    prices: list[float]
    places: str
    planes: str


class Row(TypedDict, total=False):
    """A line of a ledger of any kind: its place in the chain, and what its kind needs."""

    seq: int
    kind: str
    prev: str
    hash: str
    format: str  # of the header, from here
    plan: str
    about: Mapping[str, object]
    filter: FilterJson
    spending: ClientBudgetsJson | None
    round: int  # of a grant or a remark, from here
    step: int
    attempt: int
    clients: PackedIds
    costs: PackedCosts | float
    event: dict[str, object]
    bytes: str


class Head(TypedDict):
    """The number and the hash of a ledger's last line."""

    seq: int
    hash: str


def seal(row: Mapping[str, object], before: str) -> tuple[bytes, str]:
    """The line for `row`, with its newline, and its hash."""
    try:
        body = _encode({**row, "prev": before}).encode()[:-1]
    except (TypeError, ValueError) as error:
        raise BadInput(f"A line of the ledger can hold plain finite values only ({error}).") from None
    digest = _digest(body)
    return body + f',"hash":"{digest}"}}\n'.encode(), digest


def unseal(line: bytes) -> tuple[dict[str, object] | None, str]:
    """What a line says and the hash it should have; None if it is not JSON, an empty row if it is not a sealed line."""
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None, ""
    digest = _digest(line[:-_TAIL])
    sealed = isinstance(row, dict) and line.endswith(b'"}') and line[-_TAIL:].startswith(b',"hash":"')
    return (row if sealed and {"seq", "kind", "prev", "hash"} <= row.keys() else {}), digest


def salvage(torn: bytes) -> Row | None:
    """What a torn line grants, if enough of it is there: its event is the last of the fields that matter."""
    text = torn.decode(errors="replace")
    start = text.find('"event":')
    if start < 0:
        return None
    try:
        _, end = _decoder.raw_decode(text, start + len('"event":'))
        row = json.loads(text[:end] + "}")
        if row["kind"] != "grant":
            return None
        kept = {key: row[key] for key in ("round", "step", "attempt", "clients", "costs", "event") if key in row}
        return cast(Row, kept)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=HEX // 2).hexdigest()


# --- cohorts ----------------------------------------------------------------------------------------------------------


def cohort(clients: ArrayLike, costs: ArrayLike | None) -> tuple[NDArray[np.int64], NDArray[np.float64] | float | None]:
    """Client numbers in ascending order, and their costs in the same one."""
    ids = np.asarray(clients)
    if ids.size == 0:
        ids = np.empty(0, dtype=np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise BadInput(f"clients must be a list of whole numbers, not {ids.dtype} with shape {ids.shape}.")
    paid = None if costs is None else np.asarray(costs, dtype=np.float64)
    if paid is not None and paid.ndim and paid.shape != ids.shape:
        raise BadInput(f"costs must be one number, or one for each of the {ids.size} clients, not {paid.shape}.")
    ids = ids.astype(np.int64, copy=False)
    steps = np.diff(ids)
    if not (steps > 0).all():
        order = np.argsort(ids, kind="stable")
        ids, steps = ids[order], np.diff(ids[order])
        paid = paid[order] if paid is not None and paid.ndim else paid
    if not (steps > 0).all() or ids.size and ids[0] < 0:
        raise BadInput("clients must be different numbers of at least 0; one is negative or there twice.")
    return ids, float(paid) if paid is not None and not paid.ndim else paid


def pack_ids(ids: NDArray[np.int64]) -> PackedIds:
    """Ascending numbers as their steps, in as few bytes as the largest step needs, compressed."""
    steps = np.diff(ids, prepend=0)
    width = np.min_scalar_type(int(steps.max(initial=0))).newbyteorder("<")
    return {"n": int(ids.size), "type": width.str, "steps": _pack(steps.astype(width).tobytes())}


def unpack_ids(packed: PackedIds) -> NDArray[np.int64]:
    """The numbers that `pack_ids` packed; `ValueError` if they are not whole."""
    if packed["type"] not in ("|u1", "<u2", "<u4", "<u8"):
        raise ValueError(f"cohort of type {packed['type']!r}")
    steps = np.frombuffer(_unpack(packed["steps"]), dtype=np.dtype(packed["type"]))
    if steps.size != packed["n"]:
        raise ValueError("cohort of the wrong length")
    return np.cumsum(steps, dtype=np.int64)


def pack_costs(costs: NDArray[np.float64] | float) -> PackedCosts | float:
    """One number if all are the same, places in a list of prices if there are few, otherwise the doubles, bytewise."""
    if isinstance(costs, float):
        return costs
    if not costs.size:
        return 0.0
    prices = np.unique(costs[:: max(1, costs.size // 4096)])
    if prices.size <= 256:
        places = np.minimum(np.searchsorted(prices, costs), prices.size - 1).astype(np.uint8)
        if np.array_equal(prices[places], costs):
            if prices.size == 1:
                return float(prices[0])
            return {"n": int(costs.size), "prices": prices.tolist(), "places": _pack(places.tobytes())}
    # Bytes of the same significance side by side, so that they compress.
    planes = np.ascontiguousarray(costs.astype("<f8").view(np.uint8).reshape(-1, 8).T)
    return {"n": int(costs.size), "planes": _pack(planes.tobytes())}


def unpack_costs(packed: PackedCosts | float) -> NDArray[np.float64] | float:
    """The costs that `pack_costs` packed."""
    if not isinstance(packed, dict):
        return float(packed)
    if "prices" in packed:
        places = np.frombuffer(_unpack(packed["places"]), dtype=np.uint8)
        if places.size != packed["n"]:
            raise ValueError("costs of the wrong length")
        return np.asarray(packed["prices"], dtype=np.float64)[places]
    planes = np.frombuffer(_unpack(packed["planes"]), dtype=np.uint8).reshape(8, packed["n"])
    return np.ascontiguousarray(planes.T).view("<f8").reshape(-1).astype(np.float64)


def _pack(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw, 1)).decode()


def _unpack(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text, validate=True))


# --- the file ---------------------------------------------------------------------------------------------------------


def write(fd: int, data: bytes) -> None:
    """Write all of `data` at the end of the file and return when it is on disk."""
    while data:
        data = data[os.write(fd, data) :]
    os.fsync(fd)
    if hasattr(fcntl, "F_FULLFSYNC"):  # where fsync alone leaves the data in the drive's own cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)


def read(fd: int) -> bytes:
    """The whole file."""
    size, parts, at = os.fstat(fd).st_size, [], 0
    while at < size and (part := os.pread(fd, size - at, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def sync_folder(folder: Path) -> None:
    """Make a new name in `folder` last."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def lock(fd: int, path: Path) -> None:
    """Take the file for this process alone, or say who has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        here, there = os.fstat(fd), os.stat(path)
        taken = (here.st_ino, here.st_dev) != (there.st_ino, there.st_dev)  # replaced while we waited
    except (BlockingIOError, FileNotFoundError):
        taken = True
    if taken:
        raise BadInput(f"Another process is writing the ledger {path}; wait until it has finished, or stop it.")


def aside(path: Path, text: bytes, into_place: Callable[[str, Path], None]) -> int:
    """Write `text` to a new file, locked from birth, and give it the name `path` once it is on disk."""
    fd, name = tempfile.mkstemp(prefix=".ledger-", dir=path.parent)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        write(fd, text)
        into_place(name, path)
        sync_folder(path.parent)
    except BaseException:
        os.close(fd)
        raise
    finally:
        Path(name).unlink(missing_ok=True)
    return fd


@contextmanager
def told(path: Path) -> Iterator[None]:
    """A disk that refuses to write, in one sentence."""
    try:
        yield
    except OSError as error:
        raise SordinoError(
            f"The ledger {path} could not be written ({error.strerror}), so no round may run; make room or mend the "
            "disk, then resume."
        ) from error
