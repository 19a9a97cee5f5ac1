"""The resident part of a data holder: it owns the records, the policy, the ledger and all secrets, and answers messages.

`handle` takes the bytes of a message and returns the bytes of an answer, whatever happens. What goes wrong is told in full
to this holder's own log; the server is told the class of the error and who had it, and nothing else, unless it is a
refusal, whose sentence is written for the other side.

    hello     what is public about this holder: name, number of records, shape of one or names of columns
    propose   a plan: checked against the policy and what is left of the allowance; or refused
    enrol     the same plan, once nobody has refused it: checked again, and reserved in the allowance
    keys, letters, confirm, reveal    secure aggregation (see `sordino.secagg.member`)
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
from cryptography.x509.oid import ExtendedKeyUsageOID

from sordino import errors
from sordino.data.check import Pair
from sordino.data.ingest import Records
from sordino.data.table import Table
from sordino.engines.flower import pki, wire
from sordino.engines.flower.allowance import Allowance
from sordino.engines.flower.attesting import attest
from sordino.engines.flower.holder_run import Computed, HolderRun, boot, terms_of, write_json
from sordino.engines.flower.own_figures import write_own_figures
from sordino.engines.flower.part import Facts, Part
from sordino.engines.flower.policy import Policy, Refused
from sordino.engines.flower.seals import HolderSeal
from sordino.engines.flower.wire import MalformedMessage, Message
from sordino.files import write_atomically
from sordino.plain import Json
from sordino.plan import Plan
from sordino.privacy.vocabulary import Observer
from sordino.rules.query import is_raw
from sordino.schemes.fedmap import messages
from sordino.schemes.fedmap.client import Report
from sordino.schemes.fedmap.published import RawReport
from sordino.schemes.request import HELD_OUT, PRELUDE, QUERY, Request
from sordino.schemes.terms import Terms
from sordino.secagg.member import Member
from sordino.secagg.roster import NOBODY, Advert, Identity, Roster

VERSION = 1
log = logging.getLogger("sordino.holder")


class NotEnrolled(errors.SordinoError):
    """A message about a run that this holder does not know; the server enrols it again."""


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
        self._members: dict[str, Member] = {}  # by session; one at a time for each run
        self._identities: dict[str, Identity] = {}
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
            "letters": self._letters,
            "work": self._work,
            "prepare": self._prepare,
            "confirm": self._confirm,
            "reveal": self._reveal,
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
        write_json(self._folder(run) / "enrolment.json", plain)
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
        self._identities[run] = NOBODY if self._own is None else Signed(self._own, names, plain["certificates"])
        for old in self._runs.values():
            old.close()  # one run at a time is held open
        part = Part.held(facts, names.index(self.name), *self._arrays(facts), plan)
        self._runs = {run: HolderRun(self._folder(run), terms_of(plan, facts), part)}
        self._members = {}
        member = self._recall(run)
        if member is not None:
            self._members[member.roster.session] = member
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
        run, roster = self._run(asked), Roster.from_json(asked.get("roster", dict))
        if not set(roster.members) <= set(range(run.plan.clients)) or run.me not in roster.members:
            raise Refused("the roster of a secure sum does not fit the run.")
        # Clients that collude with the server can take their own shares of the noise off again.
        least = max(run.terms.survivors + self.policy.colluders, self.policy.least)
        if roster.threshold < least:
            raise Refused(f"a secure sum could be opened with {roster.threshold} clients; it takes {least} here.")
        if not roster.session.startswith(asked.get("run", str)):
            raise Refused("the session of a secure sum belongs to another run.")
        member = Member(roster, run.me, self._identities[asked.get("run", str)])
        self._members = {roster.session: member}
        self._keep(asked, member)
        return Message("keys", {"advert": member.advertise().to_json()})

    def _letters(self, asked: Message) -> Message:
        member = self._member(asked)
        adverts = [Advert.from_json(plain) for plain in asked.get("adverts", list)]
        letters = member.share({advert.member: advert for advert in adverts})
        self._keep(asked, member)
        return Message("letters", {"letters": {str(k): letter.hex() for k, letter in letters.items()}})

    def _confirm(self, asked: Message) -> Message:
        member = self._member(asked)
        signature = member.confirm(asked.get("number_of_sum", int), tuple(asked.get("survivors", list)))
        self._keep(asked, member)
        return Message("confirm", {"agreed": signature.hex()})

    def _reveal(self, asked: Message) -> Message:
        member = self._member(asked)
        signatures = {int(k): bytes.fromhex(text) for k, text in asked.get("agreed", dict).items()}
        shares = member.reveal(asked.get("number_of_sum", int), signatures)
        self._keep(asked, member)
        return Message("reveal", {"shares": {str(k): share.hex() for k, share in shares.items()}})

    def _member(self, asked: Message) -> Member:
        self._run(asked)
        member = self._members.get(asked.get("session", str))
        if member is None:
            raise NotEnrolled("a message is about a secure sum that this holder does not know.")
        return member

    def _keep(self, asked: Message, member: Member) -> None:
        """In a file before the answer leaves: a member that forgot what it said must not speak again."""
        write_json(self._folder(asked.get("run", str)) / "member.json", {"boot": boot(), **member.to_json()})

    def _recall(self, run: str) -> Member | None:
        """The member that a process which died left behind. What lies there from before the machine itself went down may
        be behind what was said, and is not used."""
        path = self._folder(run) / "member.json"
        plain = json.loads(path.read_text()) if path.exists() else {}
        if plain.get("boot") != boot():
            return None
        return Member.from_json(plain, self._identities[run])

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
            member = self._member(asked)
            if "letters" in asked.head:
                letters = {int(k): bytes.fromhex(text) for k, text in asked.get("letters", dict).items()}
                member.receive(letters)
                for k, why in member.suspects.items():
                    log.warning("the letter of client %d was tampered with: %s", k, why)
                self._keep(asked, member)
        task = None
        if run.account is not None and request.phase not in (PRELUDE, HELD_OUT):
            task = run.next_task(request)
        elif "task" in asked.head:
            task = messages.task_from_plain(asked.get("task", dict), asked.arrays)
        about = wire.agreed_digest(run.plan, run.part.facts, request)
        outside = request.phase in (PRELUDE, HELD_OUT)
        if outside and secure and member.roster.threshold < request.survivors + self.policy.colluders:
            raise Refused(f"a statistic could be opened with {member.roster.threshold} clients; it takes more here.")
        if request.phase == PRELUDE:
            computed = run.statistic(run.admit_prelude(request), wire.released_from(asked.arrays, request.step))
        elif request.phase == HELD_OUT:
            if theta is None:
                raise Refused("a test on held-out records came without the model.")
            computed = run.tested(run.admit_test(request), theta)
        else:
            computed = run.compute(run.admit(request, asked.get("attempt", str), theta, task), task)
        if not secure:
            return _clear(request, computed)
        return self._masked(asked, run, member, request, computed, about)

    def _masked(
        self, asked: Message, run: HolderRun, member: Member, request: Request, computed: Computed, about: bytes
    ) -> Message:
        """Contribution, answer and report under one mask. Exact norms, which only plans without a proof ask for, go beside it."""
        parts, arrays = [computed.codes], {}
        if isinstance(computed.report, Report):  # nothing else of the report leaves
            parts.append(computed.report.tally(request.grid, run.plan.clients))
        elif computed.answer is not None and is_raw(request.query):
            arrays["answer"] = np.asarray(computed.answer, np.float64)
        elif computed.answer is not None:
            parts.append(computed.answer)
        masked = member.mask(asked.get("number_of_sum", int), np.concatenate(parts), about)
        self._keep(asked, member)
        return Message("masked", _evidence(computed), {"masked": masked, **arrays})

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
        mine = len({grant.round for grant in run.ledger} - {0})  # 0 is the prelude
        if not own * (1 - 1e-6) <= told <= own * (1 + 1e-6) or rounds > run.plan.rounds or mine > run.plan.rounds:
            raise Refused(
                f"the statement says epsilon {told:.6g}, and this holder's own terms {own:.6g}; it is not signed."
            )
        head = asked.get("ledger_head", str)
        return attest(self._own, run.plan.digest(), head, rounds, told, run.plan.delta)


def _evidence(computed: Computed) -> dict[str, object]:
    return {"noise": computed.noise, "answer_noise": computed.answer_noise}


def _clear(request: Request, computed: Computed) -> Message:
    """What a server that sees every message gets."""
    head: dict[str, object] = _evidence(computed)
    arrays = {} if request.phase == QUERY else {"codes": computed.codes}
    if isinstance(computed.report, (Report, RawReport)):
        head["report"], more = messages.report_to_plain(computed.report)
        arrays |= more
    elif request.released:
        head["state"] = computed.report
    elif computed.answer is not None:
        arrays["answer"] = computed.answer
    return Message("given", head, arrays)


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
