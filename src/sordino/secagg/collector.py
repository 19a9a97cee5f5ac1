"""The part of the server in a secure sum: it carries messages, adds masked vectors and takes the masks off their sum.

It restores seeds and keys from the members' shares and checks each against what was advertised, so that a member who
hands out wrong shares is found out; as long as enough right ones are left, the sum is opened all the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from sordino.privacy.randomness import SERVER, stream
from sordino.secagg import masks, shamir
from sordino.secagg.masks import KEY
from sordino.secagg.member import pair_key
from sordino.secagg.roster import Advert, Broken, Roster, TooFew, commitment

_TRIES = 2000  # subsets of shares that are tried when some are wrong


class Collector:
    """One roster, seen from the server. Messages go through `adverts`, `letters` and, for each sum, a `Sum`."""

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.adverts: dict[int, Advert] = {}
        self.peers: tuple[int, ...] = ()  # who dealt out shares: those whose masks are in every sum

    def advertised(self, adverts: Mapping[int, Advert]) -> dict[int, Advert]:
        """What every member that advertised is to be sent."""
        fitting = {k: a for k, a in adverts.items() if a.member == k and a.fits(self.roster)}
        self._enough(len(fitting))
        self.adverts = fitting
        return fitting

    def shared(self, letters: Mapping[int, Mapping[int, bytes]]) -> dict[int, dict[int, bytes]]:
        """From letters by sender to letters by receiver; senders that left somebody out count as lost."""
        whole = {k for k, sent in letters.items() if k in self.adverts and set(sent) == set(self.adverts) - {k}}
        self._enough(len(whole))
        self.peers = tuple(sorted(whole))
        return {k: {j: letters[j][k] for j in self.peers if j != k} for k in self.peers}

    def _enough(self, count: int) -> None:
        if count < self.roster.threshold:
            raise TooFew(f"only {count} members are left, and a sum needs {self.roster.threshold}")


class SecureSum:
    """One sum under a collector: masked vectors in, their sum out."""

    def __init__(self, collector: Collector, number: int, length: int, about: bytes = b"") -> None:
        """`about` is what the members were told, as a digest; a false one opens nothing."""
        self.collector, self.roster, self.number, self.about = collector, collector.roster, number, about
        self._total = np.zeros(length, np.uint64)
        self.survivors: tuple[int, ...] = ()
        self.liars: set[int] = set()  # who handed out shares that do not fit

    def add(self, member: int, masked: np.ndarray) -> None:
        """One member's masked vector. What does not fit is refused and leaves the sum as it was."""
        if member not in self.collector.peers or member in self.survivors:
            raise Broken(f"member {member} is not expected in this sum")
        if masked.dtype != np.uint64 or masked.shape != self._total.shape:
            raise Broken(
                f"member {member} sent {masked.dtype} of shape {masked.shape}, not uint64 of {self._total.shape}"
            )
        self._total += masked
        self.survivors = tuple(sorted((*self.survivors, member)))

    def closed(self) -> tuple[int, ...]:
        """The survivors, if they are enough."""
        self.collector._enough(len(self.survivors))
        return self.survivors

    def open(self, shares: Mapping[int, Mapping[int, bytes]]) -> np.ndarray:
        """The sum of the survivors' vectors, from shares by the member that revealed them."""
        self.closed()
        roster, number, adverts = self.roster, self.number, self.collector.adverts
        self.collector._enough(len(shares))
        lost = [k for k in self.collector.peers if k not in self.survivors]
        seeds = {k: self._restore(k, shares, self._is_seed) for k in self.survivors}
        secrets = {k: self._restore(k, shares, self._is_secret) for k in lost}
        total = self._total.copy()
        for k, seed in seeds.items():
            masks.add_mask(total, masks.derive(seed, roster.digest, "own mask", number, k), -1)
        for k, secret in secrets.items():
            for j in self.survivors:
                key = pair_key(roster, number, self.about, secret, adverts[j].masks[number], k, j)
                masks.add_mask(total, key, -1 if j < k else +1)  # what survivor j had added with the lost k
        return total.view(np.int64)

    def _restore(
        self, whose: int, shares: Mapping[int, Mapping[int, bytes]], right: Callable[[int, bytes], bool]
    ) -> bytes:
        """The secret of one member, from any `threshold` shares that fit what it advertised."""
        parts = {k: said[whose] for k, said in shares.items() if len(said.get(whose, b"")) == KEY}
        for tried, chosen in enumerate(self._choices(parts)):
            secret = shamir.combine([parts[k] for k in chosen], [self.roster.point(k) for k in chosen])
            if right(whose, secret):
                if tried:
                    self._find_liars(parts, chosen, secret)
                return secret
        need = self.roster.threshold
        raise TooFew(f"the shares about member {whose} do not fit: {len(parts)} came, {need} right ones are needed")

    def _choices(self, parts: Mapping[int, bytes]) -> Iterator[tuple[int, ...]]:
        """Sets of shares to try: the honest so far, then every set if they are few, else some at random."""
        need = self.roster.threshold
        ordered = sorted(parts, key=lambda k: (k in self.liars, k))
        if len(ordered) < need:
            return
        yield tuple(ordered[:need])
        if math.comb(len(ordered), need) <= _TRIES:
            yield from itertools.islice(itertools.combinations(ordered, need), 1, None)
            return
        draw = stream(0, self.number, SERVER, "shares to try")
        for _ in range(_TRIES):
            yield tuple(int(k) for k in draw.choice(ordered, need, replace=False))

    def _find_liars(self, parts: Mapping[int, bytes], good: tuple[int, ...], secret: bytes) -> None:
        """A share is wrong if it is not on the polynomial through the good ones."""
        for k in parts:
            if k not in good:
                trial = (*good[:-1], k)
                if shamir.combine([parts[j] for j in trial], [self.roster.point(j) for j in trial]) != secret:
                    self.liars.add(k)

    def _is_seed(self, k: int, seed: bytes) -> bool:
        return commitment(self.roster, k, self.number, seed) == self.collector.adverts[k].seeds[self.number]

    def _is_secret(self, k: int, secret: bytes) -> bool:
        return masks.public_of(secret) == self.collector.adverts[k].masks[self.number]
