"""Thresholds on the loss (Yeom et al. 2018), for every task: `loss`; and relative to models without the record: `loss-calibrated`.

A model errs less on records that it was trained on. The plain attack takes the loss as it is, and a threshold from records
that the attacker knows. Some records are hard for every model, so the second attack takes off the mean loss of reference
models that were not trained on the record (difficulty calibration, Watson et al. 2022), on a scale of logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.attacks import features
from sordino.attacks.game import Game, Guess, Reach
from sordino.attacks.membership.rmia import mean_out
from sordino.attacks.metrics import best_threshold
from sordino.errors import BadInput

_LEAST = 1e-12


@dataclass(frozen=True)
class Loss:
    """Score by the negative logarithm of the loss; with `models` reference models, relative to theirs."""

    models: int = 0

    @property
    def reach(self) -> frozenset[Reach]:
        known = frozenset({Reach.QUERIES, Reach.KNOWN})
        return known | {Reach.SHADOWS} if self.models else known

    def guess(self, game: Game) -> Guess:
        scores = -logarithm(game.task, game.outputs(), game.labels)
        if self.models:
            if self.models < 2:
                raise BadInput("1 reference model leaves half of the records without one; train at least 2.")
            references = game.references(self.models)
            others = np.stack([logarithm(game.task, each, game.labels) for each in references.logits])
            scores = scores + mean_out(others, references.inside)
        return Guess(scores[game.judged], best_threshold(scores[game.own], game.own_members))


def logarithm(task: str, outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Of the loss of each record: losses of one model differ by factors."""
    return np.log(features.task_loss(task, outputs, labels) + _LEAST)
