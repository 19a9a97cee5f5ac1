"""The part of a member in a secure sum (Bonawitz et al. 2017, figure 4).

    advertise()                     public keys, signed
    share(adverts)                  this member's secrets, in sealed letters to the others
    receive(letters)                the others' letters
    mask(number, codes, about)      x + own mask + the masks with every other member, modulo 2^64
    confirm(number, survivors)      signs what the sum is about, and whom it was told to be left
    reveal(number, ..., signatures) for each survivor a share of its own seed, for each of the lost one of its mask key

A member masks once for each sum and never reveals both kinds of share about anybody. That, a threshold above half, and
signatures on one list of survivors are what keep a lying server from opening a single contribution.

`about` is a digest of everything that the members were told about a sum: plan, public facts and request. It is part of
every mask that two members have in common, so that the masks of members that were told different things do not cancel,
and of what they sign. A server that tells one member another bound than the rest gets noise of 64 random bits.

The state is plain data (`to_json`), to be on disk before the next message leaves; a member that forgot what it has said
must not speak again under the same roster.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

import numpy as np

from sordino.errors import BadInput
from sordino.plain import Plain
from sordino.secagg import masks, shamir
from sordino.secagg.masks import KEY
from sordino.secagg.roster import NOBODY, Advert, Broken, Identity, Roster, TooFew, agreement, commitment


class Member:
    """One member under one roster. Any method may raise `Broken`; the member then takes no further part in that sum."""

    def __init__(self, roster: Roster, me: int, identity: Identity = NOBODY) -> None:
        if me not in roster.members:
            raise BadInput(f"member {me} is not on the roster.")
        self.roster, self.me, self.identity = roster, me, identity
        self._letters = masks.new_secret()
        self._masks = [masks.new_secret() for _ in range(roster.sums)]
        self._seeds = [os.urandom(KEY) for _ in range(roster.sums)]
        self._adverts: dict[int, Advert] = {}
        self._shares: dict[int, bytes] = {}  # of the others' secrets, and of its own
        self._peers: tuple[int, ...] = ()
        self._masked: dict[int, bytes] = {}  # sums that were masked, and what they were about
        self._confirmed: dict[int, tuple[int, ...]] = {}
        self._revealed: set[int] = set()
        self.suspects: dict[int, str] = {}  # whose letters could not be opened, and why

    # ---- setting up -----------------------------------------------------------------------------

    def advertise(self) -> Advert:
        """The public keys of this member and commitments to its seeds, signed."""
        roster, me = self.roster, self.me
        seeds = tuple(commitment(roster, me, n, seed) for n, seed in enumerate(self._seeds))
        advert = Advert(me, masks.public_of(self._letters), tuple(map(masks.public_of, self._masks)), seeds)
        signature = self.identity.sign(advert.text(roster))
        return Advert(advert.member, advert.letters, advert.masks, advert.seeds, signature)

    def share(self, adverts: Mapping[int, Advert]) -> dict[int, bytes]:
        """Letters with shares of this member's secrets, one for each of the others that advertised."""
        if self._adverts:
            raise Broken("the keys of this roster were dealt out before")
        self._check(adverts)
        present = sorted(adverts)
        points = [self.roster.point(k) for k in present]
        secrets = b"".join(seed + secret for seed, secret in zip(self._seeds, self._masks))
        parts = dict(zip(present, shamir.split(secrets, self.roster.threshold, points)))
        self._adverts = dict(adverts)
        self._shares[self.me] = parts.pop(self.me)
        return {k: masks.seal(self._letter_key(self.me, k), part) for k, part in parts.items()}

    def _check(self, adverts: Mapping[int, Advert]) -> None:
        roster = self.roster
        mine = adverts.get(self.me)
        if mine is None or mine.keys != self.advertise().keys:
            raise Broken("this member's own keys are missing from the list, or were changed")
        _enough(len(adverts), roster)
        seen: set[bytes] = set()
        for k, advert in adverts.items():
            if advert.member != k or not advert.fits(roster):
                raise Broken(f"the keys of member {k} do not fit the roster")
            if not self.identity.verify(k, advert.text(roster), advert.signature):
                raise Broken(f"the keys of member {k} are not signed by that member")
            if seen.intersection(advert.keys) or len(set(advert.keys)) != len(advert.keys):
                raise Broken(f"the keys of member {k} are used twice")
            seen.update(advert.keys)

    def receive(self, letters: Mapping[int, bytes]) -> None:
        """The others' letters. Whose letter cannot be opened is a suspect; the sum may still succeed without it."""
        if not self._adverts or self._peers:
            raise Broken("letters came before the keys, or twice")
        if not set(letters) <= set(self._adverts) - {self.me}:
            raise Broken("there are letters from members that did not advertise keys")
        _enough(len(letters) + 1, self.roster)
        for k, letter in letters.items():
            try:
                part = masks.unseal(self._letter_key(k, self.me), letter)
                if len(part) != 2 * KEY * self.roster.sums:
                    raise masks.Unsealable("the letter has the wrong length")
                self._shares[k] = part
            except (masks.Unsealable, ValueError) as error:
                self.suspects[k] = str(error)
        self._peers = tuple(sorted(letters))

    def _letter_key(self, sender: int, receiver: int) -> bytes:
        other = self._adverts[sender if receiver == self.me else receiver]
        try:
            return masks.agree(self._letters, other.letters, self.roster.digest, "letter", sender, receiver)
        except ValueError:
            raise Broken(f"the key of member {other.member} is no good") from None

    # ---- a sum ----------------------------------------------------------------------------------

    def mask(self, number: int, codes: np.ndarray, about: bytes = b"") -> np.ndarray:
        """The masked vector; once for each sum, for two vectors under one mask would show their difference."""
        self._sum(number)
        if not self._peers:
            raise Broken("there is nobody to mask with yet")
        if number in self._masked:
            raise Broken(f"sum {number} of this roster was masked before")
        if codes.dtype != np.int64 or codes.ndim != 1:
            raise BadInput(f"a sum is over flat vectors of int64, not {codes.dtype} of shape {codes.shape}.")
        self._masked[number] = about
        out = codes.astype(np.uint64)  # the same bits; arithmetic on them is modulo 2^64
        own = masks.derive(self._seeds[number], self.roster.digest, "own mask", number, self.me)
        masks.add_mask(out, own, +1)
        for k in self._peers:
            theirs = self._adverts[k].masks[number]
            key = pair_key(self.roster, number, about, self._masks[number], theirs, self.me, k)
            masks.add_mask(out, key, +1 if self.me < k else -1)
        return out

    def confirm(self, number: int, survivors: tuple[int, ...]) -> bytes:
        """A signature under the list of survivors; one list for each sum."""
        self._sum(number)
        survivors = tuple(sorted(survivors))
        if number not in self._masked:
            raise Broken(f"sum {number} was not masked yet")
        if self._confirmed.setdefault(number, survivors) != survivors:
            raise Broken(f"two different lists of survivors were shown for sum {number}")
        if len(set(survivors)) != len(survivors) or not set(survivors) <= {self.me, *self._peers}:
            raise Broken("the list of survivors names members that were not there")
        if self.me not in survivors:
            raise Broken("the list of survivors leaves this member out")
        _enough(len(survivors), self.roster)
        return self.identity.sign(agreement(self.roster, number, self._masked[number], survivors))

    def reveal(self, number: int, signatures: Mapping[int, bytes]) -> dict[int, bytes]:
        """For each survivor a share of its seed, for each of the lost a share of its mask key."""
        self._sum(number)
        survivors = self._confirmed.get(number)
        if survivors is None:
            raise Broken(f"no list of survivors was confirmed for sum {number}")
        if number in self._revealed:
            raise Broken(f"shares for sum {number} were revealed before")
        text = agreement(self.roster, number, self._masked[number], survivors)
        valid = [k for k, sign in signatures.items() if k in survivors and self.identity.verify(k, text, sign)]
        _enough(len(valid), self.roster)
        self._revealed.add(number)
        at = 2 * KEY * number
        parts = {}
        for k in (self.me, *self._peers):
            if k in self._shares:
                seed, secret = self._shares[k][at : at + KEY], self._shares[k][at + KEY : at + 2 * KEY]
                parts[k] = seed if k in survivors else secret
        return parts

    def _sum(self, number: int) -> None:
        if not isinstance(number, int) or not 0 <= number < self.roster.sums:
            raise Broken(f"this roster has no sum {number!r}")

    # ---- to disk and back -----------------------------------------------------------------------

    def to_json(self) -> dict[str, object]:
        """Everything, secrets included: for a file that nobody else can read."""
        return {
            "roster": self.roster.to_json(),
            "me": self.me,
            "letters": self._letters.hex(),
            "masks": [secret.hex() for secret in self._masks],
            "seeds": [seed.hex() for seed in self._seeds],
            "adverts": [advert.to_json() for advert in self._adverts.values()],
            "shares": {str(k): part.hex() for k, part in self._shares.items()},
            "peers": list(self._peers),
            "masked": {str(n): about.hex() for n, about in self._masked.items()},
            "confirmed": {str(n): list(who) for n, who in self._confirmed.items()},
            "revealed": sorted(self._revealed),
        }

    @classmethod
    def from_json(cls, plain: Plain, identity: Identity = NOBODY) -> Member:
        """The member that `to_json` kept, to go on after a restart."""
        made = cls(Roster.from_json(plain["roster"]), plain["me"], identity)
        made._letters = bytes.fromhex(plain["letters"])
        made._masks = [bytes.fromhex(secret) for secret in plain["masks"]]
        made._seeds = [bytes.fromhex(seed) for seed in plain["seeds"]]
        made._adverts = {advert.member: advert for advert in map(Advert.from_json, plain["adverts"])}
        made._shares = {int(k): bytes.fromhex(part) for k, part in plain["shares"].items()}
        made._peers = tuple(plain["peers"])
        made._masked = {int(n): bytes.fromhex(about) for n, about in plain["masked"].items()}
        made._confirmed = {int(n): tuple(who) for n, who in plain["confirmed"].items()}
        made._revealed = set(plain["revealed"])
        return made


def pair_key(roster: Roster, number: int, about: bytes, secret: bytes, public: bytes, one: int, other: int) -> bytes:
    """The key of the mask that two members have in common in one sum, if both were told the same about it."""
    salt = hashlib.sha256(roster.digest + about).digest()
    try:
        return masks.agree(secret, public, salt, "pair mask", number, min(one, other), max(one, other))
    except ValueError:
        raise Broken(f"the mask key of member {one} or {other} is no good") from None


def _enough(count: int, roster: Roster) -> None:
    if count < roster.threshold:
        raise TooFew(f"only {count} members are left, and a sum needs {roster.threshold}")
