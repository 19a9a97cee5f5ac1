"""Secure sums over messages: the server's side of `sordino.secagg`, driven through the engine's exchanges.

    keys, letters            once for a roster; then, for each sum,
    work                     masked vectors (the first one also brings the others' letters)
    confirm                  every survivor signs the list of survivors
    reveal                   shares that open the sum

A roster serves many sums while the same clients take part, since every sum has keys of its own; who was lost in one may
be back in the next. Clients that were not there when the roster was made get a new one made.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino.engines import Aborted
from sordino.engines.flower.transport import SecureChannel
from sordino.engines.flower.wire import MalformedMessage, Message
from sordino.secagg.collector import Collector, SecureSum
from sordino.secagg.roster import Advert, Broken, Roster, TooFew

if TYPE_CHECKING:
    from sordino.engines.flower.engine import Patience, Remote

log = logging.getLogger("sordino.server")
SUMS = 16  # that one roster serves while everyone takes part


@dataclass(frozen=True)
class Opened:
    """A sum, and the answers of those whose contributions are in it."""

    total: np.ndarray
    replies: dict[int, Message]


class SecureSums:
    """Rosters and sums of one run."""

    def __init__(self, post: SecureChannel, patience: Patience, clients: int) -> None:
        self.post, self.patience, self.clients = post, patience, clients
        self._collector: Collector | None = None
        self._letters: dict[int, dict[int, bytes]] = {}  # not delivered yet
        self._next = 0

    def threshold(self, members: int, survivors: int) -> int:
        """How many must be left: enough honest noise, and too many for a server to tell two stories."""
        extra = self.patience.colluders
        return max(survivors + extra, (members + extra) // 2 + 1, min(self.patience.least, members))

    def run(
        self,
        engine: Remote,
        message: Message,
        there: list[int],
        length: int,
        survivors: int,
        full: bool,
        about: bytes,
    ) -> Opened:
        """One sum over those who are `there`; `Aborted` if it cannot be opened. `about`: what everyone was told."""
        try:
            collector = self._ready(engine, there, survivors, full)
            number, self._next = self._next, self._next + 1
            total = SecureSum(collector, number, length, about)
            replies = self._gather(engine, message, total, [k for k in there if k in collector.peers])
            agreed = self._agree(engine, total, number)
            return Opened(self._open(engine, total, number, agreed), {k: replies[k] for k in total.survivors})
        except TooFew as few:
            raise Aborted(f"{few}; nothing was opened.") from None

    # ---- the roster ------------------------------------------------------------------------------

    def _ready(self, engine: Remote, there: list[int], survivors: int, full: bool) -> Collector:
        kept = self._collector
        fits = kept is not None and set(there) <= set(kept.peers) and len(there) >= kept.roster.threshold
        if kept is not None and fits and self._next < kept.roster.sums:
            return kept
        if len(there) < 2:
            raise TooFew(f"only {len(there)} members are left, and a sum needs 2")
        session = f"{self.post.run}-{os.urandom(12).hex()}"
        roster = Roster(session, tuple(there), self.threshold(len(there), survivors), SUMS if full else 2)
        self._collector = None
        collector = Collector(roster)
        said = engine.ask({k: Message("keys", {"roster": roster.to_json()}) for k in there})
        adverts = collector.advertised(
            _each(said, lambda reply: Advert.from_json(reply.get("advert", dict)), self.post)
        )
        asked = Message("letters", {"session": session, "adverts": [a.to_json() for a in adverts.values()]})
        said = engine.ask({k: asked for k in adverts})
        self._letters = collector.shared(_each(said, lambda reply: _hexes(reply.get("letters", dict)), self.post))
        self._collector, self._next = collector, 0
        return collector

    # ---- a sum -----------------------------------------------------------------------------------

    def _gather(self, engine: Remote, message: Message, total: SecureSum, asked: list[int]) -> dict[int, Message]:
        outgoing = {}
        for k in asked:
            outgoing[k] = message.but(session=total.roster.session, number_of_sum=total.number)
            if k in self._letters:
                mine = {str(j): letter.hex() for j, letter in self._letters[k].items()}
                outgoing[k] = outgoing[k].but(letters=mine)
        replies = engine.ask(outgoing)
        if any(p.head.get("class") == "NotEnrolled" for p in self.post.problems.values()):
            self._collector = None  # someone lost its part of the roster: the next sum gets a new one
        for k, reply in sorted(replies.items()):
            self._letters.pop(k, None)
            try:
                total.add(k, reply.array("masked", np.uint64))
            except (Broken, MalformedMessage) as error:
                log.error("the contribution of %s was refused: %s", self.post.names[k], error)
        return replies

    def _agree(self, engine: Remote, total: SecureSum, number: int) -> dict[int, str]:
        survivors = total.closed()
        asked = Message("confirm", self._about(total, number) | {"survivors": list(survivors)})
        said = _each(engine.ask({k: asked for k in survivors}), lambda reply: reply.get("agreed", str), self.post)
        if len(said) < total.roster.threshold:
            raise TooFew(f"only {len(said)} members are left, and a sum needs {total.roster.threshold}")
        return said

    def _open(self, engine: Remote, total: SecureSum, number: int, agreed: dict[int, str]) -> np.ndarray:
        asked = Message("reveal", self._about(total, number) | {"agreed": {str(k): text for k, text in agreed.items()}})
        said = _each(engine.ask({k: asked for k in agreed}), lambda reply: _hexes(reply.get("shares", dict)), self.post)
        opened = total.open(said)
        for k in total.liars:
            log.error("%s handed out wrong shares", self.post.names[k])
        return opened

    def _about(self, total: SecureSum, number: int) -> dict[str, object]:
        return {"session": total.roster.session, "number_of_sum": number}


def _each(replies: dict[int, Message], read: Any, post: SecureChannel) -> dict[int, Any]:
    """What each reply says; one that cannot be read is as good as none."""
    found = {}
    for k, reply in replies.items():
        try:
            found[k] = read(reply)
        except (MalformedMessage, Broken, ValueError) as error:
            log.error("an answer of %s was refused: %s", post.names[k], error)
    return found


def _hexes(plain: dict[str, str]) -> dict[int, bytes]:
    return {int(k): bytes.fromhex(text) for k, text in plain.items()}
