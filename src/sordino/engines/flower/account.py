"""FedMAP's account at the client that it belongs to, for runs whose server is told sums only.

The account has two entries for the last round that the client took part in: its state before the round, and its state after it. The
account is on disk before a round's budget is granted and before an answer leaves. The next round goes on from

    the entry after     as a rule
    the entry before    if the same round is tried again, with the same seeded noise; with secure noise it is refused
    before, charged     if the round failed here, or the server says that it failed everywhere: all of its budget counts
                        as spent

What the server says can only add to what counts as spent, never take from it. The same holds for a file that fell behind when the
machine went down: the ledger is synced to the disk, and a round that it knows and the account does not know counts as spent too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np

from sordino.engines.flower import wire
from sordino.engines.flower.policy import Refused
from sordino.engines.flower.wire import MalformedMessage, Message
from sordino.federation.sampling import public_cohort
from sordino.files import write_atomically
from sordino.privacy.ledger import Ledger
from sordino.schemes.fedmap import allocation, messages
from sordino.schemes.fedmap.budgets import Budgets
from sordino.schemes.fedmap.client import ClientState, ClientTask
from sordino.schemes.terms import Terms


class Account:
    """One client's, in one file."""

    def __init__(self, path: Path, terms: Terms, me: int) -> None:
        assert isinstance(terms, Budgets)
        self.path, self.me, self.secure = path, me, terms.plan.secure
        self.budget, self.turns = terms.budget, int(terms.turns[me])
        self._mine = [t for t in range(1, terms.plan.rounds + 1) if me in public_cohort(terms.plan, t)]
        self.round = 0  # the last that was begun
        self.before: ClientState = ClientState.blank()
        self.after: ClientState | None = self.before
        self._grant = 0.0  # of that round
        self._base = self.before  # of the task that was asked for last
        if path.exists():
            self._load()

    def task(self, t: int, lost: Collection[int], ledger: Ledger) -> ClientTask:
        """What the client may spend in round t, and all that the work needs to know. Nothing is kept yet."""
        if t < self.round or self.secure and (t == self.round or ledger.granted(t) is not None):
            raise Refused(f"round {t} was begun before, and its noise is not drawn twice.")
        own = self.before if t == self.round else self._kept(lost)
        for grant in ledger:
            if self.round < grant.round < t:
                assert grant.costs is not None
                own = allocation.lost(own, float(np.sum(np.asarray(grant.costs))))
        # Turns are public: a client that could not be reached in some of them knows how many are over.
        self._base = replace(own, turns=sum(s < t for s in self._mine))
        return allocation.next_task(self.me, self._base, self.budget, self.turns)

    def begin(self, t: int, task: ClientTask) -> None:
        """Before the round's budget is granted: should anything happen from here on, it counts as spent."""
        self.round, self.before, self.after, self._grant = t, self._base, None, task.grant
        self._save()

    def close(self, own: ClientState) -> None:
        """Keep the client's state as it is after the round."""
        self.after = own
        self._save()

    def _kept(self, lost: Collection[int]) -> ClientState:
        if self.after is not None and self.round not in lost:
            return self.after
        return allocation.lost(self.before, self._grant)

    # ---- disk ------------------------------------------------------------------------------------

    def _save(self) -> None:
        head: dict[str, object] = {"round": self.round, "grant": self._grant}
        arrays: dict[str, np.ndarray] = {}
        for name, own in (("before", self.before), ("after", self.after)):
            if own is not None:
                head[name], parts = messages.state_to_plain(own)
                arrays |= {f"{name}.{part}": array for part, array in parts.items()}
        write_atomically(self.path, wire.to_bytes(Message("account", head, arrays)), private=True)

    def _load(self) -> None:
        try:
            kept = wire.from_bytes(self.path.read_bytes())
        except MalformedMessage:
            return  # it never reached the disk as a whole: what the ledger says counts as spent
        self.round, self._grant = kept.head["round"], kept.head["grant"]
        owns: dict[str, ClientState | None] = {"after": None}
        for name in ("before", "after"):
            if name in kept.head:
                parts = {
                    key[len(name) + 1 :]: array for key, array in kept.arrays.items() if key.startswith(name + ".")
                }
                owns[name] = messages.state_from_plain(kept.head[name], parts)
        assert owns["before"] is not None
        self.before, self.after = owns["before"], owns["after"]
