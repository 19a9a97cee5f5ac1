"""Messages as Flower's records and back: the head is one string, arrays are arrays (equal ones are uploaded once)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sordino.engines.flower.wire import TYPES, MalformedMessage, Message

if TYPE_CHECKING:
    from flwr.app import RecordDict

ACTION = "sordino"
MESSAGE = f"train.{ACTION}"


def to_records(message: Message) -> RecordDict:
    """A message as Flower carries it."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    said = json.dumps({"kind": message.kind, "head": message.head})
    records = RecordDict({"parcel": ConfigRecord({"said": said})})
    if message.arrays:
        records["arrays"] = ArrayRecord({name: Array(array) for name, array in message.arrays.items()})
    return records


def from_records(records: RecordDict) -> Message:
    """The message that `to_records` packed; `MalformedMessage` if there is none."""
    try:
        said = json.loads(str(records["parcel"]["said"]))
        kind, head = said["kind"], said["head"]
        arrays: Any = records["arrays"] if "arrays" in records else {}
        found = {name: array.numpy() for name, array in arrays.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedMessage(f"records hold no message ({type(error).__name__}).") from None
    if not isinstance(kind, str) or not isinstance(head, dict):
        raise MalformedMessage("records hold no message.")
    if any(array.dtype.str not in TYPES or array.ndim != 1 for array in found.values()):
        raise MalformedMessage("records hold arrays of unknown types.")
    return Message(kind, head, found)
