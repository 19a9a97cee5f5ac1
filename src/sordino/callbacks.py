"""What happens around the rounds: checkpoints, metrics, kept models, progress, canaries, early stop. All are callbacks.

A callback of your own is a subclass of `Callback` that overrides what it needs:

    class Patient(sordino.Callback):
        def on_round(self, run):
            if run.row["round"] >= 20:
                run.stop("twenty rounds are enough")

    sordino.train(model, federation, plan, callbacks=[Patient()])

It sees released values only. Stopping early is free: the statement still charges every round that was settled.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sordino.engines import EngineOptions, Setup, Started
from sordino.federation import checkpoint
from sordino.federation.checkpoint import TrainState
from sordino.federation.folder import RunFolder
from sordino.plain import Json
from sordino.schemes.round import Round, RoundMetrics
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from torch import Tensor

    from sordino.plan import Plan


@dataclass
class Run:
    """A run in progress, as callbacks see it."""

    terms: Terms
    folder: RunFolder
    options: EngineOptions
    started: Started
    rounds: Round
    state: TrainState
    first: np.ndarray  # the vector that the model started from
    initial: dict[str, Tensor]  # the model's whole state before training
    row: Json = field(default_factory=dict)  # this round's line of metrics: released values
    history: list[Json] = field(default_factory=list)
    stopped: str | None = None

    @property
    def plan(self) -> Plan:
        """The plan that is trained."""
        return self.terms.plan

    def stop(self, reason: str) -> None:
        """End the run after this round. The reason goes into the statement."""
        self.stopped = self.stopped or reason

    @property
    def checkpoint_due(self) -> bool:
        """Whether this round ends with a checkpoint."""
        return self.options.checkpoints(self.state.round, self.plan.rounds)


class Callback:
    """Does nothing; override what you need."""

    def on_setup(self, setup: Setup, resumed: int) -> Setup:
        """Before the engine starts. `resumed` rounds are done already. May return another setup (audits do)."""
        return setup

    def on_engine(self, started: Started) -> Started:
        """When the engine has started, before round one. May wrap it (audits do)."""
        return started

    def on_round(self, run: Run) -> None:
        """After every round. `run.row` holds what was released; what is added to it stands in `result.metrics`."""

    def on_end(self, run: Run) -> None:
        """After the last round, before the statement is made."""


class Evaluation(Callback):
    """Accuracy and loss on the public test set, every so many rounds."""

    def on_round(self, run: Run) -> None:
        if run.options.evaluates(run.state.round, run.plan.rounds):
            self._score(run)

    def on_end(self, run: Run) -> None:
        last = run.history[-1] if run.history else {}
        if last.get("round") != run.state.round or "loss" not in last:
            self._score(run)
        run.row = {**last, **run.row}

    def _score(self, run: Run) -> None:
        run.started.engine.theta[:] = run.state.theta
        scored = run.started.engine.evaluate()
        if scored is not None:
            accuracy, run.row["loss"] = scored
            if not math.isnan(accuracy):
                run.row["accuracy"] = accuracy


class Checkpoints(Callback):
    """The state after every so many rounds, with the ledger's head."""

    def on_round(self, run: Run) -> None:
        if run.checkpoint_due:
            self.on_end(run)

    def on_end(self, run: Run) -> None:
        checkpoint.save(run.folder.checkpoint, run.state, {"ledger": run.rounds.ledger.head})


class KeptModels(Callback):
    """The released model of every so many rounds, for attacks that watch several."""

    def on_round(self, run: Run) -> None:
        if run.options.keeps(run.state.round):
            checkpoint.keep(run.folder.models, run.state)


class MetricLines(Callback):
    """A line per round in metrics.jsonl."""

    def on_round(self, run: Run) -> None:
        run.folder.add_metrics(run.row)
        run.history.append(run.row)


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


class Watch(Callback):
    """Tells a function how far the run is."""

    def __init__(self, tell: Callable[[Progress], None]) -> None:
        self.tell = tell

    def on_round(self, run: Run) -> None:
        row = run.row
        self.tell(
            Progress(
                round=row["round"],
                rounds=run.plan.rounds,
                accuracy=row.get("accuracy"),
                bound=row["bound"],
                spent=row["spent"],
                epsilon=run.terms.spent.epsilon,
                seconds=row["seconds"],
            )
        )


class EarlyStop(Callback):
    """Stop when accuracy on the public test set has not risen for so many evaluations."""

    def __init__(self, patience: int = 5) -> None:
        self.patience, self.best, self.since = patience, -1.0, 0

    def on_round(self, run: Run) -> None:
        accuracy = run.row.get("accuracy")
        if accuracy is None:
            return
        self.since = 0 if accuracy > self.best else self.since + 1
        self.best = max(self.best, accuracy)
        if self.since >= self.patience:
            run.stop(f"accuracy has not risen above {self.best:.1%} in {self.patience} evaluations")


def metrics_row(state: TrainState, metrics: RoundMetrics) -> dict[str, object]:
    """What a round released, as a line of metrics."""
    plain = dataclasses.asdict(metrics)
    extra = plain.pop("extra")
    return {"round": state.round, **plain, **extra}
