"""Thresholds on one number (Song and Mittal 2021; Yeom et al. 2018): `basic`.

The number is the probability of the true label, or the negative modified entropy. The threshold is the one of the
largest balanced accuracy on records that the attacker knows, one for each class, since classes are learnt unevenly
well. As a score, a record's number is taken relative to its class's threshold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.attacks import features
from sordino.attacks.game import Game, Guess, Reach
from sordino.attacks.metrics import best_threshold
from sordino.errors import one_of

NUMBERS = ("confidence", "modified-entropy")
FEWEST = 10  # known members, and non-members, of a class, for a threshold of its own


@dataclass(frozen=True)
class Threshold:
    """Score by a number; one threshold, or one per class."""

    number: str = "modified-entropy"
    per_class: bool = True
    reach = frozenset({Reach.QUERIES, Reach.KNOWN})

    def __post_init__(self) -> None:
        one_of(NUMBERS, number=self.number)

    def guess(self, game: Game) -> Guess:
        """Judge records by one number against the threshold that is best on the attacker's own records."""
        values = measure(self.number, game.outputs(), game.labels)
        own, members, judged = values[game.own], game.own_members, values[game.judged]
        common = best_threshold(own, members)
        if not self.per_class:
            return Guess(judged, common)
        theirs = thresholds(own, members, game.labels[game.own], game.classes, common)
        return Guess(judged - theirs[game.labels[game.judged]], 0.0)


def measure(number: str, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """On a scale where equal differences matter alike: logarithms, since over-fitted models are all but certain."""
    if number == "confidence":
        return features.log_odds(logits, labels)  # the same order as the probability itself
    return -np.log(np.maximum(features.modified_entropy(logits, labels), 1e-300))


def thresholds(values: np.ndarray, members: np.ndarray, labels: np.ndarray, classes: int, common: float) -> np.ndarray:
    """The best threshold of each class; the common one for classes of which too little is known."""
    found = np.full(classes, common)
    for label in range(classes):
        here = labels == label
        if min(members[here].sum(), (~members[here]).sum()) >= FEWEST:
            found[label] = best_threshold(values[here], members[here])
    return found
