"""Shadow models and logistic regression (Shokri et al. 2017, with the classifier that FedMAP uses): `shadow-lr`, and
`shadow-lr-unseen` in the setting of FedMAP's table 2.

Several shadow models are trained by the target's plan on halves of the shadow data. One logistic regression per class
learns, over all of them, which records were in, from the three largest probabilities, loss, entropy and margin, and is
then applied to the target.

`unseen` judges a record by a classifier that learnt from no record of its class: the classes are dealt into groups, and each group is
attacked in turn by one regression over the other classes. The shadow models themselves were trained on all classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sordino.attacks import features
from sordino.attacks.game import Game, Guess, Reach
from sordino.attacks.membership.quantile import unseen_groups
from sordino.attacks.metrics import best_threshold
from sordino.attacks.networks import Scale

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

FEWEST = 20  # records of a class on either side, for a classifier of its own


@dataclass(frozen=True)
class ShadowLR:
    """Over `shadows` shadow models. `unseen`: the share of classes that the classifier never sees; 0: the usual setting."""

    shadows: int = 4
    unseen: float = 0.0
    reach = frozenset({Reach.QUERIES, Reach.SHADOWS})

    def guess(self, game: Game) -> Guess:
        """Fit a logistic regression on the outputs of shadow models, and judge the attacked model's outputs by it."""
        shadows = game.shadows(self.shadows)
        count = len(shadows.inside)
        labels = np.tile(game.population_labels, count)
        table = table_of(shadows.logits.reshape(len(labels), -1), labels)
        inside = shadows.inside.reshape(-1)
        scale = Scale.of(table)
        judged = table_of(game.outputs()[game.judged], game.labels[game.judged])
        table, judged, theirs = scale(table), scale(judged), game.labels[game.judged]
        if not self.unseen:
            learnt, scores = _per_class(table, labels, inside, judged, theirs)
            return Guess(scores, best_threshold(learnt, inside))
        groups, scores = unseen_groups(game, self.unseen, "shadow-lr-unseen"), np.zeros(len(judged))
        learnt = np.zeros(len(labels))
        for group in groups:
            others, mine = ~np.isin(labels, group), np.isin(theirs, group)
            classifier = fit(table[others], inside[others])
            scores[mine] = classifier.decision_function(judged[mine]) if mine.any() else 0.0
            learnt[others] = classifier.decision_function(table[others])
        notes = (f"classes unseen in turn: {'; '.join(' '.join(map(str, g)) for g in groups)}",)
        return Guess(scores, best_threshold(learnt, inside), notes=notes)


def fit(table: np.ndarray, inside: np.ndarray) -> LogisticRegression:
    """A balanced logistic regression that tells members from the features of `table_of`."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=2000, class_weight="balanced").fit(table, inside)


def table_of(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The features of a record: its three largest logits, loss, entropy and margin."""
    top = features.largest(logits, min(3, logits.shape[1]))
    rest = [features.loss(logits, labels), features.entropy(logits), features.margin(logits, labels)]
    return np.column_stack([top, *rest])


def _per_class(
    table: np.ndarray, labels: np.ndarray, inside: np.ndarray, judged: np.ndarray, theirs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds of membership on what was learnt from, and on what is judged."""
    common = fit(table, inside)
    learnt, scores = common.decision_function(table), common.decision_function(judged)
    for label in np.unique(labels):
        here, there = labels == label, theirs == label
        if min(inside[here].sum(), (~inside[here]).sum()) >= FEWEST and there.any():
            own = fit(table[here], inside[here])
            learnt[here], scores[there] = own.decision_function(table[here]), own.decision_function(judged[there])
    return learnt, scores
