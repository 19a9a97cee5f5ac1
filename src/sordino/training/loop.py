"""Training from a plan: the loop around the rounds, and what it leaves behind.

    result = train(model, federation, plan)

Grants are on disk before data is touched, checkpoints after every round; a run that is killed goes on with `resume`.
Everything but the rounds themselves is a callback (`sordino.callbacks`).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sordino import record
from sordino.assembly import as_trained, held_apart
from sordino.callbacks import (
    Callback,
    Checkpoints,
    Evaluation,
    KeptModels,
    MetricLines,
    Progress,
    Run,
    Watch,
    metrics_row,
)
from sordino.clients.personal import PersonalModels
from sordino.data.schema import CLASSIFICATION
from sordino.engines import Aborted, EngineOptions, Setup, Started, StartEngine, client_scores, start_engine
from sordino.errors import BadInput, BudgetRefused, SordinoError
from sordino.federation import binding, checkpoint
from sordino.federation.checkpoint import Checkpoint
from sordino.federation.folder import RunFolder, told_when_full
from sordino.federation.population import Federation
from sordino.federation.sampling import Draws
from sordino.federation.sizes import PublicSizes
from sordino.files import write_atomically
from sordino.methods import Method
from sordino.noisy_figures import Measure, NoisyFigures
from sordino.plan import Plan
from sordino.preparation import Stages
from sordino.privacy.data_account import DataAccount
from sordino.privacy.ledger import Ledger
from sordino.schemes import held_out, prelude, settle
from sordino.schemes.build_statement import build_statement
from sordino.schemes.prelude import Ask
from sordino.schemes.round import Context, RoundResult
from sordino.schemes.terms import Terms
from sordino.training import before, ending, figures
from sordino.training.result import Result

if TYPE_CHECKING:
    from torch import nn

    from sordino.clients.descent import Loss

NOT_TESTED = "the test on the held-out records was cut short, and the budget holds it once: there are no figures of it."


def train(
    model: nn.Module,
    federation: Federation,
    plan: Plan,
    *,
    method: Method | str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    options: EngineOptions | None = None,
    loss: Loss | None = None,
    callbacks: Sequence[Callback] = (),
    on_round: Callable[[Progress], None] | None = None,
    account: str | Path | None = None,
    start: StartEngine = start_engine,
    ask: Ask | None = None,
    test: held_out.Test | None = None,
) -> Result:
    """Train `model` on `federation` as `plan` says, and state what is proven of the result.

    `method` replaces the plan's: a `Method` of your own, or its name as ``module:object``. `out` is the run folder (by
    default a new one under ``runs/``). With `resume` the run in `out` goes on where it was. `loss(outputs, targets)`
    gives one number per example; by default cross-entropy. `account` is a file that adds up what all runs on these records
    cost (`sordino.privacy.data_account`). `callbacks` are called around the rounds
    (`sordino.Callback`). `start` makes the engine; `ask` puts a question of the prelude to all clients, and `test` has them
    test the model on held-out records (default: on this machine).
    """
    from sordino.models.packed import packed

    if method is not None:
        plan = plan.replace(method=method)
    federation = held_apart(federation, plan)
    own, model = model, packed(model, federation.layout)
    stages = None if plan.preparation is None else plan.preparation.stages(federation.input_shape)
    before.check_model(model, federation, plan, stages, loss)
    plan = as_trained(plan, federation, own)
    advice = before.advise(federation, plan)
    terms = settle(plan, PublicSizes.of(federation, plan.scheme.uses_sizes))
    rule = before.build_rule(terms, model)  # may refuse: no folder yet
    measure = None if terms.held_out is None else held_out.measure_for(terms, federation)
    before.rehearse_statement(terms, model, federation)
    folder = RunFolder(out) if resume and out is not None else RunFolder.create(out, plan)
    extra = [*callbacks, *([Watch(on_round)] if on_round is not None else [])]
    options = options or EngineOptions()
    personal = PersonalModels(folder.personal, options.checkpoint_every + 1) if plan.scheme.keeps_personal else None
    setup = Setup(model, federation, terms, rule, Draws(plan), options, loss, personal)
    try:
        with told_when_full(folder.path):
            training = _Training(setup, folder, resume, extra)
            training.account = None if account is None else Path(account)
            training.measure, training.test = measure, test
            result = training.run(start, stages, ask)
            return replace(result, warnings=(*advice, *result.warnings))
    finally:
        folder.close()


class _Training:
    """One call of `train`."""

    def __init__(self, setup: Setup, folder: RunFolder, resume: bool, extra: Sequence[Callback]) -> None:
        self.folder, self.resume, self.plan = folder, resume, setup.terms.plan
        self.account: Path | None = None
        self.measure: Measure | None = None
        self.test: held_out.Test | None = None
        self.begun = resume and folder.ledger.exists()
        self.kept: Checkpoint | None = checkpoint.load(folder.checkpoint) if resume else None
        if self.kept is not None and setup.personal is not None and not folder.personal.is_dir():
            raise BadInput(
                f"{folder.personal} is missing, and with it what the clients of this run keep for themselves; restore it, or start "
                "a new run."
            )
        self.federation = setup.federation
        self.initial = {name: value.detach().clone() for name, value in setup.model.state_dict().items()}
        # Noise that was drawn for one population must not meet another.
        salt = binding.bind(folder.checkpoint, setup.federation, resume=self.begun)
        if not self.begun:
            record.write(folder.path, setup.federation, setup.model, salt)
        self.callbacks = [
            *_canaries(setup, folder),
            Evaluation(),
            MetricLines(),
            KeptModels(),
            Checkpoints(),  # a round that is kept has its line and its model
            *extra,  # after all that is kept: what a callback raises costs no round
        ]
        done = 0 if self.kept is None else self.kept.state.round
        for callback in self.callbacks:
            setup = callback.on_setup(setup, done)
        self.setup = setup

    def run(self, start: StartEngine, stages: Stages | None = None, ask: Ask | None = None) -> Result:
        setup, plan = self.setup, self.plan
        ledger: Ledger | None = None
        started: Started | None = None
        aside: Ledger | None = None  # of the held-out records
        tested: NoisyFigures | None = None
        counted = self._count()  # before any grant
        try:
            if self.measure is not None:
                aside = held_out.open_ledger(self.folder.path, setup.terms, binding.plan_digest(plan), self.begun)
            if stages is not None:
                ledger = self._ledger(setup.terms)
                setup = self._prepare(setup, stages, ledger, ask)
            started = start(setup)
            for callback in self.callbacks:
                started = callback.on_engine(started)
            ledger = ledger or self._ledger(setup.terms)
            context = Context(setup.terms, setup.rule, started.engine, started.work, ledger, setup.draws)
            rounds = setup.terms.scheme.rounds(context)
            state = self.kept.state if self.kept else rounds.start(started.theta.copy())
            run = Run(setup.terms, self.folder, setup.options, started, rounds, state, started.theta, self.initial)
            run.history = self.folder.start_metrics(state.round)
            self._loop(run)
            terms = rounds.close(run.state)
            share = rounds.share(run.state)
            notes = (*self.federation.notes, *started.work.assumptions())
            if self.plan.task == CLASSIFICATION and setup.federation.has_local_tests:
                notes = (*notes, client_scores.PUBLIC)
            simulated = started.engine.simulated
            statement = build_statement(terms, run.state, run.stopped, share, ledger.lost, simulated, notes)
            statement = replace(statement, account=counted)
            ending.write_statement(self.folder, statement)  # before anything that can fail
            for callback in self.callbacks:
                callback.on_end(run)
            fairness = figures.client_spread(setup, run)
            if aside is not None:
                assert self.measure is not None
                tested = figures.held_out_test(setup, run, self.measure, aside, self.test)
        finally:
            self.folder.close()
            for book in (ledger, aside):
                if book is not None:
                    book.close()
            if started is not None:
                started.engine.close()
        accuracy = run.row.get("accuracy")
        result = ending.finish(
            setup.model, setup.federation, terms, self.folder, run, statement, accuracy, plan, fairness, tested
        )
        return (
            result if aside is None or tested is not None else replace(result, warnings=(*result.warnings, NOT_TESTED))
        )

    def _count(self) -> str:
        """Enter this run into the account of the data, once, and say what all runs on it have spent."""
        if self.account is None:
            return ""
        name = self.folder.checkpoint / "account"
        if not name.exists():
            write_atomically(name, os.urandom(16).hex(), durable=True)
        spent, plan = self.setup.terms.spent, self.plan
        epsilon = spent.epsilon if self.setup.terms.proven else math.inf
        about = (
            f"{plan.method} ({plan.variant}), {plan.unit} unit, {self.setup.terms.relation}, towards {plan.observer}"
        )
        return DataAccount(self.account).enter(name.read_text(), epsilon, plan.delta, about).sentence()

    def _prepare(self, setup: Setup, stages: Stages, ledger: Ledger, ask: Ask | None) -> Setup:
        """Play the prelude, and give every client its model input: before the engine starts, which may fork."""
        asked = ask or prelude.here(self.federation, self.plan, stages)
        released = prelude.play(setup.terms, stages, ledger, asked, self.folder.path)
        return replace(setup, federation=setup.federation.mapped(lambda x: stages.apply(x, released)))

    def _loop(self, run: Run) -> None:
        """Round after round, until the plan, the budget or a callback ends it."""
        rounds, aborted = run.rounds, 0
        run.state = rounds.pass_over(run.state)
        while run.state.round < run.plan.rounds and run.stopped is None:
            began = time.perf_counter()
            try:
                run.state, metrics = _finite(run.plan, rounds.run(run.state))
            except BudgetRefused as refusal:
                run.stop(str(refusal))
                return
            except Aborted:
                aborted += 1  # in a row
                if aborted >= run.options.patience:
                    raise
                run.state = rounds.pass_over(run.state)
                continue
            aborted = 0
            run.row = metrics_row(run.state, metrics) | {"spent": rounds.share(run.state)}
            run.row["seconds"] = time.perf_counter() - began
            for callback in self.callbacks:
                callback.on_round(run)

    def _ledger(self, terms: Terms) -> Ledger:
        digest = binding.plan_digest(self.plan)
        path = self.folder.ledger
        if self.resume and path.exists():
            return Ledger.open(path, digest, head=self.kept.facts["ledger"] if self.kept else None)
        if self.kept is not None:
            raise BadInput(
                f"{self.folder.path} holds a checkpoint of round {self.kept.state.round} and no ledger.jsonl, so what was "
                "spent is not known; restore the ledger, or start a new run."
            )
        return Ledger.create(path, digest, terms.budget_filter(), terms.about(), terms.client_budgets())


def _canaries(setup: Setup, folder: RunFolder) -> list[Callback]:
    """The canaries that the plan asks for."""
    if not setup.terms.plan.canaries:
        return []
    from sordino.audit.inserting import CanaryCallback

    return [CanaryCallback(setup, folder.path)]


def _finite(plan: Plan, result: RoundResult) -> RoundResult:
    """Weights that overflowed stay so: going on would spend the budget on nothing. The last sound model is in the checkpoint."""
    if not np.isfinite(result.state.theta).all():
        raise SordinoError(
            f"round {result.state.round} left weights that are not finite: training has diverged; lower lr ({plan.lr:g}), "
            f"server_lr ({plan.server_lr:g}) or bound, and start again."
        )
    return result
