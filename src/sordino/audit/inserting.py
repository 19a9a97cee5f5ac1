"""Putting canaries into a run: an engine that adds their contributions, and a rule that watches what is released.

Neither the round nor the clients know of them. The engine hands the round's items to the engine it wraps and adds to
the sum what the canaries of the round give, clipped by the bound of the request, by the code that clips real ones.
Canaries do not answer queries about norms: their norms say nothing about the data, and would mislead a quantile.
They add no shares of the noise, and public denominators stay as they are: for real units, nothing that the proof
rests on changes.

    client unit       `mechanisms`' own noise covers the sum; observer server: each canary's message carries the noise of
                      `schemes.client`, and is looked at but not added to the sum, which it would only make noisier
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
from sordino.callbacks import Callback, Run
from sordino.engines import Setup, Started
from sordino.errors import BadInput
from sordino.privacy import events, mechanisms
from sordino.privacy.bounds import Bound
from sordino.privacy.randomness import SERVER, stream
from sordino.privacy.release import Private
from sordino.privacy.vocabulary import Noise, Relation
from sordino.rules.base import RoundOutput, Rule, State
from sordino.schemes.aggregate import Aggregate, Engine
from sordino.schemes.client import Client, ClientUpdate
from sordino.schemes.local import Local, LocalSteps
from sordino.schemes.request import CONTRIBUTE, Reply, Request
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from sordino.federation.population import Federation
    from sordino.plan import Plan


class CanaryCallback(Callback):
    """Puts the plan's canaries into a run, and keeps what an audit needs."""

    def __init__(self, setup: Setup, folder: Path) -> None:
        dimension = sum(p.numel() for p in setup.model.parameters() if p.requires_grad)
        self.inserted = Inserted(setup.terms, dimension, folder, setup.federation)
        self._rule: Rule | None = None

    def on_setup(self, setup: Setup, resumed: int) -> Setup:
        if resumed:
            self.inserted.watch.load(resumed)
        self._rule = setup.rule
        rule = setup.rule if isinstance(setup.terms.scheme, Local) else _Watching(setup.rule, self.inserted)
        return dataclasses.replace(setup, federation=self.inserted.population(setup.federation), rule=rule)

    def on_engine(self, started: Started) -> Started:
        work = started.work
        if not started.engine.simulated:
            raise BadInput("canaries are put into runs on this machine, not across data holders; use canaries 0.")
        assert self._rule is not None
        self.inserted.work = work
        return started._replace(engine=_CanaryEngine(started.engine, self.inserted, work, self._rule))

    def on_round(self, run: Run) -> None:
        """Before the checkpoint of this round: after a crash, the newest checkpoint always finds its match."""
        if run.checkpoint_due:
            self.inserted.watch.save(run.state.round)

    def on_end(self, run: Run) -> None:
        self.inserted.watch.save(run.state.round)
        if run.checkpoint_due:  # it has been made: no other will be asked for
            self.inserted.watch.tidy(run.state.round)
        self.inserted.finish(run.first, run.state.theta)


class Inserted:
    """The canaries of one run, from before its first round to after its last."""

    work: Any = None  # what clients do, once the engine has started

    def __init__(self, terms: Terms, dimension: int, folder: Path, federation: Federation) -> None:
        plan = terms.plan
        who.enough(plan)
        if plan.method_spec.scheme is not None:
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
        rate = terms.scheme.release_rate(terms)
        self.watch = watching.Watch(self.canaries, rate, terms.relation == Relation.REPLACE_ONE, folder)
        if kept is None:
            self._write({})

    @property
    def noisy_messages(self) -> bool:
        """Whether each canary is seen in a message of its own."""
        return self.terms.scheme.noise == Noise.LOCAL

    def population(self, federation: Federation) -> Federation:
        """The population with canary records behind the real ones, if that is the kind."""
        return federation if self.records is None else self.records.behind(federation)

    def sign(self, canary: int) -> int:
        """1: contributes; 0: gives nothing; -1: is replaced by its opposite."""
        if self.canaries.coins[canary]:
            return 1
        return -1 if self.watch.opposite else 0

    def finish(self, start: np.ndarray, end: np.ndarray) -> None:
        """Keep what an audit needs."""
        watch = self.watch
        scores: dict[str, object] = {}
        if self.records is not None:
            scores["final-model"] = self.records.scores(self.work.site, start, end).tolist()
        else:
            scores["all-rounds"] = watch.ratio.tolist()
            if not self.canaries.turning and not self.noisy_messages:
                scores["final-model"] = watch.cosines(end.astype(np.float64) - start).tolist()
        whole = self.records is None and not watch.opposite and not self.canaries.single and watch.even
        cosines = watch.cosines(watch.matched).tolist() if whole else None
        self._write({"scores": scores, "cosines": cosines, "releases": watch.releases})

    def _write(self, found: dict[str, object]) -> None:
        terms, canaries = self.terms, self.canaries
        content = {
            "count": canaries.count,
            "kind": self.plan.canary,
            "block": canaries.block,
            "secret": canaries.secret,
            "coins": canaries.coins.astype(int).tolist(),
            "relation": str(terms.relation),
            "event": events.to_json(terms.total) if terms.proven else None,
            "noisy_messages": self.noisy_messages,
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
        if not self.inserted.noisy_messages:
            visible = None
            if plan.scheme.cohort_seen:
                visible = self.inserted.canaries.cohort(plan, seen.round, watch.rate)
            total = watching.in_sum_space(seen.mean, seen.bound) * self.denominator
            watch.note(seen.round, total, seen.bound, np.asarray(seen.noise) * self.denominator, visible)


class _CanaryEngine:
    """The engine of the run, and the canaries beside it."""

    def __init__(self, engine: Engine, inserted: Inserted, work: Any, rule: Rule) -> None:
        self.engine, self.inserted, self.work = engine, inserted, work
        self.theta, self.simulated = engine.theta, engine.simulated
        self.clients_keep_state = engine.clients_keep_state
        scheme = inserted.terms.scheme
        self.clients = _CanaryClients(inserted, work) if isinstance(scheme, Client) else None
        self.steps = None
        if isinstance(scheme, Local):
            from sordino.audit.steps import CanarySteps

            assert isinstance(work, LocalSteps)
            self.steps = CanarySteps(inserted, work, rule)

    def run(self, request: Request, items: Sequence[object]) -> Aggregate:
        gathered = self.engine.run(request, items)
        if request.phase != CONTRIBUTE:
            return gathered
        plan, canaries = self.inserted.plan, self.inserted.canaries
        if self.steps is not None:
            self.steps.run(request)
            return gathered
        there = canaries.cohort(plan, request.round, self.inserted.watch.rate)
        if self.inserted.noisy_messages:
            self._messages(request, np.flatnonzero(there))
            return gathered
        codes = np.zeros(self.theta.size, np.int64)
        quiet = dataclasses.replace(request, query=None, query_grid=None, multiplier=None, query_multiplier=None)
        if self.inserted.records is not None:
            self.inserted.records.contribute(self.work, quiet, np.flatnonzero(there & canaries.coins), codes)
        else:
            self._directions(quiet, there, codes)
        part = Private(mechanisms.Sum(codes, request.grid), bound=request.bound)
        assert isinstance(gathered.total, Private)
        return dataclasses.replace(gathered, total=mechanisms.add([part], gathered.total))

    def evaluate(self) -> tuple[float, float] | None:
        return self.engine.evaluate()

    def close(self) -> None:
        self.engine.close()

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
        value = np.zeros(self.theta.size)
        alone = dataclasses.replace(request, query=None, query_grid=None, query_multiplier=None)
        for k in there:
            codes = np.zeros(self.theta.size, np.int64)
            self.clients.message(alone, int(k), self.inserted.sign(int(k)), request.bound, codes)
            value = np.where(canaries.owner == k, request.grid.decode(codes), value)
        visible = np.isin(np.arange(canaries.count), there)
        watch.note(request.round, value, request.bound, request.bound.std(request.multiplier), visible)


class _CanaryClients(ClientUpdate):
    """Clients whose update is a canary's direction; the rest of what they do is what clients do."""

    def __init__(self, inserted: Inserted, work: Any) -> None:
        super().__init__(work.site, work.theta, inserted.terms)
        self.canaries, self.sign = inserted.canaries, 0
        self.bound: Bound | None = None

    def message(self, request: Request, canary: int, sign: int, bound: Bound, out: np.ndarray) -> Reply:
        """Numbered after the real clients, whose noise must not be theirs."""
        self.sign, self.bound = sign, bound
        return self.contribute(request, self.plan.clients + canary, out)

    def update(self, t: int, item: int) -> np.ndarray:
        assert self.bound is not None
        return self.sign * self.canaries.update(item - self.plan.clients, self.bound, t)


def _secret(plan: Plan) -> int:
    """Drawn from the plan's seed, so that a run can be repeated; from the system where noise is."""
    if plan.secure:
        return int.from_bytes(os.urandom(8), "little") >> 1
    return int(stream(plan.seed, 0, SERVER, "canaries").integers(2**63 - 1))
