"""What training gives back."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sordino.engines.client_scores import Spread
from sordino.evaluation import Figures
from sordino.noisy_figures import NoisyFigures
from sordino.plain import Json
from sordino.plan import Plan
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from torch import nn

    from sordino.privacy.statement import Statement


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
        """Epsilon of the whole run, proven; infinite if it is not private."""
        return self.terms.spent.epsilon

    def to_json(self) -> dict[str, object]:
        """What `sordino train --json` prints."""
        plan, claimed = self.plan, self.terms.claimed
        seconds = [row["seconds"] for row in self.metrics]
        guess = plan.method_spec.guess_in(plan)
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
            "departures": [*([guess] if guess else []), *plan.method_spec.departures(plan)],
            "rounds": self.rounds,
            # None: clients set their own, as in FedMAP as published; 0 is for a method without noise.
            "multiplier": self.terms.multiplier or (None if plan.private else 0.0),
            "accuracy": self.accuracy if self.accuracy is not None or self.held_out is None else self.held_out.accuracy,
            "fairness": None if self.fairness is None else self.fairness.to_json(),
            "seconds_per_round": float(np.median(seconds)) if seconds else None,
            "stopped": self.stopped,
            "warnings": list(self.warnings),
            "evaluation": None if self.evaluation is None else self.evaluation.to_json(),
            "held_out": None if self.held_out is None else self.held_out.to_json(),
            "run": str(self.folder),
        }
