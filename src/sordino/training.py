"""Training from a plan: the loop around the rounds, and what it leaves behind.

    result = train(model, federation, plan)

Grants are on disk before data is touched, checkpoints after every round; a run that is killed goes on with `resume`.
Everything but the rounds themselves is a callback (`sordino.callbacks`).
"""

from __future__ import annotations

import copy
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sordino import defences, evaluation, record
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
from sordino.clients.personal import PersonalModels, coordinates
from sordino.data.describe import unscaled
from sordino.data.ingest import NO_TEST
from sordino.data.schema import CLASSIFICATION
from sordino.engines import Aborted, EngineOptions, Setup, Started, StartEngine, client_scores, start_engine
from sordino.engines.client_scores import Spread
from sordino.errors import BadInput, BudgetRefused, SordinoError, SordinoWarning
from sordino.evaluation import Figures
from sordino.federation import binding, checkpoint
from sordino.federation.checkpoint import Checkpoint, TrainState
from sordino.federation.folder import RunFolder, told_when_full
from sordino.federation.population import Federation
from sordino.federation.sampling import Draws
from sordino.federation.sizes import PublicSizes
from sordino.files import write_atomically
from sordino.inference import card
from sordino.methods import Method, RuleContext
from sordino.noisy_figures import Measure, NoisyFigures
from sordino.plain import Json
from sordino.plan import Plan
from sordino.preparation import Stages
from sordino.privacy.data_account import DataAccount
from sordino.privacy.ledger import Ledger
from sordino.schemes import certified, held_out, prelude, settle
from sordino.schemes.build_statement import build_statement
from sordino.schemes.client import ClientUpdate
from sordino.schemes.prelude import Ask
from sordino.schemes.round import Context, RoundResult
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from torch import nn

    from sordino.clients.descent import Loss
    from sordino.privacy.statement import Statement
    from sordino.rules.base import Rule

__all__ = ["Progress", "Result", "train"]

NOT_TESTED = "the test on the held-out records was cut short, and the budget holds it once: there are no figures of it."


@dataclass(frozen=True)
class Result:
    """What training gives back."""

    model: nn.Module
    plan: Plan
    terms: Terms
    statement: Statement
    folder: Path
    rounds: int
    stopped: str | None  # why training ended before its last round
    accuracy: float | None
    metrics: list[Json] = field(repr=False)
    warnings: tuple[str, ...] = ()
    fairness: Spread | None = None  # accuracy of the model on the clients' public test splits
    evaluation: Figures | None = None
    held_out: NoisyFigures | None = None  # on records that were held out, with noise

    @property
    def epsilon(self) -> float:
        return self.terms.spent.epsilon

    def to_json(self) -> dict[str, object]:
        plan, claimed = self.plan, self.terms.claimed
        seconds = [row["seconds"] for row in self.metrics]
        return {
            "method": plan.method,
            "variant": str(plan.variant),
            "data": plan.data,
            "unit": str(plan.unit),
            "relation": str(self.terms.relation),
            "observer": str(plan.observer),
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else "inf",
            "delta": plan.delta,
            "epsilon_claimed": claimed,
            "reasons": list(self.terms.reasons),
            "departures": list(plan.method_spec.departures(plan)),
            "rounds": self.rounds,
            "multiplier": self.terms.multiplier,
            "accuracy": self.accuracy if self.accuracy is not None or self.held_out is None else self.held_out.accuracy,
            "fairness": None if self.fairness is None else self.fairness.to_json(),
            "seconds_per_round": float(np.median(seconds)) if seconds else None,
            "stopped": self.stopped,
            "warnings": list(self.warnings),
            "evaluation": None if self.evaluation is None else self.evaluation.to_json(),
            "held_out": None if self.held_out is None else self.held_out.to_json(),
            "run": str(self.folder),
        }


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
    _check_model(model, federation, plan, stages, loss)
    plan = as_trained(plan, federation, own)
    advice = _advise(federation, plan)
    terms = settle(plan, PublicSizes.of(federation, plan.scheme.uses_sizes))
    rule = build_rule(terms, model)  # may refuse: no folder yet
    measure = None if terms.held_out is None else held_out.measure_for(terms, federation)
    _rehearse_statement(terms, model, federation)
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


def _advise(federation: Federation, plan: Plan) -> tuple[str, ...]:
    """What a user should hear before the budget is spent. It looks at public data only."""
    said = []
    if plan.preparation is None:  # which scales
        said.append(unscaled(federation.schema, None if federation.test is None else federation.test[0]))
    if federation.test is None and federation.schema is not None and plan.test != NO_TEST and plan.holdout is None:
        said.append(
            "there is no public test set, so nothing will say how good the model is: give one (--test FILE), hold a share of the "
            "records out (--test holdout=0.1, released with noise), or say --test none."
        )
    told = tuple(sentence for sentence in said if sentence is not None)
    for sentence in told:
        warnings.warn(sentence, SordinoWarning, stacklevel=3)
    return told


def _rehearse_statement(terms: Terms, model: nn.Module, federation: Federation) -> None:
    """The page that is written first at the end can be written."""
    dimension = sum(p.numel() for p in model.parameters() if p.requires_grad)
    build_statement(terms, TrainState(0, np.zeros(dimension, np.float32), {}, {}), notes=federation.notes).text()


def build_rule(terms: Terms, model: nn.Module) -> Rule:
    """The rule of the plan's method; refused before data is touched if no proof covers what it asks."""
    sizes = tuple(p.numel() for p in model.parameters() if p.requires_grad)
    rule = terms.plan.method_spec.build(RuleContext(terms.plan, sizes, terms.units, terms.multiplier or None))
    certified.check_rule(terms, rule)
    return rule


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
        self.callbacks = [*_canaries(setup, folder), Evaluation(), Checkpoints(), KeptModels(), MetricLines(), *extra]
        done = 0 if self.kept is None else self.kept.state.round
        for callback in self.callbacks:
            setup = callback.on_setup(setup, done)
        self.setup = setup

    def run(self, start: StartEngine, stages: Stages | None = None, ask: Ask | None = None) -> Result:
        setup, plan = self.setup, self.plan
        ledger: Ledger | None = None
        started: Started | None = None
        aside: Ledger | None = None  # of the held-out records
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
            _write_statement(self.folder, statement)  # before anything that can fail
            for callback in self.callbacks:
                callback.on_end(run)
            fairness = self._client_scores(setup, run)
            tested = None if aside is None else self._test(setup, run, aside)
        finally:
            self.folder.close()
            for book in (ledger, aside):
                if book is not None:
                    book.close()
            if started is not None:
                started.engine.close()
        accuracy = run.row.get("accuracy")
        result = _finish(
            setup.model, setup.federation, terms, self.folder, run, statement, accuracy, plan, fairness, tested
        )
        return (
            result if aside is None or tested is not None else replace(result, warnings=(*result.warnings, NOT_TESTED))
        )

    def _client_scores(self, setup: Setup, run: Run) -> Spread | None:
        """How the model does at each client, on public splits. Figures of personal models stay with the personal models."""
        theta, work = run.state.theta, run.started.work
        if self.plan.task != CLASSIFICATION:
            return None  # there is no accuracy
        if setup.personal is not None and isinstance(work, ClientUpdate):
            own = client_scores.spread(
                setup.model, setup.federation, lambda k: work.own_model(k, run.state.round + 1, theta)
            )
            client_scores.write_personal(self.folder.personal, own)
        found = client_scores.spread(setup.model, setup.federation, lambda k: theta)
        if found is not None:
            self.folder.write("fairness.json", json.dumps(found.to_json(), indent=2) + "\n")
        return found

    def _test(self, setup: Setup, run: Run, ledger: Ledger) -> NoisyFigures | None:
        """How good the model is on the held-out records, with noise; None if that was cut short."""
        measure, held = self.measure, setup.federation.held_out
        assert measure is not None and held is not None
        model = copy.deepcopy(setup.model)
        model.load_state_dict(self.initial)
        ask = self.test or held_out.here(held, self.plan, measure, model)
        try:
            return held_out.play(setup.terms, measure, ledger, ask, run.state.theta, self.folder.path)
        except Aborted as gone:
            warnings.warn(f"the held-out records were not tested on: {gone}", SordinoWarning, stacklevel=2)
            return None

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


def _finish(
    module: nn.Module,
    federation: Federation,
    terms: Terms,
    folder: RunFolder,
    run: Run,
    statement: Statement,
    accuracy: float | None,
    plan: Plan,
    fairness: Spread | None,
    tested: NoisyFigures | None,
) -> Result:
    from sordino.gradients.flat import Flat
    from sordino.models.packed import unpacked
    from sordino.report.run import write_report
    from sordino.verify import manifest

    module.load_state_dict(run.initial)  # what is saved is the trained vector, and the rest as it was before training
    Flat(module).load(run.state.theta)
    found = _evaluate(module, federation)
    module = unpacked(module)
    about = record.about_weights(federation, statement.to_json())
    write_atomically(folder.path / "model.safetensors", checkpoint.weights(module, about), durable=True)
    if found is not None:
        folder.write(evaluation.NAME, json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n")
    folder.write(card.NAME, card.card(folder.path))
    manifest.write(folder.path)
    stopped = statement.stopped or None
    said = (*(() if found is None else found.warnings), *(() if tested is None else tested.warnings))
    result = Result(
        module,
        plan,
        terms,
        statement,
        folder.path,
        statement.rounds,
        stopped,
        accuracy,
        run.history,
        said,
        fairness,
        found,
        tested,
    )
    write_report(result.folder)
    return result


def _evaluate(module: nn.Module, federation: Federation) -> Figures | None:
    """Everything that the public test set says about the released model."""
    from sordino.inference.running import scores_of

    if federation.test is None:
        return None
    x, y = federation.test
    scale = None if federation.schema is None else federation.schema.scale
    return evaluation.evaluate(scores_of(module, x), y, federation.task, federation.class_names, scale)


def _write_statement(folder: RunFolder, statement: Statement) -> None:
    folder.write("statement.txt", statement.text() + "\n")
    folder.write("statement.json", json.dumps(statement.to_json(), indent=2) + "\n")


def _check_model(
    model: nn.Module, federation: Federation, plan: Plan, stages: Stages | None, loss: Loss | None
) -> None:
    """A model or a loss that does not fit the data, the defence or the personal layers is refused before anything is granted.

    Of records it sees shapes alone; of the public test set all of it, once, as the evaluation at the end does.
    """
    import torch

    from sordino.gradients.flat import check_output, layout
    from sordino.rehearsal import rehearse

    x, _ = federation[0]
    if stages is not None:
        shape, dtype = stages.shape, torch.float32
    else:
        shape, dtype = tuple(x.shape[1:]), torch.from_numpy(np.array(x[:0])).dtype
    check_output(model, shape, dtype, federation.classes)
    defences.check_model(defences.build(plan), model, shape, dtype)
    if plan.personal is not None:
        coordinates(layout(model), plan.personal)
    rehearse(model, federation, loss, shape, dtype, prepared=stages is not None)
