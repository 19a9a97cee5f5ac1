"""Signatures and sequence numbers on every message, from the program at one end to the program at the other.

TLS protects the way to Flower's SuperLink; what lies between it and the two programs that matter is protected here. The
server signs what it asks, with its number; a holder takes a number once, in increasing order, and signs its answer with
the same one. So a message that was changed, played again, meant for somebody else or sent by another run's owner is
refused by the end that gets it. `Plain` seals sign nothing: for simulations, in which there is nobody to keep out.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Protocol

from cryptography.x509.oid import ExtendedKeyUsageOID

from sordino.engines.flower import pki
from sordino.engines.flower.pki import Own, Untrusted
from sordino.engines.flower.wire import MalformedMessage, Message

EVERYONE = "*"  # whom a greeting may be addressed to, before names are known


class ServerSeal(Protocol):
    """The server's side: seals what goes out, opens what comes back."""

    def seal(self, message: Message, to: str) -> Message:
        """A message to this holder, with a number that is never used again."""

    def open(self, sent: Message, reply: Message) -> Message:
        """The reply, if it answers what was sent."""


class HolderSeal(Protocol):
    """A holder's side. `open` is told the last number that was taken."""

    def open(self, message: Message, last: int) -> Message: ...

    def seal(self, asked: Message, reply: Message) -> Message:
        """The reply to a message."""


def digest(message: Message) -> bytes:
    """Of everything but the signature."""
    head = {name: value for name, value in message.head.items() if name != "signature"}
    arrays = [[n, a.dtype.str, hashlib.sha256(a.data).hexdigest()] for n, a in sorted(message.arrays.items())]
    text = json.dumps(["sordino message", message.kind, head, arrays], sort_keys=True)
    return hashlib.sha256(text.encode()).digest()


class Numbers:
    """Numbers that grow, also from one start of the program to the next."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """A number above every earlier one, after a restart too."""
        self._last = max(self._last + 1, time.time_ns())
        return self._last


class Plain:
    """Numbers without signatures, for both sides."""

    def __init__(self) -> None:
        self._numbers = Numbers()

    def seal(self, message: Message, to: Message | str) -> Message:
        if isinstance(to, Message):  # a holder's answer to `message`
            return to.but(number=message.head.get("number"))
        return message.but(to=to, number=self._numbers.next())

    def open(self, message: Message, other: Message | int) -> Message:
        if isinstance(other, Message):
            return _answers(message, other)
        return _fresh(message, other)


class SignedServer:
    """The server's seal: its own certificate, and those of the nodes that it admits."""

    def __init__(self, own: Own, nodes: Mapping[str, str]) -> None:
        self.own, self._numbers = own, Numbers()
        self._public = {}
        for name, certificate in nodes.items():
            said, self._public[name] = pki.check(certificate, own.authority, ExtendedKeyUsageOID.CLIENT_AUTH)
            if said != name:
                raise Untrusted(f"the certificate of node {name} is made out to {said}.")

    def seal(self, message: Message, to: str) -> Message:
        made = message.but(to=to, number=self._numbers.next(), certificate=self.own.certificate)
        return made.but(signature=self.own.sign(digest(made)).hex())

    def open(self, sent: Message, reply: Message) -> Message:
        name = reply.head.get("from") if sent.head["to"] == EVERYONE else sent.head["to"]
        if name not in self._public:
            raise Untrusted(f"an answer came in the name of {name!r}, who is not admitted.")
        if reply.head.get("from") != name or not pki.verify(self._public[name], digest(reply), _signature(reply)):
            raise Untrusted(f"an answer in the name of {name} is not signed by that node.")
        return _answers(sent, reply)


class SignedHolder:
    """A holder's seal."""

    def __init__(self, own: Own) -> None:
        self.own = own

    def open(self, message: Message, last: int) -> Message:
        _, public = pki.check(message.get("certificate", str), self.own.authority, ExtendedKeyUsageOID.SERVER_AUTH)
        if not pki.verify(public, digest(message), _signature(message)):
            raise Untrusted("a message is not signed by the server, or was changed on its way.")
        if message.head.get("to") != self.own.name and (message.kind, message.head.get("to")) != ("hello", EVERYONE):
            raise Untrusted(f"a message is meant for {message.head.get('to')!r}.")
        return _fresh(message, last)

    def seal(self, asked: Message, reply: Message) -> Message:
        made = reply.but(number=asked.head.get("number"), **{"from": self.own.name})
        return made.but(signature=self.own.sign(digest(made)).hex())


def _fresh(message: Message, last: int) -> Message:
    if message.get("number", int) <= last:
        raise Untrusted("a message was played again, or came out of order.")
    return message


def _answers(sent: Message, reply: Message) -> Message:
    if reply.head.get("number") != sent.head["number"]:
        raise Untrusted(f"an answer of {sent.head['to']} is to another question.")
    return reply


def _signature(message: Message) -> bytes:
    try:
        return bytes.fromhex(message.get("signature", str))
    except ValueError:
        raise MalformedMessage("a signature cannot be read.") from None
