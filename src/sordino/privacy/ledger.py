"""The append-only record of granted releases. A grant is on disk before anyone may touch data.

The file is JSON lines (`ledger_chain`). The first line says for which plan, filter, unit, relation and observer it holds;
each further one is a grant, or a remark that costs nothing. `request` charges the filter, appends one line, and returns when it
is on disk. So a grant that a crash left in the file counts, whether or not its round ever ran.

After a crash between grant and checkpoint, a seeded simulation draws the same cohort and the same noise again, so
nothing new is released and the grant serves again (`resume`). Noise from a secure source is new, and with the first
release it would make two. Where the cohort and the records are drawn anew as well, the round may be charged once more
(`resume`); where they are not, two releases on one draw would cost more than two rounds, and the round is given up for
lost (`forfeit`).

Refusals are not written: they change nothing, and a ledger whose budget is spent stays as it is to the last byte.

The file is made readable by its owner alone. Cohorts in it undo amplification by sampling towards its readers, and
what a single client was charged may be private: publish the statement, not the ledger.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from numpy.typing import ArrayLike

from sordino.errors import BadInput, SordinoError, whole
from sordino.privacy import events
from sordino.privacy import ledger_format as lines
from sordino.privacy.client_budgets import ClientBudgets
from sordino.privacy.events import Event
from sordino.privacy.filter import Filter
from sordino.privacy.filter import from_json as filter_from_json
from sordino.privacy.grant import Grant, Grants
from sordino.privacy.ledger_chain import Chain
from sordino.privacy.ledger_format import Head, Row
from sordino.privacy.vocabulary import Observer, Relation, Unit


class Ledger:
    """Use `create`, `open` or `read`. One process at a time can hold a ledger open for writing."""

    def __init__(self, chain: Chain, spending: ClientBudgets | None = None) -> None:
        self._chain = chain
        self._book = Grants()
        self._replay(spending)

    # --- opening ------------------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: str | Path,
        plan_digest: str,
        filter: Filter,
        about: Mapping[str, object],
        spending: ClientBudgets | None = None,
    ) -> Ledger:
        """A new ledger for the plan with this digest. `about` holds at least unit, relation and observer."""
        if not plan_digest:
            raise BadInput("A ledger belongs to one plan; give the plan's digest.")
        for name, words in (("unit", Unit), ("relation", Relation), ("observer", Observer)):
            if about.get(name) not in list(words):
                raise BadInput(f"A ledger states its {name}, one of {', '.join(words)}, not {about.get(name)!r}.")
        for kept in (filter, spending):
            if kept is not None and kept.relation not in (None, about["relation"]):
                raise BadInput(f"The budget is for {kept.relation}, the plan for {about['relation']}; use one.")
        if spending is not None and (spending.seq or spending.largest()):
            raise BadInput(
                "The clients have spent something before the ledger begins; start with a fresh ClientBudgets."
            )
        header = {
            "plan": plan_digest,
            "about": about,
            "filter": filter.to_json(),
            "spending": spending.to_json() if spending else None,
        }
        ledger = cls(Chain.create(Path(path), header), spending)
        ledger.filter = filter  # the caller's own, in the same state
        return ledger

    @classmethod
    def open(
        cls,
        path: str | Path,
        plan_digest: str,
        head: Head | None = None,
        spending: ClientBudgets | None = None,
    ) -> Ledger:
        """Go on with the ledger at `path`: replay it, and put a torn last line to rest.

        `head` (`Ledger.head`, kept in a checkpoint) must be part of it. `spending`, restored from a checkpoint, saves
        replaying the clients' charges up to that point.
        """
        chain = Chain.open(Path(path))
        try:
            ledger = cls(chain, spending)
            ledger._belongs(plan_digest, head)
            torn = chain.mend()
            if torn is not None:
                ledger._charge_again(chain.seq, torn)
        except BaseException:
            chain.close()
            raise
        return ledger

    @classmethod
    def read(cls, path: str | Path, plan_digest: str | None = None) -> Ledger:
        """Read a ledger that any process may hold: it is verified and replayed; nothing is locked or written."""
        ledger = cls(Chain.read(Path(path)))
        ledger._belongs(plan_digest or ledger.plan_digest, None)
        return ledger

    def close(self) -> None:
        """Let go of the file and its lock."""
        self._chain.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what it says -------------------------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """The file."""
        return self._chain.path

    @property
    def grants(self) -> tuple[Grant, ...]:
        """Everything that was charged, in order."""
        return tuple(self._book.all)

    def __iter__(self) -> Iterator[Grant]:
        return iter(self._book.all)

    @property
    def last(self) -> Grant | None:
        """The latest grant; None before the first."""
        return self._book.all[-1] if self._book.all else None

    @property
    def rounds(self) -> int:
        """How many different rounds were granted."""
        return len(self._book.rounds)

    @property
    def lost(self) -> int:
        """How many granted rounds were given up."""
        return len(self._book.lost)

    @property
    def head(self) -> Head:
        """The last line's number and hash, for a checkpoint."""
        return self._chain.head

    def holds(self, head: Head) -> bool:
        """Whether a line that `head` named before is in this ledger."""
        return self._chain.holds(head)

    def granted(self, round: int, step: int = 0) -> Grant | None:
        """The latest grant of this step of this round."""
        return self._book.latest.get((round, step))

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, {len(self._book.all)} grants, {self.filter!r})"

    # --- granting -----------------------------------------------------------------------------------------------------

    def request(
        self,
        event: Event,
        round: int,
        clients: ArrayLike | None = None,
        costs: ArrayLike | None = None,
        step: int = 0,
    ) -> Grant:
        """Charge `event` and return once that is on disk; `BudgetRefused` charges and writes nothing.

        `clients` records the cohort. In a ledger with per-client spending it is required, and each client is charged
        its entry of `costs` (default: the cost of `event`). `step` tells apart several requests of one round.
        """
        whole(0, round=round, step=step)
        if (round, step) in self._book.latest:
            raise BadInput(f"Round {round} (step {step}) was granted before; use resume to run it again after a crash.")
        return self._grant(event, round, step, 1, clients, costs)

    def resume(
        self,
        round: int,
        secure: bool,
        event: Event | None = None,
        clients: ArrayLike | None = None,
        costs: ArrayLike | None = None,
        step: int = 0,
    ) -> Grant | None:
        """What a round that may have been cut short can run under; None if it was never granted (then `request`).

        Without secure noise the standing grant serves again; with it the round is charged once more, with the same
        event, and the same cohort unless another is given: that is for callers who also draw their sample anew.
        `event`, if given, is what the caller is about to release: where it is not what was granted, resuming is refused.
        """
        standing = self._book.latest.get((round, step))
        if standing is None:
            return None
        if event is not None and self._book.event(events.to_json(event)) != standing.event:
            raise BadInput(f"Round {round} (step {step}) was granted for another release; resume its own plan.")
        if secure:
            if clients is None:
                clients, costs = standing.clients, standing.costs
            return self._grant(standing.event, round, step, standing.attempt + 1, clients, costs)
        self._chain.append({"kind": "reuse", "round": round, "step": step, "attempt": standing.attempt})
        return replace(standing, reused=True)

    def forfeit(self, round: int) -> None:
        """Note that a granted round will not be run again: what it was granted is spent."""
        if round not in self._book.rounds:
            raise BadInput(f"Round {round} was never granted; only a granted round can be given up.")
        if round not in self._book.lost:
            self._chain.append({"kind": "lost", "round": round})
            self._book.lost.add(round)

    def _grant(
        self, event: Event, t: int, step: int, attempt: int, clients: ArrayLike | None, costs: ArrayLike | None
    ) -> Grant:
        described = events.to_json(event)
        event = self._book.event(described)  # as a replay will read it
        row: Row = {"kind": "grant", "round": t, "step": step, "attempt": attempt}
        ids = charged = None
        if clients is not None:
            ids, charged = lines.cohort(clients, costs)
            row["clients"] = lines.pack_ids(ids)
        if self.spending is not None:
            if ids is None:
                raise BadInput("This ledger keeps a budget for each client; name the clients of the round.")
            charged = self.spending.price(event) if charged is None else charged
            row["costs"] = lines.pack_costs(charged)
        elif costs is not None:
            raise BadInput("This ledger keeps no budget for single clients; leave out their costs.")
        row["event"] = described  # last, so that a torn line which shows the event shows all the rest
        self._chain.usable()
        if self.spending is not None and ids is not None and charged is not None and self.filter.affords(event):
            self.spending.charge(ids, charged)
        self.filter.request(event)
        self._chain.append(row)
        if self.spending is not None:
            self.spending.seq = self._chain.seq
        return self._book.keep(self._chain.seq, row, event)

    # --- the rows -----------------------------------------------------------------------------------------------------

    def _replay(self, spending: ClientBudgets | None) -> None:
        """Read every line, and bring the filter to where it was."""
        chain = self._chain
        for number, row in chain.rows():
            if number == 0:
                self._begin(row, spending)
            elif "event" in row:
                self._charge_again(number, row)
            elif row["kind"] == "lost":
                self._book.lost.add(row["round"])
            elif row["kind"] not in ("reuse", "torn"):
                raise chain.tampered(number, f"is of the unknown kind {row['kind']!r}")
        if spending is not None and spending.seq > chain.seq:
            raise BadInput(f"The ledger {self.path} ends before the checkpoint was taken; bring back the whole file.")
        if chain.salvaged is not None and chain.only_read:  # only looking: count it, write nothing
            self._charge_again(chain.seq + 1, {**chain.salvaged, "kind": "torn"})

    def _begin(self, header: Row, spending: ClientBudgets | None) -> None:
        self.plan_digest: str = header["plan"]
        self.about: Mapping[str, object] = header["about"]
        self.filter: Filter = filter_from_json(header["filter"])
        kept = header["spending"]
        if spending is not None and spending.to_json() != kept:
            raise BadInput(f"The clients' spending does not belong to the ledger {self.path}; take its own checkpoint.")
        self.spending = spending if spending is not None or kept is None else ClientBudgets.from_json(kept)

    def _charge_again(self, number: int, row: Row) -> None:
        try:
            event = self._book.event(row["event"])
            self.filter.request(event)
            if self.spending is not None and number > self.spending.seq:
                self.spending.charge(lines.unpack_ids(row["clients"]), lines.unpack_costs(row["costs"]))
                self.spending.seq = number
            self._book.keep(number, row, event)
        except (SordinoError, LookupError, TypeError, ValueError, zlib.error) as error:
            raise self._chain.tampered(number, f"holds a grant that its filter would not give ({error})") from error

    def _belongs(self, plan_digest: str, head: Head | None) -> None:
        if self.plan_digest != plan_digest:
            raise BadInput(
                f"The ledger {self.path} belongs to another plan (digest {self.plan_digest[:12]}, this one's is "
                f"{plan_digest[:12]}); resume the plan that began it, or give another folder."
            )
        if head is not None and not self.holds(head):
            raise BadInput(f"The ledger {self.path} does not hold what the checkpoint saw; bring back the whole file.")
