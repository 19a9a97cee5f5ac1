"""A data holder's part in the secure sums of one run: its keys, what it says to the other members, and what it masks.

The protocol itself is `sordino.secagg.member`. Here each step is held against the run and the holder's own policy, and what a
member knows is on disk before an answer leaves: a member that forgot what it said must not speak again.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
from cryptography.x509.oid import ExtendedKeyUsageOID

from sordino import errors
from sordino.engines.flower import pki
from sordino.engines.flower.policy import Refused
from sordino.engines.flower.wire import Message
from sordino.files import write_atomically
from sordino.secagg.member import Member
from sordino.secagg.roster import NOBODY, Advert, Identity, Roster

log = logging.getLogger("sordino.holder")


class NotEnrolled(errors.SordinoError):
    """A message about a run that this holder does not know; the server enrols it again."""


class Membership:
    """One sum at a time is under way."""

    def __init__(self, run: str, folder: Path, identity: Identity) -> None:
        self._run, self._path, self._identity = run, folder / "member.json", identity
        self._member = self._recall()

    def keys(self, asked: Message, me: int, clients: int, least: int) -> Message:
        """Begin a sum that takes `least` members to open."""
        roster = Roster.from_json(asked.get("roster", dict))
        if not set(roster.members) <= set(range(clients)) or me not in roster.members:
            raise Refused("the roster of a secure sum does not fit the run.")
        if roster.threshold < least:
            raise Refused(f"a secure sum could be opened with {roster.threshold} clients; it takes {least} here.")
        if not roster.session.startswith(self._run):
            raise Refused("the session of a secure sum belongs to another run.")
        self._member = Member(roster, me, self._identity)
        self._keep()
        return Message("keys", {"advert": self._member.advertise().to_json()})

    def letters(self, asked: Message) -> Message:
        """To every other member, a letter that it alone can read."""
        member = self.member(asked)
        adverts = [Advert.from_json(plain) for plain in asked.get("adverts", list)]
        letters = member.share({advert.member: advert for advert in adverts})
        self._keep()
        return Message("letters", {"letters": {str(k): letter.hex() for k, letter in letters.items()}})

    def receive(self, asked: Message) -> None:
        """The letters of the others, if the message brings them."""
        member = self.member(asked)
        if "letters" not in asked.head:
            return
        member.receive({int(k): bytes.fromhex(text) for k, text in asked.get("letters", dict).items()})
        for k, why in member.suspects.items():
            log.warning("the letter of client %d was tampered with: %s", k, why)
        self._keep()

    def mask(self, asked: Message, codes: np.ndarray, about: bytes) -> np.ndarray:
        """What is sent in the place of `codes`; `about` is what all members were told."""
        masked = self.member(asked).mask(asked.get("number_of_sum", int), codes, about)
        self._keep()
        return masked

    def confirm(self, asked: Message) -> Message:
        """Sign the list of members whose sum is to be opened."""
        signature = self.member(asked).confirm(asked.get("number_of_sum", int), tuple(asked.get("survivors", list)))
        self._keep()
        return Message("confirm", {"agreed": signature.hex()})

    def reveal(self, asked: Message) -> Message:
        """Shares of what takes the masks off, if all have signed the same list."""
        signatures = {int(k): bytes.fromhex(text) for k, text in asked.get("agreed", dict).items()}
        shares = self.member(asked).reveal(asked.get("number_of_sum", int), signatures)
        self._keep()
        return Message("reveal", {"shares": {str(k): share.hex() for k, share in shares.items()}})

    def member(self, asked: Message) -> Member:
        """Of the sum that a message names."""
        session = asked.get("session", str)
        if self._member is None or self._member.roster.session != session:
            raise NotEnrolled("a message is about a secure sum that this holder does not know.")
        return self._member

    def _keep(self) -> None:
        assert self._member is not None
        write_atomically(self._path, json.dumps({"boot": boot(), **self._member.to_json()}), private=True)

    def _recall(self) -> Member | None:
        """The member that a process which died left behind. What lies there from before the machine itself went down may
        be behind what was said, and is not used."""
        plain = json.loads(self._path.read_text()) if self._path.exists() else {}
        return Member.from_json(plain, self._identity) if plain.get("boot") == boot() else None


class Signed:
    """Members know each other by certificates that the federation's authority issued."""

    def __init__(self, own: pki.Own, names: list[str], certificates: dict[str, str]) -> None:
        self._own, self._public = own, {}
        for k, name in enumerate(names):
            if name not in certificates:
                raise Refused(f"there is no certificate of client {name}, and members must know each other here.")
            said, public = pki.check(certificates[name], own.authority, ExtendedKeyUsageOID.CLIENT_AUTH)
            if said != name:
                raise Refused(f"the certificate of client {name} is made out to someone else.")
            self._public[k] = public

    def sign(self, text: bytes) -> bytes:
        return self._own.sign(text)

    def verify(self, member: int, text: bytes, signature: bytes) -> bool:
        return pki.verify(self._public[member], text, signature)


def identity(own: pki.Own | None, names: list[str], certificates: dict[str, str]) -> Identity:
    """Signed where keys were dealt out."""
    return NOBODY if own is None else Signed(own, names, certificates)


def boot() -> str:
    """Tells one start of the machine from the next, where the system says."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
