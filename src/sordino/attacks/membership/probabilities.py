"""Tree classifiers on vectors of probabilities (AdaCT-DPFL 2026, membership experiments): `rf`, `gb`, `dt`.

The attacker knows the membership of some records of the target itself, asks the final model for its probabilities on
them, and fits a random forest, gradient boosting, or one decision tree whose depth an inner cross-validation picks.
That is more knowledge than a shadow attack has.

Unsorted vectors let trees learn that classes are unevenly divided between members and non-members; `sorted` vectors
hide which class is which, and `label` replaces the vector by confidence, loss and entropy of the true label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.attacks import features
from sordino.attacks.game import Game, Guess, Reach
from sordino.errors import one_of

KINDS = ("rf", "gb", "dt")
VECTORS = ("full", "sorted", "label")


@dataclass(frozen=True)
class Trees:
    """One of three classifiers on one of three views of the answer."""

    kind: str
    vector: str = "full"
    trees: int = 200
    reach = frozenset({Reach.QUERIES, Reach.KNOWN})

    def __post_init__(self) -> None:
        one_of(KINDS, kind=self.kind)
        one_of(VECTORS, vector=self.vector)

    def guess(self, game: Game) -> Guess:
        """Learn to tell members by their probability vectors, from the attacker's own records."""
        table = self.table(game.outputs(), game.labels)
        seed = int(game.rng(f"{self.kind}-{self.vector}").integers(2**31))
        scores = self.fit_and_score(table[game.own], game.own_members, table[game.judged], seed)
        return Guess(scores, 0.5)

    def table(self, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """One row of features per record: the vector, its largest entries, or a summary with the label."""
        if self.vector == "label":
            return features.summary(logits, labels)
        return features.softmax(logits) if self.vector == "full" else features.largest(logits, logits.shape[1])

    def fit_and_score(self, own: np.ndarray, members: np.ndarray, judged: np.ndarray, seed: int) -> np.ndarray:
        """The estimated probability of membership."""
        fitted = self.classifier(seed, len(own)).fit(own.astype(np.float32), members)
        if self.kind == "rf":
            fitted.n_jobs = 1  # trees add up their votes in one order, to the same bits
        return fitted.predict_proba(judged.astype(np.float32))[:, 1]

    def classifier(self, seed: int, records: int) -> Any:
        """The classifier of this kind, from scikit-learn, for so many records."""
        from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
        from sklearn.model_selection import GridSearchCV
        from sklearn.tree import DecisionTreeClassifier

        leaf = max(5, records // 200)  # single records in a leaf would be learnt by heart
        if self.kind == "rf":
            return RandomForestClassifier(self.trees, min_samples_leaf=leaf, n_jobs=-1, random_state=seed)
        if self.kind == "gb":
            return GradientBoostingClassifier(
                n_estimators=100,
                max_depth=3,
                learning_rate=0.1,
                subsample=0.5,
                min_samples_leaf=leaf,
                random_state=seed,
            )
        depths = {"max_depth": [2, 3, 4, 5, 6, 8, 10]}
        return GridSearchCV(
            DecisionTreeClassifier(min_samples_leaf=leaf, random_state=seed), depths, scoring="roc_auc", cv=3
        )
