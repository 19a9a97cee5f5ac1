"""What all members of a secure sum agree on beforehand, and what they say in public.

A roster names the members, the threshold and how many sums it serves. Its digest goes into every key and every
signature, so that nothing said under one roster means anything under another. One roster serves several sums because
setting it up costs two exchanges; every sum has keys and seeds of its own, and what is revealed for one says nothing
about another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from sordino.errors import BadInput, SordinoError, whole
from sordino.plain import Plain
from sordino.secagg.field import ORDER


class Broken(SordinoError):
    """The protocol was not kept: by the server, by a member, or on the way. Nothing was revealed."""


class TooFew(Broken):
    """Too few members are left for the sum to be opened."""


@dataclass(frozen=True)
class Roster:
    """Who takes part. `threshold` members must be left at the end for a sum to be opened."""

    session: str  # never used twice
    members: tuple[int, ...]
    threshold: int
    sums: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple(sorted(self.members)))
        whole(threshold=self.threshold, sums=self.sums)
        whole(0, **{f"member {k}": k for k in self.members})
        size = len(self.members)
        if size != len(set(self.members)) or not 2 <= size <= ORDER:
            raise BadInput(f"a secure sum needs 2 to {ORDER} different members, not {size}.")
        if not size // 2 < self.threshold <= size:
            # Else a server that tells one half one thing and the other half another could open single contributions.
            raise BadInput(f"threshold must be above half of the {size} members and at most all, not {self.threshold}.")
        if not self.session or not isinstance(self.session, str):
            raise BadInput("a roster needs a session name that was never used before.")

    def point(self, member: int) -> int:
        """Where this member's shares lie on the polynomials."""
        return self.members.index(member) + 1

    @cached_property
    def digest(self) -> bytes:
        """What every letter is bound to: members who saw different rosters cannot read each other."""
        return hashlib.sha256(json.dumps(["sordino roster", self.to_json()], sort_keys=True).encode()).digest()

    def to_json(self) -> dict[str, object]:
        """The roster as the server sends it."""
        return {
            "session": self.session,
            "members": list(self.members),
            "threshold": self.threshold,
            "sums": self.sums,
        }

    @classmethod
    def from_json(cls, plain: Plain) -> Roster:
        """The roster that a server sent."""
        return cls(plain["session"], tuple(plain["members"]), plain["threshold"], plain["sums"])


class Identity(Protocol):
    """How a member signs, and knows the others' signatures; `NOBODY` where no keys were dealt out beforehand."""

    def sign(self, text: bytes) -> bytes:
        """This member's signature."""

    def verify(self, member: int, text: bytes, signature: bytes) -> bool:
        """Whether `member` signed this."""


class Unsigned:
    """No signatures. A server that plays members of its own invention can then read what it pleases."""

    def sign(self, text: bytes) -> bytes:
        return b""

    def verify(self, member: int, text: bytes, signature: bytes) -> bool:
        return True


NOBODY = Unsigned()


@dataclass(frozen=True)
class Advert:
    """A member's public keys: one for letters, and for each sum one for masks and a commitment to its own seed."""

    member: int
    letters: bytes
    masks: tuple[bytes, ...]
    seeds: tuple[bytes, ...]
    signature: bytes = b""

    def text(self, roster: Roster) -> bytes:
        """What is signed."""
        return b"".join([b"sordino advert", roster.digest, str(self.member).encode(), *self.keys])

    @property
    def keys(self) -> tuple[bytes, ...]:
        """All public keys of the advert, in the order that is signed."""
        return (self.letters, *self.masks, *self.seeds)

    def fits(self, roster: Roster) -> bool:
        """Whether the advert is of a member and has the keys that the roster asks for."""
        return (
            self.member in roster.members
            and len(self.masks) == len(self.seeds) == roster.sums
            and all(len(key) == 32 for key in self.keys)
        )

    def to_json(self) -> dict[str, object]:
        """The advert as it is sent."""
        return {
            "member": self.member,
            "letters": self.letters.hex(),
            "masks": [key.hex() for key in self.masks],
            "seeds": [key.hex() for key in self.seeds],
            "signature": self.signature.hex(),
        }

    @classmethod
    def from_json(cls, plain: Plain) -> Advert:
        """The advert that a member sent; a malformed one is refused."""
        try:
            return cls(
                int(plain["member"]),
                bytes.fromhex(plain["letters"]),
                tuple(map(bytes.fromhex, plain["masks"])),
                tuple(map(bytes.fromhex, plain["seeds"])),
                bytes.fromhex(plain["signature"]),
            )
        except (KeyError, TypeError, ValueError):
            raise Broken("an advert of keys cannot be read") from None


def commitment(roster: Roster, member: int, number: int, seed: bytes) -> bytes:
    """By which a restored seed is known to be the right one."""
    return hashlib.sha256(b"sordino seed" + roster.digest + f"{member} {number} ".encode() + seed).digest()


def agreement(roster: Roster, number: int, about: bytes, survivors: Iterable[int]) -> bytes:
    """What members sign to confirm that they were all told the same about a sum, and the same survivors."""
    return b"sordino survivors" + roster.digest + json.dumps([number, about.hex(), sorted(survivors)]).encode()
