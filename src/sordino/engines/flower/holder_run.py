"""One run that a data holder has agreed to: its terms, its ledger, and the work on its records.

Nothing here trusts the server. The terms are worked out from the plan; a request is held against them before anything is
computed; each try of a round is granted by the holder's own ledger (`holder_grants`), on disk, before a record is touched; and what the
next phase needs (the model, the draw) is on disk before an answer leaves, so that a restart in between loses nothing.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from sordino import record
from sordino.engines.flower import wire
from sordino.engines.flower.computed import Computed
from sordino.engines.flower.holder_grants import HolderGrants
from sordino.engines.flower.part import Facts, Part
from sordino.engines.flower.policy import Refused
from sordino.engines.flower.wire import Message
from sordino.errors import BadInput, NotPrivate
from sordino.federation import binding
from sordino.federation.sampling import Draws
from sordino.federation.sizes import PublicSizes
from sordino.files import write_atomically
from sordino.methods import RuleContext
from sordino.noisy_figures import Measure
from sordino.plan import Plan
from sordino.rules.query import answer_length, is_raw
from sordino.schemes import certified, held_out, prelude, settle
from sordino.schemes.clipped import share_of
from sordino.schemes.fedmap.client import ClientTask, Report
from sordino.schemes.fedmap.scheme import FedMapScheme
from sordino.schemes.request import CONTRIBUTE, Request, work_on
from sordino.schemes.terms import Terms


def terms_of(plan: Plan, facts: Facts) -> Terms:
    """Worked out once for each plan and population; it may take a second."""
    return _terms(json.dumps([plan.to_json(), facts.to_json()], sort_keys=True))


@lru_cache(maxsize=8)
def _terms(key: str) -> Terms:
    plan, facts = json.loads(key)
    sizes = np.array(facts["sizes"], np.int64)
    held = np.array(facts["held_out"], np.int64) if facts["held_out"] else None
    return settle(Plan.from_json(plan), PublicSizes(len(sizes), sizes, held))


class HolderRun:
    """A run in progress at a holder, in a folder of its own."""

    def __init__(self, folder: Path, terms: Terms, part: Part) -> None:
        self.folder, self.terms, self.plan, self.part = folder, terms, terms.plan, part
        assert part.own is not None
        self.me = part.own
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._secret = self._private_seed()
        self.stages = None if self.plan.preparation is None else self.plan.preparation.stages(part.facts.shape)
        self.prepared = False
        self._start()
        if terms.held_out is not None:
            self.measure  # noqa: B018 - refused here if nothing bounds what a record adds
        self.grants = HolderGrants(folder, terms, self.me)
        # Of the try that is under way: its name, its round, the phases done, and the share of the round that queries took.
        self.attempt, self.round, self.taken = "", 0, 0.0
        self.done: tuple[str, ...] = ()
        self._recall()
        last = self.grants.ledger.last
        if last is not None and last.round > self.round:
            self.grants.unspent = 0.0  # what was pending fell behind the ledger: it may have been spent since

    def close(self) -> None:
        """Close what this run holds open."""
        self.grants.close()

    # ---- work ------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Work can start when records are model input: at once, or when the prelude is over."""
        kept = self.folder / "released"
        if self.stages is None:
            self._start_work(self.part)
        elif kept.exists():
            self._begin_with(wire.released_from(wire.from_bytes(kept.read_bytes()).arrays, len(self.terms.prelude)))

    def _start_work(self, part: Part) -> None:
        from sordino.clients.personal import PersonalModels
        from sordino.clients.site import Site
        from sordino.models import build

        plan, facts = self.plan, part.facts
        model = build(plan.model, facts.shape, facts.classes, plan.seed)
        sizes = tuple(p.numel() for p in model.parameters() if p.requires_grad)
        self.rule = plan.method_spec.build(RuleContext(plan, sizes, self.terms.units, self.terms.multiplier or None))
        certified.check_rule(self.terms, self.rule)
        own = PersonalModels(self.folder / "personal")
        self.site = Site(model, part, plan, draws=Draws(plan, 0), personal=own)
        self.theta = np.zeros(self.site.flat.size, np.float32)
        self.work = self.terms.scheme.work(self.site, self.theta, self.rule, self.terms)
        if not (self.folder / record.NAME).exists():  # what is trained on, kept here alone
            record.write(self.folder, self.part, model, binding.bind(self.folder, self.part, resume=False))
        self.prepared = True

    # ---- the prelude -----------------------------------------------------------------------------

    def statistic(self, request: Request, released: list[np.ndarray]) -> Computed:
        """This client's contributions to a statistic. What the server says of earlier ones decides no length and no noise."""
        assert self.stages is not None
        codes = np.zeros(self.stages.length(request.step), np.int64)
        x, _ = self.part.raw(self.me)
        reply = prelude.contribute(request, self.plan, self.stages, released, self.me, x, codes)
        self._check_evidence(request, reply.noise, 0.0)
        return Computed(codes, None, reply.noise, 0.0)

    def prepare(self, released: list[np.ndarray]) -> None:
        """Make model input of the records; on disk first, so that a restart finds it. Said once, it stays."""
        if self.stages is None:
            raise Refused("the plan has no preparation.")
        self.stages.apply(
            np.zeros((1, *self.part.facts.shape), np.float32), released
        )  # may raise: nothing is kept then
        message = wire.to_bytes(Message("released", {}, wire.released_arrays(released)))
        kept = self.folder / "released"
        if kept.exists() and kept.read_bytes() != message:
            raise Refused("this run was prepared with other statistics; they do not change within a run.")
        write_atomically(kept, message, private=True, durable=True)
        if not self.prepared:
            self._begin_with(released)

    def _begin_with(self, released: list[np.ndarray]) -> None:
        stages = self.stages
        assert stages is not None
        self._start_work(self.part.mapped(lambda x: stages.apply(x, released)))

    # ---- the test on held-out records --------------------------------------------------------------

    def tested(self, request: Request, theta: np.ndarray) -> Computed:
        """What this client's held-out records say of a model. Records that are trained on are not looked at."""
        from sordino.clients.alone import Alone
        from sordino.gradients.flat import Flat

        aside = self.site.federation.held_out
        assert aside is not None
        model = copy.deepcopy(self.site.flat.model)
        Flat(model).load(theta)
        codes = np.zeros(self.measure.length, np.int64)
        alone = Alone(model)
        reply = held_out.contribute(request, self.plan, self.measure, alone, self.me, *aside[self.me], codes)
        self._check_evidence(request, reply.noise, 0.0)
        return Computed(codes, None, reply.noise, 0.0)

    @cached_property
    def measure(self) -> Measure:
        """What the test on held-out records asks of each."""
        return held_out.measure_for(self.terms, self.part)

    # ---- a round -----------------------------------------------------------------------------------

    def compute(self, request: Request, task: ClientTask | None = None) -> Computed:
        """This client's contribution as codes, its answer, and the evidence of the noise in both."""
        import torch

        from sordino.clients.threads import one_thread

        codes = np.zeros(self.theta.size if request.phase == CONTRIBUTE else 0, np.int64)
        items = self.work.items(request.round, np.array([self.me])) if task is None else [task]
        with one_thread(), torch.random.fork_rng(devices=[]):
            replies = [work_on(self.work, request, item, codes) for item in items]
        report = replies[0].report if replies else None
        if self.grants.account is not None and isinstance(report, Report):
            self.grants.account.close(report.own)
        elif isinstance(report, Report):
            self.grants.unspent = report.own.unspent
            self._remember()
        answers = [reply.answer for reply in replies if reply.answer is not None]
        noise = sum(reply.noise for reply in replies)
        answer_noise = sum(reply.answer_noise for reply in replies)
        self._check_evidence(request, noise, answer_noise)
        if request.query is None:
            return Computed(codes, None, noise, answer_noise, report)
        if is_raw(request.query):
            return Computed(codes, np.concatenate([np.zeros(0), *answers]), noise, answer_noise)
        zero = np.zeros(answer_length(request.query), np.int64)
        return Computed(codes, np.asarray(sum(answers, start=zero), np.int64), noise, answer_noise)

    def _check_evidence(self, request: Request, noise: float, answer_noise: float) -> None:
        """Nothing leaves before the noise that the work says it added is the noise that is due."""
        if not self.terms.proven:
            return
        due = 0.0 if request.released or request.multiplier is None else request.multiplier**2 / request.survivors
        answer_due = 0.0 if request.query_multiplier is None else request.query_multiplier**2 / request.survivors
        if noise < due * (1 - 1e-9) or answer_noise < answer_due * (1 - 1e-9):
            raise NotPrivate("the work added less noise than the request asks for; nothing is sent: report this.")

    # ---- leave to work ---------------------------------------------------------------------------

    def admit(self, asked: Request, attempt: str, theta: np.ndarray | None, task: ClientTask | None = None) -> Request:
        """Grant this request, or raise; when it returns, what is about to be released is in the ledger.

        What it returns is this holder's own copy of the request: the noise in it follows from the holder's own terms.
        """
        self.grants.check_turn(asked.round)
        if self._takes_tasks != (task is not None) or task is not None and task.client != self.me:
            raise Refused("the work does not fit the plan's method.")
        again = attempt == self.attempt and asked.round == self.round
        try:
            request = self.terms.scheme.expected(self.terms, self.rule, asked, self.taken if again else 0.0)
        except (NotPrivate, BadInput) as wrong:
            raise Refused(str(wrong)) from None
        if again and request.phase in self.done:
            raise Refused(f"phase {request.phase} of this try of round {request.round} was answered before.")
        if again and CONTRIBUTE in self.done:
            raise Refused(f"this try of round {request.round} is over.")
        if not again:
            if theta is None:
                raise Refused("a new try of a round came without the model.")
            self.grants.grant_round(request.round, task)
            self.attempt, self.round, self.done, self.taken = attempt, request.round, (), 0.0
            self.theta[:] = theta
            self._draw_anew(self.grants.ledger.head["seq"])
        self.taken += share_of(request.query)
        self.done = (*self.done, request.phase)
        self._remember()
        return request

    @property
    def _takes_tasks(self) -> bool:
        return isinstance(self.terms.scheme, FedMapScheme)

    # ---- chance ----------------------------------------------------------------------------------

    def _private_seed(self) -> bytes:
        """Where noise is secure, draws of records and batches are this holder's secret too: sampling only amplifies
        towards those who do not know the draw, and the server knows the plan's seed."""
        path = self.folder / "secret"
        if not path.exists():
            write_atomically(path, os.urandom(32), private=True, durable=True)
        return path.read_bytes()

    def _draw_anew(self, number: int) -> None:
        """New secret draws for every try: each is charged as one of its own."""
        digest = hashlib.sha256(b"sordino draws" + self._secret + str(number).encode()).digest()
        self.site.draws = Draws(self.plan, int.from_bytes(digest, "little"))
        self._drawn = number

    # ---- disk ------------------------------------------------------------------------------------

    def _remember(self) -> None:
        head = {"attempt": self.attempt, "round": self.round, "done": list(self.done), "taken": self.taken}
        head |= {"drawn": self._drawn, "unspent": self.grants.unspent}
        message = Message("pending", head, {"theta": self.theta})
        write_atomically(self.folder / "pending", wire.to_bytes(message), private=True)

    def _recall(self) -> None:
        path = self.folder / "pending"
        if not path.exists():
            return
        kept = wire.from_bytes(path.read_bytes())
        self.attempt, self.round = kept.head["attempt"], kept.head["round"]
        self.done, self.taken = tuple(kept.head["done"]), kept.head["taken"]
        self.theta[:] = kept.array("theta", np.float32, self.theta.size)
        self.grants.unspent = kept.head["unspent"]
        self._draw_anew(kept.head["drawn"])
