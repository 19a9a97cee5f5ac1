"""What travels between machines and processes: a kind, a head of plain data, and raw arrays. Never pickles.

    bytes:  magic | length of the head | head as JSON (with the arrays' names, types and lengths) | the arrays

What comes in is read with suspicion: unknown types, lengths that do not add up and heads that are too long are refused
before anything is made of them. Requests to clients, with their bounds and queries, have their plain form here too.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from sordino.errors import BadInput
from sordino.plain import Json, Plain
from sordino.privacy import bounds
from sordino.privacy.mechanisms import FixedPoint
from sordino.rules import query
from sordino.schemes.request import CONTRIBUTE, HELD_OUT, PRELUDE, QUERY, Request

if TYPE_CHECKING:
    from sordino.engines.flower.part import Facts
    from sordino.plan import Plan

MAGIC = b"SRDN\x01"
TYPES = ("<f4", "<f8", "<i8", "<u8")
_HEAD = 1 << 26  # bytes; letters of many members are the longest heads
_LONG = 64  # lists of numbers longer than this travel as arrays


class MalformedMessage(BadInput):
    """Bytes that are no message, or a message that does not say what it should."""


@dataclass(frozen=True)
class Message:
    """One message, either way."""

    kind: str
    head: Json = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def but(self, **head: object) -> Message:
        """The same with more in its head."""
        return Message(self.kind, {**self.head, **head}, self.arrays)

    def get(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """An entry of the head, if it is there and of this type."""
        value = self.head.get(name)
        if not isinstance(value, kind) or isinstance(value, bool) and kind is int:
            raise MalformedMessage(f"a {self.kind} message has no usable {name!r}.")
        return value

    def array(self, name: str, dtype: DTypeLike, length: int | None = None) -> np.ndarray:
        """The array of this name, type and length; anything else is a malformed message."""
        found = self.arrays.get(name)
        if found is None or found.dtype != dtype or length is not None and found.size != length:
            wanted = f"{np.dtype(dtype)}{'' if length is None else f' of {length}'}"
            raise MalformedMessage(f"a {self.kind} message has no array {name!r} of {wanted}.")
        return found

    @property
    def size(self) -> int:
        """Bytes of its arrays, and of its head as JSON."""
        return sum(a.nbytes for a in self.arrays.values()) + len(json.dumps(self.head))


def to_bytes(message: Message) -> bytes:
    """A message as bytes: a head in JSON, then its arrays one after the other."""
    arrays = {name: _flat(name, array) for name, array in message.arrays.items()}
    listed = [[name, array.dtype.str, array.size] for name, array in arrays.items()]
    head = json.dumps({"kind": message.kind, "head": message.head, "arrays": listed}).encode()
    return b"".join([MAGIC, struct.pack("<I", len(head)), head, *(array.tobytes() for array in arrays.values())])


def from_bytes(data: bytes) -> Message:
    """The message that `to_bytes` wrote; `MalformedMessage` if these are none."""
    try:
        start = len(MAGIC) + 4
        (length,) = struct.unpack("<I", data[len(MAGIC) : start])
        if data[: len(MAGIC)] != MAGIC or length > min(_HEAD, len(data) - start):
            raise MalformedMessage("these bytes are no message of this version.")
        said = json.loads(data[start : start + length])
        at, arrays = start + length, {}
        for name, kind, count in said["arrays"]:
            if kind not in TYPES or not isinstance(count, int) or count < 0 or name in arrays:
                raise MalformedMessage(f"array {name!r} of a message is of no known type.")
            end = at + count * np.dtype(kind).itemsize
            if end > len(data):
                raise MalformedMessage(f"array {name!r} of a message is cut short.")
            arrays[str(name)] = np.frombuffer(data[at:end], kind)
            at = end
        if at != len(data) or not isinstance(said["kind"], str) or not isinstance(said["head"], dict):
            raise MalformedMessage("a message is longer than it says.")
        return Message(said["kind"], said["head"], arrays)
    except MalformedMessage:
        raise
    except (struct.error, KeyError, TypeError, ValueError, RecursionError):
        raise MalformedMessage("these bytes are no message.") from None


def _flat(name: str, array: np.ndarray) -> np.ndarray:
    array = np.ascontiguousarray(array)
    if array.dtype.str not in TYPES or array.ndim != 1:
        raise BadInput(f"array {name!r} must be a flat vector of {', '.join(TYPES)}, not {array.dtype} {array.shape}.")
    return array


# ---- requests --------------------------------------------------------------------------------------------


def request_to_plain(request: Request) -> tuple[dict[str, object], dict[str, np.ndarray]]:
    """(head, arrays): bounds of many numbers travel as arrays."""
    head = {f.name: getattr(request, f.name) for f in dataclasses.fields(request)}
    arrays: dict[str, np.ndarray] = {}
    head["grid"] = request.grid.scale
    head["query_grid"] = None if request.query_grid is None else request.query_grid.scale
    head["query"] = query_to_json(request.query)
    head["bound"] = None
    if request.bound is not None:
        head["bound"] = plain = request.bound.to_json()
        for name, value in list(plain.items()):
            if isinstance(value, list) and len(value) > _LONG:
                arrays[f"bound.{name}"] = np.asarray(value, np.float64)
                plain[name] = None
    return head, arrays


def request_from_plain(head: Plain, arrays: Mapping[str, np.ndarray]) -> Request:
    """The request that a server sent; every field is checked."""
    try:
        fields = dict(head)
        whole = all(isinstance(fields[name], int) and not isinstance(fields[name], bool) for name in ("round", "step"))
        if fields["phase"] not in (QUERY, CONTRIBUTE, PRELUDE, HELD_OUT) or not whole:
            raise MalformedMessage("a request has no known phase, round or step.")
        fields["grid"] = FixedPoint(fields["grid"])
        fields["query_grid"] = None if fields["query_grid"] is None else FixedPoint(fields["query_grid"])
        _check_types(fields)
        fields["query"] = query_from_json(fields["query"])
        if fields["bound"] is not None:
            plain = dict(fields["bound"])
            for name in plain:
                long = arrays.get(f"bound.{name}")
                if long is not None:
                    plain[name] = long.astype(np.int64) if name == "sizes" else long
            fields["bound"] = bounds.from_json(plain)
        return Request(**fields)
    except MalformedMessage:
        raise
    except (KeyError, TypeError, AttributeError, ValueError):
        raise MalformedMessage("a request cannot be read: both sides need the same version.") from None


def _check_types(fields: Mapping[str, object]) -> None:
    """Numbers are numbers, and a state is a flat dict of plain data; what they may be is for the plan to say."""
    for name in ("multiplier", "query_multiplier"):
        value = fields[name]
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value != value):
            raise MalformedMessage(f"a request has no usable {name}.")
    whole_survivors = isinstance(fields["survivors"], int) and not isinstance(fields["survivors"], bool)
    if not whole_survivors or not isinstance(fields["released"], bool) or not isinstance(fields["state"], dict):
        raise MalformedMessage("a request has no usable survivors, released or state.")


def released_arrays(released: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Statistics of the prelude, as arrays of a message."""
    return {f"released.{i}": np.asarray(value, np.float64) for i, value in enumerate(released)}


def released_from(arrays: Mapping[str, np.ndarray], count: int) -> list[np.ndarray]:
    """The first `count` statistics of the prelude, which must be finite."""
    found = [arrays.get(f"released.{i}") for i in range(count)]
    if any(value is None or value.dtype != np.float64 or not np.isfinite(value).all() for value in found):
        raise MalformedMessage("a message lacks statistics that were released before, or they are not finite.")
    return [np.array(value) for value in found]


def agreed_digest(plan: Plan, facts: Facts, request: Request) -> bytes:
    """A digest of everything that members of a secure sum are told: all of them must have been told the same."""
    head, arrays = request_to_plain(request)
    digest = hashlib.sha256(b"sordino request")
    digest.update(json.dumps([plan.to_json(), facts.to_json(), head], sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(name.encode() + np.ascontiguousarray(arrays[name], "<f8").tobytes())
    return digest.digest()


_QUERIES: dict[str, Callable[..., query.Query]] = {kind.__name__: kind for kind in query.KINDS}


def query_to_json(asked: query.Query | None) -> dict[str, object] | None:
    """A question about norms as plain data."""
    if asked is None:
        return None
    return {"kind": type(asked).__name__, **dataclasses.asdict(asked)}  # type: ignore[call-overload]


def query_from_json(plain: Plain | None) -> query.Query | None:
    """The query that `query_to_json` described; no other class is built."""
    if plain is None:
        return None
    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items() if k != "kind"}
    if plain.get("kind") not in _QUERIES:
        raise MalformedMessage(f"the query {plain.get('kind')!r} is not known; both sides need the same version.")
    return _QUERIES[plain["kind"]](**fields)
