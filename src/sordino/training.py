"""Training from a plan: the loop around the rounds, and what it leaves behind.

    result = train(model, federation, plan)

grants are on disk before data is touched, checkpoints after every round; a run that is killed goes on with `resume`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino.engines import Aborted, EngineOptions, start_engine
from sordino.errors import BadInput, BudgetRefused, SordinoError, in_short
from sordino.federation import checkpoint
from sordino.federation.folder import RunFolder, told_when_full
from sordino.federation.population import Federation
from sordino.methods import RuleContext
from sordino.plan import Plan
from sordino.privacy.filter import Filter, NoBudget, ScheduleFilter
from sordino.privacy.ledger import Ledger
from sordino.schemes.base import Round, RoundMetrics, TrainState
from sordino.schemes.build_statement import state
from sordino.schemes.terms import Public, Terms, settle

if TYPE_CHECKING:
    from torch import nn

    from sordino.clients.descent import Loss
    from sordino.privacy.statement import Statement
    from sordino.rules.base import Rule


@dataclass(frozen=True)
class Progress:
    """What a progress bar may show after a round: released values only."""

    round: int
    rounds: int
    accuracy: float | None
    bound: float | None
    spent: float  # share of the budget, 0 to 1
    epsilon: float
    seconds: float


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
    metrics: list[dict[str, Any]] = field(repr=False)

    @property
    def epsilon(self) -> float:
        return self.terms.spent.epsilon

    def to_json(self) -> dict[str, Any]:
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
            "rounds": self.rounds,
            "multiplier": self.terms.multiplier,
            "accuracy": self.accuracy,
            "seconds_per_round": float(np.median(seconds)) if seconds else None,
            "stopped": self.stopped,
            "run": str(self.folder),
        }


def train(
    model: nn.Module,
    federation: Federation,
    plan: Plan,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    speed: EngineOptions | None = None,
    loss: Loss | None = None,
    on_round: Callable[[Progress], None] | None = None,
    start: Callable[..., Any] = start_engine,
) -> Result:
    """Train `model` on `federation` as `plan` says, and state what is proven of the result.

    `out` is the run folder (by default a new one under ``runs/``). With `resume` the run in `out` goes on where it was.
    `loss(outputs, targets)` gives one number per example; by default cross-entropy. `start` makes the engine.
    """
    _check_output(model, federation)
    terms = settle(plan, Public.of(federation))
    sizes = tuple(p.numel() for p in model.parameters() if p.requires_grad)
    rule = plan.method_spec.build(
        RuleContext(plan, sizes, terms.units, terms.multiplier or None)
    )  # may refuse: no folder yet
    folder = RunFolder(out) if resume and out is not None else RunFolder.create(out, plan)
    with told_when_full(folder.path):
        return _train(model, federation, terms, rule, folder, resume, speed or EngineOptions(), loss, on_round, start)


def _train(
    module: nn.Module,
    federation: Federation,
    terms: Terms,
    rule: Rule,
    folder: RunFolder,
    resume: bool,
    speed: EngineOptions,
    loss: Loss | None,
    on_round: Callable[[Progress], None] | None,
    start: Callable[..., Any],
) -> Result:
    plan = terms.plan
    kept = checkpoint.load(folder.checkpoint) if resume else None
    dimension = sum(p.numel() for p in module.parameters() if p.requires_grad)
    canaries = _canaries(terms, dimension, folder, federation)
    if canaries is not None:
        federation = canaries.population(federation)
    engine, work, theta = start(module, federation, plan, rule, speed, loss)
    if canaries is not None:
        engine, rule = canaries.join(engine, work, rule, kept[0].round if kept else 0)
    ledger = _ledger(folder, terms, kept, resume)
    try:
        rounds = kind_of_round(terms)(terms, rule, engine, work, ledger)
        model = kept[0] if kept else rounds.start(theta.copy())
        history = folder.start_metrics(model.round)
        model = rounds.pass_over(model)
        stopped, aborted = None, 0
        while model.round < plan.rounds:
            started = time.perf_counter()
            try:
                model, facts = _finite(plan, *rounds.run(model))
            except BudgetRefused as refusal:
                stopped = str(refusal)
                break
            except Aborted:
                aborted += 1  # in a row
                if aborted >= speed.patience:
                    raise
                model = rounds.pass_over(model)
                continue
            aborted = 0
            row = _metrics(model, facts, terms, engine, speed, time.perf_counter() - started)
            if speed.checkpoints(model.round, plan.rounds):
                _checkpoint(folder, model, ledger, canaries)
            if speed.keeps(model.round):
                checkpoint.keep(folder.models, model)
            row["spent"] = rounds.share(model)
            row["seconds"] = time.perf_counter() - started
            folder.add_metrics(row)
            history.append(row)
            if on_round is not None:
                on_round(_progress(row, terms))
        engine.theta[:] = model.theta
        accuracy = _last_accuracy(history, model.round, engine)
        _checkpoint(folder, model, ledger, canaries)
        if canaries is not None:
            canaries.finish(theta, model.theta)
        simulated = getattr(engine, "simulated", True)
        terms = rounds.close(model)
        statement = state(terms, model, stopped, rounds.share(model), ledger.lost, simulated)
    finally:
        folder.close()
        ledger.close()
        engine.close()
    return _finish(module, terms, folder, model, statement, accuracy, history)


def _finite(plan: Plan, model: TrainState, facts: RoundMetrics) -> tuple[TrainState, RoundMetrics]:
    """Weights that overflowed stay so: going on would spend the budget on nothing. The last sound model is in the checkpoint."""
    if not np.isfinite(model.theta).all():
        raise SordinoError(
            f"round {model.round} left weights that are not finite: training has diverged; lower lr ({plan.lr:g}), "
            f"server_lr ({plan.server_lr:g}) or bound, and start again."
        )
    return model, facts


def kind_of_round(terms: Terms) -> type[Round]:
    """The kind of round that the method runs."""
    if not terms.plan.method_spec.closed_loop:
        return Round
    from sordino.schemes.fedmap.published_round import FedMapPublishedRound
    from sordino.schemes.fedmap.rounds import FedMapRound
    from sordino.schemes.fedmap.secagg_round import FedMapSecAggRound

    if terms.plan.published:
        return FedMapPublishedRound
    return FedMapSecAggRound if terms.plan.sealed else FedMapRound


def _canaries(terms: Terms, dimension: int, folder: RunFolder, federation: Federation) -> Any:
    """The canaries that the plan asks for, or None."""
    if not terms.plan.canaries:
        return None
    from sordino.audit.inserting import Inserted

    return Inserted(terms, dimension, folder.path, federation)


def _checkpoint(folder: RunFolder, model: TrainState, ledger: Ledger, canaries: Any) -> None:
    """What was kept of the canaries goes first: whichever checkpoint survives a crash finds its match."""
    if canaries is not None:
        canaries.save(model.round)
    checkpoint.save(folder.checkpoint, model, {"ledger": ledger.head})
    if canaries is not None:
        canaries.tidy(model.round)


def _ledger(folder: RunFolder, terms: Terms, kept: Any, resume: bool) -> Ledger:
    plan = terms.plan
    digest = _binding(plan)
    if resume and folder.ledger.exists():
        return Ledger.open(folder.ledger, digest, head=kept[1]["ledger"] if kept else None)
    about = {"unit": str(plan.unit), "relation": str(terms.relation), "observer": str(plan.observer)}
    return Ledger.create(folder.ledger, digest, _filter(terms), about, getattr(terms, "spending", None))


def _binding(plan: Plan) -> str:
    """What a ledger is bound to: the plan, and the content of a file that it names. A round that is run again is the same."""
    if plan.metanet is None:
        return plan.digest()
    return hashlib.sha256(plan.digest().encode() + Path(plan.metanet).read_bytes()).hexdigest()


def _filter(terms: Terms) -> Filter:
    """Everything that is released is settled before round one, so any accountant may prove it; the filter counts it off."""
    if not terms.proven:
        return NoBudget("the run is not private")
    if terms.plan.method_spec.closed_loop:
        return NoBudget("each client keeps a budget of its own")
    spent = terms.spent
    return ScheduleFilter(terms.slots, spent.epsilon, terms.plan.delta, terms.relation, spent.accountant)


def _metrics(
    model: TrainState, facts: RoundMetrics, terms: Terms, engine: Any, speed: EngineOptions, seconds: float
) -> dict[str, Any]:
    row: dict[str, Any] = {"round": model.round, **{k: v for k, v in dataclasses.asdict(facts).items() if k != "extra"}}
    row |= facts.extra
    if speed.evaluates(model.round, terms.plan.rounds):
        engine.theta[:] = model.theta
        scored = engine.evaluate()
        if scored is not None:
            row["accuracy"], row["loss"] = scored
    return row


def _progress(row: dict[str, Any], terms: Terms) -> Progress:
    return Progress(
        round=row["round"],
        rounds=terms.plan.rounds,
        accuracy=row.get("accuracy"),
        bound=row["bound"],
        spent=row["spent"],
        epsilon=terms.spent.epsilon,
        seconds=row["seconds"],
    )


def _last_accuracy(history: list[dict[str, Any]], round: int, engine: Any) -> float | None:
    if history and history[-1]["round"] == round and "accuracy" in history[-1]:
        return history[-1]["accuracy"]
    scored = engine.evaluate()
    return None if scored is None else scored[0]


def _finish(
    module: nn.Module,
    terms: Terms,
    folder: RunFolder,
    model: TrainState,
    statement: Statement,
    accuracy: Any,
    history: list,
) -> Result:
    import json

    from sordino.gradients.flat import Flat

    Flat(module).load(model.theta)
    checkpoint.save_weights(module, folder.path / "model.safetensors")
    folder.write("statement.txt", statement.text() + "\n")
    folder.write("statement.json", json.dumps(statement.to_json(), indent=2) + "\n")
    stopped = statement.stopped or None
    result = Result(module, terms.plan, terms, statement, folder.path, statement.rounds, stopped, accuracy, history)
    _report(result)
    return result


def _report(result: Result) -> None:
    from sordino.report.run import write_report

    write_report(result.folder)


def _check_output(model: nn.Module, federation: Federation) -> None:
    """One forward pass on one example: a model that does not fit the data is refused before anything is granted."""
    import torch

    x, _ = federation[0]
    sample = torch.from_numpy(np.array(x[:1]))
    try:
        with torch.no_grad():
            out = model(sample.to(next(model.parameters()).device))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise BadInput(
            f"the model does not take examples of shape {tuple(x.shape[1:])} ({in_short(error)}); choose one that fits."
        ) from None
    if out.ndim != 2 or out.shape[1] < federation.classes:
        raise BadInput(
            f"the model gives outputs of shape {tuple(out.shape[1:])} and the data has {federation.classes} classes; "
            f"give it {federation.classes} outputs."
        )
