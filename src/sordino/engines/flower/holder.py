"""The resident part of a data holder: it owns the records, the policy, the ledger and all secrets, and answers messages.

`handle` takes the bytes of a message and returns the bytes of an answer, whatever happens. What goes wrong is told in full
to this holder's own log; the server is told the class of the error and who had it, and nothing else, unless it is a
refusal, whose sentence is written for the other side.

    hello     what is public about this holder: name, number of records, shape of one or names of columns
    propose   a plan: checked against the policy and what is left of the allowance; or refused
    enrol     the same plan, once nobody has refused it: checked again, and reserved in the allowance
    keys, letters, confirm, reveal    secure aggregation (see `membership`)
    work      a statistic of the prelude, or a phase of a round: granted, computed, masked, sent
    prepare   what the prelude released: from here on the holder's own records are model input
    done      the run is over; its statement is kept
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sordino import errors
from sordino.data.check import Pair
from sordino.data.ingest import Records
from sordino.data.table import Table
from sordino.engines.flower import pki, wire
from sordino.engines.flower.allowance import Allowance
from sordino.engines.flower.attesting import attest
from sordino.engines.flower.holder_run import HolderRun, terms_of
from sordino.engines.flower.membership import Membership, NotEnrolled, identity
from sordino.engines.flower.own_figures import write_own_figures
from sordino.engines.flower.part import Facts, Part
from sordino.engines.flower.policy import Policy, Refused
from sordino.engines.flower.seals import HolderSeal
from sordino.engines.flower.wire import MalformedMessage, Message
from sordino.files import write_atomically
from sordino.plain import Json
from sordino.plan import Plan
from sordino.privacy.vocabulary import Observer
from sordino.schemes.fedmap import messages
from sordino.schemes.request import HELD_OUT, PRELUDE
from sordino.schemes.terms import Terms

VERSION = 1
log = logging.getLogger("sordino.holder")


class Holder:
    """One data holder. Messages are handled one at a time."""

    def __init__(
        self, name: str, data: Records, policy: Policy, folder: Path, seal: HolderSeal, own: pki.Own | None = None
    ) -> None:
        self.name, self.data, self.policy, self.folder, self._seal, self._own = name, data, policy, folder, seal, own
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.allowance = Allowance(folder / "allowance.jsonl")
        self._lock = threading.Lock()
        self._runs: dict[str, HolderRun] = {}
        self._memberships: dict[str, Membership] = {}  # of the same runs
        self._last = self._read_number()
        self.on_done: Callable[[], None] | None = None
        self.simulated = False
        self._misfit = False  # a schema did not fit the records

    def close(self) -> None:
        for run in self._runs.values():
            run.close()
        self.allowance.close()

    # ---- the door --------------------------------------------------------------------------------

    def handle(self, message: bytes) -> bytes:
        """The answer to a message, whatever happens."""
        with self._lock:
            asked = Message("unreadable")
            try:
                asked = wire.from_bytes(message)
                self._seal.open(asked, self._last)
                self._take_number(asked)
                reply = self._dispatch(asked)
            except Exception as error:  # noqa: BLE001 - whatever happens here, the other side gets an answer without private text
                reply = self._problem(asked, error)
            return wire.to_bytes(self._seal.seal(asked, reply))

    def _dispatch(self, asked: Message) -> Message:
        steps: dict[str, Callable[[Message], Message]] = {
            "hello": self._hello,
            "propose": self._propose,
            "enrol": self._enrol,
            "keys": self._keys,
            "letters": lambda asked: self._sums(asked).letters(asked),
            "work": self._work,
            "prepare": self._prepare,
            "confirm": lambda asked: self._sums(asked).confirm(asked),
            "reveal": lambda asked: self._sums(asked).reveal(asked),
            "done": self._done,
        }
        if asked.kind not in steps:
            raise MalformedMessage(f"there is no message {asked.kind!r}; both sides need the same version.")
        return steps[asked.kind](asked)

    def _problem(self, asked: Message, error: Exception) -> Message:
        told = isinstance(error, errors.SordinoError)
        if told:
            log.error("a message (%s) was refused: %s", asked.kind, error)
        else:
            log.error("a message (%s) failed: %s: %s", asked.kind, type(error).__name__, error, exc_info=error)
        said = str(error) if isinstance(error, (Refused, errors.BudgetRefused)) else ""
        return Message("problem", {"class": type(error).__name__, "client": self.name, "said": said})

    def _read_number(self) -> int:
        try:
            return int((self.folder / "number").read_text())
        except (OSError, ValueError):
            return 0

    def _take_number(self, asked: Message) -> None:
        self._last = asked.get("number", int)
        write_atomically(self.folder / "number", str(self._last).encode(), private=True)

    # ---- joining a run ---------------------------------------------------------------------------

    def _hello(self, asked: Message) -> Message:
        """Of a table the names of its columns are told, and nothing that stands in them."""
        facts: dict[str, object] = {"name": self.name, "version": VERSION, "simulated": self.simulated}
        if isinstance(self.data, Table):
            columns = list(self.data.names) if self.data.named else len(self.data.names)
            return Message("hello", {**facts, "records": len(self.data), "columns": columns})
        x, y = self.data
        return Message(
            "hello", {**facts, "records": len(y), "shape": list(x.shape[1:]), "type": np.asarray(x).dtype.str}
        )

    def _propose(self, asked: Message) -> Message:
        """Nothing is set aside yet: another holder may refuse, and then nobody should have paid."""
        run, _, terms = self._agreeable(asked)
        if terms.proven:
            self.allowance.check(run, terms.spent.epsilon, terms.plan.delta, self.policy)
        return Message("agreed")

    def _enrol(self, asked: Message) -> Message:
        run, plain, terms = self._agreeable(asked)
        if terms.proven:
            self.allowance.reserve(run, terms.spent.epsilon, terms.plan.delta, self.policy)
        self._folder(run).mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self._folder(run) / "enrolment.json", json.dumps(plain), private=True)
        self._begin(run, plain)
        log.info("enrolled in run %s: %s, epsilon %.4g", run, terms.plan.method, terms.spent.epsilon)
        return Message("enrolled", {"epsilon": terms.spent.epsilon if terms.proven else None})

    def _agreeable(self, asked: Message) -> tuple[str, Json, Terms]:
        """A run and its terms, if the policy allows them."""
        run, plain = asked.get("run", str), {k: asked.get(k, dict) for k in ("plan", "facts")}
        plain |= {"names": asked.get("names", list), "certificates": asked.get("certificates", dict)}
        if not run.isalnum() or len(run) > 64:
            raise MalformedMessage("a run has no usable name.")
        kept = self._folder(run) / "enrolment.json"
        if kept.exists() and json.loads(kept.read_text()) != plain:
            raise Refused("this run was enrolled with another plan; a run cannot change its plan.")
        self.policy.check_code(plain["plan"])
        plan, facts = Plan.from_json(plain["plan"]), Facts.from_json(plain["facts"])
        facts.check_held_out(plan)
        terms = terms_of(plan, facts)
        self.policy.check(terms)
        self._arrays(facts)
        return run, plain, terms

    def _arrays(self, facts: Facts) -> Pair:
        """The records as the run's schema reads them. What does not fit is told in full to this holder's own log alone."""
        if not isinstance(self.data, Table):
            return self.data
        if facts.schema is None:
            raise Refused("the records here are a table, and the run names no schema to read it by.")
        lacking = [f.name for f in facts.schema.features if f.name not in self.data] if self.data.named else []
        if lacking and facts.schema.heading:
            raise Refused(f"the records here have no column {lacking[0]!r}, which the schema of the run asks for.")
        if self._misfit:
            raise Refused(
                "a schema did not fit the records here before; the person who runs this holder must look first."
            )
        try:
            return facts.schema.read(self.data)
        except errors.BadInput as wrong:
            # Whether records fit is a fact about them. It is told once; a server that tries one schema after another to
            # find out which labels there are learns no more until somebody has looked and started this holder again.
            self._misfit = True
            log.error("the records do not fit the schema: %s", wrong)
            raise Refused("the records here do not fit the schema of the run; the holder's log says where.") from None

    def _begin(self, run: str, plain: Json) -> HolderRun:
        if run in self._runs:
            return self._runs[run]
        plan, facts, names = Plan.from_json(plain["plan"]), Facts.from_json(plain["facts"]), plain["names"]
        if self.name not in names or len(names) != facts.clients:
            raise Refused(f"{self.name} is not among the clients of this run.")
        known_by = identity(self._own, names, plain["certificates"])
        for old in self._runs.values():
            old.close()  # one run at a time is held open
        part = Part.held(facts, names.index(self.name), *self._arrays(facts), plan)
        self._runs = {run: HolderRun(self._folder(run), terms_of(plan, facts), part)}
        self._memberships = {run: Membership(run, self._folder(run), known_by)}
        return self._runs[run]

    def _folder(self, run: str) -> Path:
        return self.folder / "runs" / run

    def _run(self, asked: Message) -> HolderRun:
        run = asked.get("run", str)
        if run in self._runs:
            return self._runs[run]
        kept = self._folder(run) / "enrolment.json" if run.isalnum() else None
        if kept is None or not kept.exists():
            raise NotEnrolled("a message is about a run that this holder does not know.")
        return self._begin(run, json.loads(kept.read_text()))

    # ---- secure aggregation ----------------------------------------------------------------------

    def _keys(self, asked: Message) -> Message:
        run, sums = self._run(asked), self._sums(asked)
        # Clients that collude with the server can take their own shares of the noise off again.
        least = max(run.terms.survivors + self.policy.colluders, self.policy.least)
        return sums.keys(asked, run.me, run.plan.clients, least)

    def _sums(self, asked: Message) -> Membership:
        self._run(asked)
        return self._memberships[asked.get("run", str)]

    # ---- work ------------------------------------------------------------------------------------

    def _prepare(self, asked: Message) -> Message:
        run = self._run(asked)
        run.prepare(wire.released_from(asked.arrays, len(run.terms.prelude)))
        return Message("prepared")

    def _work(self, asked: Message) -> Message:
        run = self._run(asked)
        request = wire.request_from_plain(asked.get("request", dict), asked.arrays)
        if request.phase != PRELUDE and not run.prepared:
            raise NotEnrolled("a round came before this holder was told what the prelude released.")
        theta = None
        if "theta" in asked.arrays and request.phase != PRELUDE:
            theta = asked.array("theta", np.float32, run.theta.size)
        secure = run.plan.observer == Observer.SECAGG_SERVER
        if secure:
            self._sums(asked).receive(asked)
        task = None
        if run.grants.account is not None and request.phase not in (PRELUDE, HELD_OUT):
            task = run.grants.next_task(request)
        elif "task" in asked.head:
            task = messages.task_from_plain(asked.get("task", dict), asked.arrays)
        about = wire.agreed_digest(run.plan, run.part.facts, request)
        outside = request.phase in (PRELUDE, HELD_OUT)
        if outside and secure:
            threshold = self._sums(asked).member(asked).roster.threshold
            if threshold < request.survivors + self.policy.colluders:
                raise Refused(f"a statistic could be opened with {threshold} clients; it takes more here.")
        if request.phase == PRELUDE:
            computed = run.statistic(
                run.grants.grant_statistic(request), wire.released_from(asked.arrays, request.step)
            )
        elif request.phase == HELD_OUT:
            if theta is None:
                raise Refused("a test on held-out records came without the model.")
            computed = run.tested(run.grants.grant_test(request), theta)
        else:
            computed = run.compute(run.admit(request, asked.get("attempt", str), theta, task), task)
        if not secure:
            return computed.in_clear(request)
        codes, beside = computed.to_mask(request, run.plan.clients)
        return Message("masked", computed.evidence, {"masked": self._sums(asked).mask(asked, codes, about), **beside})

    def _done(self, asked: Message) -> Message:
        run = self._run(asked)
        signed = self._attest(run, asked)
        write_atomically(
            self._folder(asked.get("run", str)) / "statement.txt", asked.get("statement", str).encode(), private=True
        )
        write_own_figures(run)
        log.info("run %s is over", asked.get("run", str))
        if self.on_done is not None:
            self.on_done()
        return Message("done", {} if signed is None else {"attestation": signed})

    def _attest(self, run: HolderRun, asked: Message) -> dict[str, object] | None:
        """Signs the result, if it is what this holder's own terms and ledger say; None where no keys were dealt out."""
        if self._own is None or not run.terms.proven:
            return None
        told, own = float(asked.get("epsilon", (int, float))), run.terms.spent.epsilon
        rounds = asked.get("rounds", int)
        mine = len({grant.round for grant in run.grants.ledger} - {0})  # 0 is the prelude
        if not own * (1 - 1e-6) <= told <= own * (1 + 1e-6) or rounds > run.plan.rounds or mine > run.plan.rounds:
            raise Refused(
                f"the statement says epsilon {told:.6g}, and this holder's own terms {own:.6g}; it is not signed."
            )
        head = asked.get("ledger_head", str)
        return attest(self._own, run.plan.digest(), head, rounds, told, run.plan.delta)
