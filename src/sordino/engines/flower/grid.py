"""The transport over Flower's grid: push, look often, take what came within the deadline.

A grid that fails (the SuperLink is gone, or does not know this run any more) is mended by its opener; the exchange
under way is lost, and the engine tries its round again.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from sordino.engines.flower.records import MESSAGE, from_records, to_records
from sordino.engines.flower.wire import MalformedMessage, Message

log = logging.getLogger("sordino.server")
LOOK = 0.03  # seconds between looks for answers


def quicken() -> None:
    """Flower waits a second before it looks again for an array that is still being uploaded; be quicker."""
    import flwr.superlink.grid.http_grid as http_grid

    if not isinstance(http_grid.pull_objects, functools.partial):
        http_grid.pull_objects = functools.partial(http_grid.pull_objects, initial_backoff=0.02, backoff_cap=1.0)


class OverGrid:
    """Holders by name, through a grid. `mend`, if given, returns a new grid and names after a failure."""

    def __init__(
        self, grid: Any, names: Mapping[int, str], mend: Callable[[], tuple[Any, Mapping[int, str]]] | None = None
    ) -> None:
        quicken()
        self.grid, self._mend = grid, mend
        self._names, self._ids = dict(names), {name: node for node, name in names.items()}
        self._seen: tuple[float, set[str]] = (0.0, set())

    def exchange(self, outgoing: Mapping[str, Message], deadline: float) -> dict[str, Message]:
        try:
            return self._exchange(outgoing, deadline)
        except Exception as error:  # noqa: BLE001 - Flower's errors are of many kinds, and all of them mean: not sent
            self._broken(error)
            return {}

    def present(self) -> set[str]:
        when, seen = self._seen
        if time.monotonic() - when < 0.5:
            return seen
        try:
            there = {self._names[node] for node in self.grid.get_node_ids() if node in self._names}
        except Exception as error:  # noqa: BLE001
            self._broken(error)
            return set()
        self._seen = (time.monotonic(), there)
        return there

    def close(self) -> None:
        pass

    def _exchange(self, outgoing: Mapping[str, Message], deadline: float) -> dict[str, Message]:
        from flwr.app import Message as FlowerMessage

        limit = time.monotonic() + deadline
        there = [name for name in outgoing if name in self._ids]
        messages = [
            FlowerMessage(to_records(outgoing[n]), self._ids[n], MESSAGE, ttl=max(deadline, 1.0)) for n in there
        ]
        pushed = dict(zip(list(self.grid.push_messages(messages)), there))
        waiting = {number for number in pushed if number}
        replies: dict[str, Message] = {}
        while waiting:
            for message in self.grid.pull_messages(waiting):
                number = message.metadata.reply_to_message_id
                waiting.discard(number)
                reply = self._read(pushed[number], message)
                if reply is not None:
                    replies[pushed[number]] = reply
            if not waiting or time.monotonic() > limit:
                break
            time.sleep(LOOK)
        return replies

    def _read(self, name: str, message: Any) -> Message | None:
        if message.has_error():
            log.error("%s cannot be reached: Flower's code %s", name, message.error.code)
            return None
        if message.metadata.src_node_id != self._ids[name]:
            log.error("an answer to a message for %s came from another node and was refused", name)
            return None
        try:
            return from_records(message.content)
        except MalformedMessage as error:
            log.error("an answer of %s was refused: %s", name, error)
            return None

    def _broken(self, error: Exception) -> None:
        log.error("the way to the clients is broken: %s: %s", type(error).__name__, error)
        self._seen = (0.0, set())
        if self._mend is None:
            raise error
        self.grid, names = self._mend()
        self._names, self._ids = dict(names), {name: node for node, name in names.items()}
