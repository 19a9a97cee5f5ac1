"""One run that a data holder has agreed to: its terms, its ledger, and the work on its records.

Nothing here trusts the server. The terms are worked out from the plan; a request is held against them before anything is
computed; each try of a round is granted by the holder's own ledger, on disk, before a record is touched; and what the
next phase needs (the model, the draw) is on disk before an answer leaves, so that a restart in between loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sordino.engines import make_work
from sordino.engines.base import work_on
from sordino.engines.flower import wire
from sordino.engines.flower.account import Account
from sordino.engines.flower.part import Facts, Part, answer_grid
from sordino.engines.flower.policy import Refused
from sordino.engines.flower.shares import with_share
from sordino.engines.flower.wire import Message
from sordino.federation.sampling import draw
from sordino.methods import RuleContext
from sordino.plan import Plan
from sordino.privacy import events
from sordino.privacy.client_budgets import ClientBudgets
from sordino.privacy.filter import Filter, NoBudget, ScheduleFilter
from sordino.privacy.ledger import Ledger
from sordino.privacy.mechanisms import FixedPoint
from sordino.privacy.vocabulary import Noise, Observer, Unit
from sordino.rules.query import is_raw
from sordino.schemes.fedmap.budgets import Budgets
from sordino.schemes.fedmap.client import ClientTask
from sordino.schemes.request import CONTRIBUTE, QUERY, Request
from sordino.schemes.terms import Public, Terms, settle

_CLOSE = 1e-6  # by how much two machines may differ over the same calibration


def terms_of(plan: Plan, facts: Facts) -> Terms:
    """Worked out once for each plan and population; it may take a second."""
    return _terms(json.dumps([plan.to_json(), facts.to_json()], sort_keys=True))


@lru_cache(maxsize=8)
def _terms(key: str) -> Terms:
    plan, facts = json.loads(key)
    sizes = np.array(facts["sizes"], np.int64)
    return settle(Plan.from_json(plan), Public(len(sizes), sizes))


class HolderRun:
    """A run in progress at a holder, in a folder of its own."""

    def __init__(self, folder: Path, terms: Terms, part: Part) -> None:
        self.folder, self.terms, self.plan, self.part = folder, terms, terms.plan, part
        assert part.own is not None
        self.me = part.own
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._secret = self._private_seed()
        self._start_work()
        self.ledger = self._open_ledger()
        # Of the try that is under way: its name, its round, the phases done, and the precision released so far.
        self.attempt, self.round, self.spent = "", 0, 0.0
        self.done: tuple[str, ...] = ()
        self._purse = 0.0  # granted in earlier rounds and not spent (FedMAP)
        self.account = Account(folder / "account", self.terms, self.me) if self.plan.sealed else None
        self._recall()
        if self.ledger.last is not None and self.ledger.last.round > self.round:
            self._purse = 0.0  # what was pending fell behind the ledger: it may have been spent since

    def close(self) -> None:
        self.ledger.close()

    # ---- work ------------------------------------------------------------------------------------

    def _start_work(self) -> None:
        from sordino.clients.site import Site
        from sordino.models import build

        plan, facts = self.plan, self.part.facts
        model = build(plan.model, facts.shape, facts.classes, plan.seed)
        sizes = tuple(p.numel() for p in model.parameters() if p.requires_grad)
        rule = plan.method_spec.build(RuleContext(plan, sizes, self.terms.units, self.terms.multiplier or None))
        self.site = Site(model, self.part, plan)
        self.theta = np.zeros(self.site.flat.size, np.float32)
        self.work = make_work(self.site, self.theta, rule)

    def compute(self, request: Request, errand: ClientTask | None = None) -> tuple[np.ndarray, Any]:
        """This client's contribution as codes, and its answer: summed over its items, or one after the other if raw."""
        import torch

        from sordino.engines.inprocess import one_thread

        exact = self.plan.secure and self.plan.noise == Noise.SHARES and self.plan.private
        asked, request = request, replace(request, multiplier=None, query_std=None) if exact else request
        codes = np.zeros(self.theta.size if request.phase == CONTRIBUTE else 0, np.int64)
        items = self.work.items(request.round, np.array([self.me])) if errand is None else [errand]
        with one_thread(), torch.random.fork_rng(devices=[]):
            answers = [work_on(self.work, request, item, codes) for item in items]
        if self.account is not None:
            self.account.close(answers[0].own)
        elif errand is not None:
            self._purse = answers[0].own.purse
            self._remember()
        if request.released or errand is not None:
            return codes, answers[0]  # the state of the rule, or a report
        if exact and asked.multiplier is not None:
            assert asked.bound is not None
            codes = with_share(codes, asked.grid, asked.bound.std(asked.multiplier), asked.survivors)
        if request.query is None:
            return codes, None
        if is_raw(request.query):
            return codes, np.concatenate(answers)
        return codes, self._answer(asked, np.sum(answers, axis=0), exact)

    def _answer(self, asked: Request, answer: np.ndarray, exact: bool) -> np.ndarray:
        """The summed answer, with an exact share of its noise where the work added none."""
        if not exact:
            return answer
        assert asked.query is not None and asked.query_std is not None
        grid = answer_grid(asked.query, self.plan, self.part.facts)
        return grid.decode(with_share(grid.encode(answer), grid, asked.query_std, asked.survivors))

    def next_errand(self, request: Request) -> ClientTask:
        """What this client may spend, where it reckons that itself; nothing is granted yet."""
        assert self.account is not None
        if not 1 <= request.round <= self.plan.rounds or self.me not in draw(self.plan, request.round):
            raise Refused(f"this client is not in the cohort of round {request.round}.")
        return self.account.errand(request.round, request.state.get("lost", []), self.ledger)

    # ---- leave to work ---------------------------------------------------------------------------

    def admit(self, request: Request, attempt: str, theta: np.ndarray | None, errand: ClientTask | None = None) -> None:
        """Grant this request, or raise; when it returns, what is about to be released is in the ledger."""
        self._check(request, errand)
        again = attempt == self.attempt and request.round == self.round
        if again and request.phase in self.done:
            raise Refused(f"phase {request.phase} of this try of round {request.round} was answered before.")
        if not again:
            if theta is None:
                raise Refused("a new try of a round came without the model.")
            self._grant(request.round, errand)
            self.attempt, self.round, self.done, self.spent = attempt, request.round, (), 0.0
            self.theta[:] = theta
            self._reseed(self.ledger.head["seq"])
        self.spent += self._precision(request)
        if self.terms.proven and not self.plan.local and self.plan.noise != Noise.CENTRAL:
            granted = self.terms.multiplier_of(request.round)
            if not self.spent <= (1 + _CLOSE) / granted**2:
                raise Refused(f"round {request.round} asks for less noise than its multiplier of {granted:.4g}.")
        self.done = (*self.done, request.phase)
        self._remember()

    def _check(self, request: Request, errand: ClientTask | None) -> None:
        """What the plan settles, the request may not change."""
        plan, t = self.plan, request.round
        if not 1 <= t <= plan.rounds or request.phase not in (QUERY, CONTRIBUTE):
            raise Refused(f"the plan has no phase {request.phase} of round {t}.")
        if self.me not in draw(plan, t):
            raise Refused(f"this client is not in the cohort of round {t}.")
        if plan.method_spec.closed_loop != (errand is not None) or errand is not None and errand.client != self.me:
            raise Refused("the work does not fit the plan's method.")
        if not plan.private:
            return
        if errand is not None:
            self._check_errand(request)
            return
        if plan.local:
            least = self.terms.multiplier_of(t) * (1 - _CLOSE)
            if not request.released or request.multiplier is None or not request.multiplier >= least:
                raise Refused(f"round {t} asks for less noise than its multiplier of {least:.4g}.")
            return
        if request.bound is None or request.released:
            raise Refused("contributions are clipped here, and not sent without a bound.")
        most = sum(self.part.facts.sizes) if plan.pooled else plan.clients
        if request.grid != FixedPoint.for_bound(request.bound, max(2, most)):
            # On another one a value could be made not to fit, and the error would tell something about it.
            raise Refused("the sum is to be taken on another grid than the bound asks for.")
        if is_raw(request.query) and self.terms.proven:
            raise Refused("exact norms are asked for, which the plan does not provide for.")
        if plan.noise == Noise.CENTRAL:
            return
        if request.survivors != self.terms.survivors:
            raise Refused(f"noise is to be divided among {request.survivors}, the plan says {self.terms.survivors}.")
        noiseless = request.query is not None and not is_raw(request.query) and request.query_std is None
        if request.phase == CONTRIBUTE and request.multiplier is None or noiseless:
            raise Refused("the plan has clients add noise, and the request does not.")

    def _check_errand(self, request: Request) -> None:
        """A client that sets its own noise pays for each step at the order that was committed."""
        terms = self.terms
        if isinstance(terms, Budgets) and not (request.released and request.state.get("order") == terms.order):
            raise Refused("the costs of steps are to be counted at another order than the plan settles.")

    def _precision(self, request: Request) -> float:
        """What this request releases, in 1/z^2, where Gaussians on the same units add up."""
        total = 0.0 if request.multiplier is None or request.phase == QUERY else request.multiplier**-2
        if request.query is not None and request.query_std is not None:
            total += (request.query.norm / request.query_std) ** 2
        return total

    def _grant(self, t: int, errand: ClientTask | None) -> None:
        if errand is not None and isinstance(self.terms, Budgets):
            self._grant_purse(t, errand, self.terms.order)
            return
        event, secure = self.terms.slot(t), self.plan.secure
        if self.ledger.resume(t, secure, event) is not None:
            return
        if self.plan.unit == Unit.CLIENT and self.plan.observer == Observer.PUBLIC and self.terms.proven:
            # Towards the public a client is charged its sampled share in every round, drawn or not.
            for earlier in range(self.ledger.last.round + 1 if self.ledger.last else 1, t):
                self.ledger.request(self.terms.slot(earlier), earlier)
        self.ledger.request(event, t)

    def _grant_purse(self, t: int, errand: ClientTask, order: int) -> None:
        """Charge what the purse holds beyond what is left of earlier ones. A try that was cut short may have spent all."""
        standing = self.ledger.granted(t)
        if self.account is not None:
            self.account.begin(t, errand)
            left = errand.own.purse
        else:
            left = 0.0 if standing is not None else self._purse
        if standing is not None and not self.plan.secure:
            self.ledger.resume(t, False)
            return
        cost = max(0.0, errand.purse - left)
        event = events.gaussian(math.sqrt(order / (2 * cost))) if cost > 0 else events.nothing()
        if standing is not None:
            self.ledger.resume(t, True, clients=[0], costs=[cost])
        else:
            self.ledger.request(event, t, [0], [cost])
        self._purse = 0.0  # until the report says what is left

    def _open_ledger(self) -> Ledger:
        path, digest, terms = self.folder / "ledger.jsonl", self.plan.digest(), self.terms
        if path.exists():
            return Ledger.open(path, digest)
        about = {"unit": str(self.plan.unit), "relation": str(terms.relation), "observer": str(self.plan.observer)}
        spending = None
        if isinstance(terms, Budgets):  # this client's own
            spending = ClientBudgets(1, terms.spent.epsilon, self.plan.delta, terms.order, terms.relation)
        return Ledger.create(path, digest, self._filter(), about, spending)

    def _filter(self) -> Filter:
        if not self.terms.proven:
            return NoBudget("the run is not private")
        if isinstance(self.terms, Budgets):
            return NoBudget("the client keeps a budget of its own")
        spent = self.terms.spent
        return ScheduleFilter(self._slots(), spent.epsilon, self.plan.delta, self.terms.relation, spent.accountant)

    def _slots(self) -> list[Any]:
        """The releases that this client is in for: those of its own rounds, and what may be repeated out of the most."""
        terms, plan = self.terms, self.plan
        if plan.pooled or plan.observer == Observer.PUBLIC:
            return terms.slots
        if len(terms.slots) == 1:
            return [(terms.slots[0][0], terms.exposures)]
        return [terms.slot(t) for t in range(1, terms.rounds + 1) if self.me in draw(plan, t)]

    # ---- chance ----------------------------------------------------------------------------------

    def _private_seed(self) -> bytes:
        """Where noise is secure, draws of records and batches are this holder's secret too: sampling only amplifies
        towards those who do not know the draw, and the server knows the plan's seed."""
        path = self.folder / "secret"
        if not path.exists():
            write_private(path, os.urandom(32))
        return path.read_bytes()

    def _reseed(self, number: int) -> None:
        """New draws for every try: each is charged as one of its own."""
        if self.plan.secure:
            digest = hashlib.sha256(b"sordino draws" + self._secret + str(number).encode()).digest()
            seeded = self.plan.replace(seed=int.from_bytes(digest[:7], "little"))
            self.site.plan = seeded
            self.work.plan = seeded  # type: ignore[attr-defined]
        self._drawn = number

    # ---- disk ------------------------------------------------------------------------------------

    def _remember(self) -> None:
        head = {"attempt": self.attempt, "round": self.round, "done": list(self.done), "spent": self.spent}
        head |= {"drawn": self._drawn, "purse": self._purse}
        write_private(self.folder / "pending", wire.to_bytes(Message("pending", head, {"theta": self.theta})))

    def _recall(self) -> None:
        path = self.folder / "pending"
        if not path.exists():
            return
        kept = wire.from_bytes(path.read_bytes())
        self.attempt, self.round = kept.head["attempt"], kept.head["round"]
        self.done, self.spent = tuple(kept.head["done"]), kept.head["spent"]
        self.theta[:] = kept.array("theta", np.float32, self.theta.size)
        self._purse = kept.head["purse"]
        self._reseed(kept.head["drawn"])


def write_private(path: Path, content: bytes) -> None:
    """Replace a file at once, readable by its owner alone. It outlives the process, not the machine (see `boot`)."""
    aside = path.with_name(path.name + ".new")
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    os.replace(aside, path)


def boot() -> str:
    """Tells one start of the machine from the next, where the system says."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def write_json(path: Path, plain: Mapping[str, Any]) -> None:
    write_private(path, json.dumps(plain).encode())
