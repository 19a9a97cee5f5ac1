"""Shadow models and logistic regression (Shokri et al. 2017, with the classifier that FedMAP uses): `shadow-lr`.

Several shadow models are trained by the target's plan on halves of the shadow data. One logistic regression per class
learns, over all of them, which records were in, from the three largest probabilities, loss, entropy and margin, and is
then applied to the target.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.attacks import features
from sordino.attacks.game import Game, Guess, Reach
from sordino.attacks.metrics import best_threshold
from sordino.attacks.networks import Scale

FEWEST = 20  # records of a class on either side, for a classifier of its own


@dataclass(frozen=True)
class ShadowLR:
    """Over `shadows` shadow models."""

    shadows: int = 4
    reach = frozenset({Reach.QUERIES, Reach.SHADOWS})

    def guess(self, game: Game) -> Guess:
        shadows = game.shadows(self.shadows)
        count = len(shadows.inside)
        labels = np.tile(game.population_labels, count)
        table = table_of(shadows.logits.reshape(len(labels), -1), labels)
        inside = shadows.inside.reshape(-1)
        scale = Scale.of(table)
        judged = table_of(game.outputs()[game.judged], game.labels[game.judged])
        learnt, scores = _per_class(scale(table), labels, inside, scale(judged), game.labels[game.judged])
        return Guess(scores, best_threshold(learnt, inside))


def table_of(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    top = features.largest(logits, min(3, logits.shape[1]))
    rest = [features.loss(logits, labels), features.entropy(logits), features.margin(logits, labels)]
    return np.column_stack([top, *rest])


def _per_class(
    table: np.ndarray, labels: np.ndarray, inside: np.ndarray, judged: np.ndarray, theirs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds of membership on what was learnt from, and on what is judged."""
    from sklearn.linear_model import LogisticRegression

    def fit(rows: np.ndarray) -> LogisticRegression:
        return LogisticRegression(max_iter=2000, class_weight="balanced").fit(table[rows], inside[rows])

    common = fit(np.ones(len(labels), bool))
    learnt, scores = common.decision_function(table), common.decision_function(judged)
    for label in np.unique(labels):
        here, there = labels == label, theirs == label
        if min(inside[here].sum(), (~inside[here]).sum()) >= FEWEST and there.any():
            own = fit(here)
            learnt[here], scores[there] = own.decision_function(table[here]), own.decision_function(judged[there])
    return learnt, scores
