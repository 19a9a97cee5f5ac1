"""How the engine reaches holders: one exchange at a time, each with a deadline.

`SecureChannel` puts seals on what goes out and takes them off what comes back. An answer that is late, garbled, forged or a problem
counts as lost, is logged with the holder's name, and stops nobody else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from sordino.engines.flower import wire
from sordino.engines.flower.pki import Untrusted
from sordino.engines.flower.seals import ServerSeal
from sordino.engines.flower.wire import MalformedMessage, Message

log = logging.getLogger("sordino.server")


class Transport(Protocol):
    """The way to holders, by name."""

    def exchange(self, outgoing: Mapping[str, Message], deadline: float) -> dict[str, Message]:
        """Send each holder its message; gives the answers that came within `deadline` seconds."""

    def present(self) -> set[str]:
        """Who seems to be there."""

    def close(self) -> None: ...


class Direct:
    """Holders in this process, for tests and for trying things out; messages go through bytes all the same."""

    def __init__(self, handlers: Mapping[str, Callable[[bytes], bytes | None]]) -> None:
        self.handlers = dict(handlers)

    def exchange(self, outgoing: Mapping[str, Message], deadline: float) -> dict[str, Message]:
        replies = {}
        for name, message in outgoing.items():
            reply = self.handlers[name](wire.to_bytes(message)) if name in self.handlers else None
            if reply is not None:
                replies[name] = wire.from_bytes(reply)
        return replies

    def present(self) -> set[str]:
        return set(self.handlers)

    def close(self) -> None:
        pass


class SecureChannel:
    """Sealed exchanges with clients, by their number in the plan."""

    def __init__(self, transport: Transport, seal: ServerSeal, names: Iterable[str], run: str = "") -> None:
        self.transport, self.seal, self.names, self.run = transport, seal, list(names), run
        self.problems: dict[int, Message] = {}  # of the last exchange
        self.sent = self.received = 0  # bytes, for the overhead table

    def present(self) -> list[int]:
        """The clients that can be reached now, by number."""
        there = self.transport.present()
        return [k for k, name in enumerate(self.names) if name in there]

    def ask(self, outgoing: Mapping[int, Message], deadline: float) -> dict[int, Message]:
        """The good answers, by client."""
        sealed = {self.names[k]: self.seal.seal(p.but(run=self.run), self.names[k]) for k, p in outgoing.items()}
        self.problems, good = {}, {}
        self.sent += sum(message.size for message in sealed.values())
        replies = self.transport.exchange(sealed, deadline)
        for k in outgoing:
            name = self.names[k]
            if name not in replies:
                log.warning("%s did not answer within %g s", name, deadline)
                continue
            try:
                reply = self.seal.open(sealed[name], replies[name])
            except (Untrusted, MalformedMessage) as error:
                log.error("an answer of %s was refused: %s", name, error)
                continue
            self.received += reply.size
            if reply.kind == "problem":
                self.problems[k] = reply
                said = reply.head.get("said") or f"{reply.head.get('class')}; its own log says more"
                log.error("%s had a problem: %s", name, " ".join(str(said).split()))
            else:
                good[k] = reply
        return good

    def close(self) -> None:
        """Close the transport underneath."""
        self.transport.close()
