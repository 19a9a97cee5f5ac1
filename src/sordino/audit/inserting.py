"""Putting canaries into a run: an engine that adds their contributions, and a rule that watches what is released.

Neither the round nor the clients know of them. The engine hands the round's items to the engine it wraps and adds to
the sum what the canaries of the round give, clipped by the bound of the request, by the code that clips real ones.
Canaries give no answers to queries about norms, for theirs say nothing about the data; so no quantile is led astray.
They add no shares of the noise, and public denominators stay as they are: for real units, nothing that the proof
rests on changes.

    client unit       `mechanisms`' own noise covers the sum; observer server: each canary's message carries the noise
    of
                      `clients.whole`, and is looked at but not added to the sum, which it would only make noisier
    example, pooled   gradients of a given direction, or records (`records`)
    example, local    a client of canaries alone, as large as the one that the proof is about, runs DP-SGD (`steps`)
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino.audit import canaries as who
from sordino.audit import watching
from sordino.audit.canaries import Canaries
from sordino.audit.records import KINDS, Records
from sordino.audit.rule_observer import RuleObserver
from sordino.engines.base import Aggregate, Engine
from sordino.errors import BadInput
from sordino.privacy import events, mechanisms
from sordino.privacy.bounds import Bound
from sordino.privacy.randomness import SERVER, stream
from sordino.privacy.release import Private
from sordino.privacy.vocabulary import Noise, Relation, Unit
from sordino.rules.base import RoundOutput, Rule, State
from sordino.schemes.client import ClientUpdate
from sordino.schemes.request import CONTRIBUTE, Request
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from sordino.federation.population import Federation


class Inserted:
    """The canaries of one run, from before its first round to after its last."""

    def __init__(self, terms: Terms, dimension: int, folder: Path, federation: Federation) -> None:
        plan = terms.plan
        who.enough(plan)
        if getattr(plan.method_spec, "closed_loop", False):
            raise BadInput(
                f"method {plan.method} chooses its noise as it goes, which no canary is made for; use canaries 0."
            )
        kept = watching.read(folder) if (folder / watching.FILE).exists() else None
        secret = _secret(plan) if kept is None else kept["secret"]
        self.terms, self.plan, self.folder = terms, plan, folder
        single, turning = plan.mechanism == "laplace", plan.canary == "turning"
        self.canaries = Canaries(plan.canaries, dimension, secret, single, turning)
        self.records: Records | None = None
        if plan.canary in KINDS:
            self.records = Records.make(self.canaries, plan.canary, federation)
        rate = who.rate_of(plan, terms.record_rate(terms.public.examples) if plan.pooled else 1.0)
        if plan.local:
            rate = terms.record_rate(terms._worst(terms.multiplier_of(1)))
        self.watch = watching.Watch(self.canaries, rate, terms.relation == Relation.REPLACE_ONE, folder)
        if kept is None:
            self._write({})

    def population(self, federation: Federation) -> Federation:
        """The population with canary records behind the real ones, if that is the kind."""
        return federation if self.records is None else self.records.behind(federation)

    def join(self, engine: Engine, work: Any, rule: Rule, round: int) -> tuple[Any, Any]:
        """The engine and the rule to run the rounds with; `round` of them are done."""
        if not hasattr(work, "site"):
            raise BadInput("canaries are put into runs on this machine, not across data holders; use canaries 0.")
        if round:
            self.watch.load(round)
        self._work = work
        return _CanaryEngine(engine, self, work, rule), rule if self.plan.local else _Watching(rule, self)

    def sign(self, canary: int) -> int:
        """1: contributes; 0: gives nothing; -1: is replaced by its opposite."""
        if self.canaries.coins[canary]:
            return 1
        return -1 if self.watch.opposite else 0

    def save(self, round: int) -> None:
        self.watch.save(round)

    def tidy(self, round: int) -> None:
        self.watch.tidy(round)

    def finish(self, start: np.ndarray, end: np.ndarray) -> None:
        """Keep what an audit needs."""
        watch = self.watch
        scores: dict[str, Any] = {}
        if self.records is not None:
            scores["final-model"] = self.records.scores(self._work.site, start, end).tolist()
        else:
            scores["all-rounds"] = watch.ratio.tolist()
            if not self.canaries.turning and not self.plan.local and self.plan.noise != Noise.LOCAL:
                scores["final-model"] = watch.cosines(end.astype(np.float64) - start).tolist()
        whole = self.records is None and not watch.opposite and not self.canaries.single and watch.even
        cosines = watch.cosines(watch.matched).tolist() if whole else None
        self._write({"scores": scores, "cosines": cosines, "releases": watch.releases})

    def _write(self, found: dict[str, Any]) -> None:
        terms, canaries = self.terms, self.canaries
        content = {
            "count": canaries.count,
            "kind": self.plan.canary,
            "block": canaries.block,
            "secret": canaries.secret,
            "coins": canaries.coins.astype(int).tolist(),
            "relation": str(terms.relation),
            "event": events.to_json(terms.total) if terms.proven else None,
            "noisy_messages": self.plan.local or (self.plan.unit == Unit.CLIENT and self.plan.noise == Noise.LOCAL),
        }
        watching.write(self.folder, content | found)


class _Watching(RuleObserver):
    """The plan's rule; what it observes is noted for the audit."""

    def __init__(self, rule: Rule, inserted: Inserted) -> None:
        super().__init__(rule)
        self.inserted = inserted
        self.denominator = inserted.terms.denominator(np.arange(0))

    def note(self, state: State, seen: RoundOutput) -> None:
        plan, watch = self.inserted.plan, self.inserted.watch
        if plan.noise != Noise.LOCAL:
            visible = None
            if who.seen(plan):
                visible = self.inserted.canaries.cohort(plan, seen.round, watch.rate)
            total = watching.in_sum_space(seen.mean, seen.bound) * self.denominator
            watch.note(seen.round, total, seen.bound, np.asarray(seen.noise) * self.denominator, visible)


class _CanaryEngine:
    """The engine of the run, and the canaries beside it."""

    def __init__(self, engine: Engine, inserted: Inserted, work: Any, rule: Rule) -> None:
        self.engine, self.inserted, self.work = engine, inserted, work
        self.theta = engine.theta
        self.clients = _CanaryClients(inserted.canaries, work) if inserted.plan.unit == Unit.CLIENT else None
        self.steps: Any = None
        if inserted.plan.local:
            from sordino.audit.steps import CanarySteps

            self.steps = CanarySteps(inserted, work, rule)

    def run(self, request: Request, items: Sequence[Any]) -> Aggregate:
        harvest = self.engine.run(request, items)
        if request.phase != CONTRIBUTE:
            return harvest
        plan, canaries = self.inserted.plan, self.inserted.canaries
        if self.steps is not None:
            self.steps.run(request)
            return harvest
        there = canaries.cohort(plan, request.round, self.inserted.watch.rate)
        if plan.noise == Noise.LOCAL and self.clients is not None:
            self._messages(request, np.flatnonzero(there))
            return harvest
        codes = np.zeros(self.theta.size, np.int64)
        quiet = dataclasses.replace(request, query=None, multiplier=None, query_std=None)
        if self.inserted.records is not None:
            self.inserted.records.give(self.work, quiet, np.flatnonzero(there & canaries.coins), codes)
        else:
            self._directions(quiet, there, codes)
        part = Private(mechanisms.Sum(codes, request.grid), bound=request.bound)
        assert isinstance(harvest.total, Private)
        return dataclasses.replace(harvest, total=mechanisms.add([part], harvest.total))

    def _directions(self, request: Request, there: np.ndarray, codes: np.ndarray) -> None:
        canaries, bound = self.inserted.canaries, request.bound
        assert bound is not None
        for k in np.flatnonzero(there):
            sign = self.inserted.sign(int(k))
            if sign == 0:
                continue
            if self.clients is not None:
                self.clients.message(request, int(k), sign, bound, codes)
            else:
                codes += request.grid.encode(bound.clip(sign * canaries.update(int(k), bound, request.round)))

    def _messages(self, request: Request, there: np.ndarray) -> None:
        """Each canary's own message, with its noise in full, as a server sees it."""
        assert self.clients is not None and request.bound is not None and request.multiplier is not None
        canaries, watch = self.inserted.canaries, self.inserted.watch
        value, alone = np.zeros(self.theta.size), dataclasses.replace(request, query=None, query_std=None)
        for k in there:
            codes = np.zeros(self.theta.size, np.int64)
            self.clients.message(alone, int(k), self.inserted.sign(int(k)), request.bound, codes)
            value = np.where(canaries.owner == k, request.grid.decode(codes), value)
        visible = np.isin(np.arange(canaries.count), there)
        watch.note(request.round, value, request.bound, request.bound.std(request.multiplier), visible)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)  # all else is the engine's own


class _CanaryClients(ClientUpdate):
    """Clients whose update is a canary's direction; the rest of what they do is what clients do."""

    def __init__(self, canaries: Canaries, work: Any) -> None:
        super().__init__(work.site, work.theta)
        self.canaries, self.sign = canaries, 0
        self.bound: Bound | None = None

    def message(self, request: Request, canary: int, sign: int, bound: Bound, out: np.ndarray) -> None:
        """Numbered after the real clients, whose noise must not be theirs."""
        self.sign, self.bound = sign, bound
        self.give(request, self.plan.clients + canary, out)

    def update(self, round: int, item: int) -> np.ndarray:
        assert self.bound is not None
        return self.sign * self.canaries.update(item - self.plan.clients, self.bound, round)


def _secret(plan: Any) -> int:
    """Drawn from the plan's seed, so that a run can be repeated; from the system where noise is."""
    if plan.secure:
        return int.from_bytes(os.urandom(8), "little") >> 1
    return int(stream(plan.seed, 0, SERVER, "canaries").integers(2**63 - 1))
