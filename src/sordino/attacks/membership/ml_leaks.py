"""ML-Leaks, adversary 1 (Salem et al. 2019): `ml-leaks`.

One shadow model, trained by the target's plan on half of the shadow data; a perceptron learns, from its three largest
probabilities, which half a record comes from, and is then applied to the target. It learns on the shadow and is tested
on the target, never the other way round. Tasks of two classes have two features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.attacks import features
from sordino.attacks.game import Game, Guess, Reach
from sordino.attacks.metrics import best_threshold
from sordino.attacks.networks import Lesson, answer, learn, member_loss, perceptron

LESSON = Lesson(lr=0.01, epochs=50, batch=64, weight_decay=1e-6)


@dataclass(frozen=True)
class Leaks:
    """The `largest` probabilities of one shadow model."""

    largest: int = 3
    reach = frozenset({Reach.QUERIES, Reach.SHADOWS})

    def guess(self, game: Game) -> Guess:
        """Learn from one shadow model what outputs of members look like, and judge the attacked model's outputs by that."""
        shadow = game.shadows(1)
        learnt = self._table(shadow.logits[0])
        inside = shadow.inside[0]
        some = balanced(inside, game.rng("ml-leaks-balance"))
        network = learn(
            lambda: perceptron(learnt.shape[1], (64,)),
            [learnt[some]],
            inside[some].astype(np.float32),
            member_loss,
            LESSON,
            game.rng("ml-leaks"),
        )
        threshold = best_threshold(answer(network, [learnt[some]])[:, 0], inside[some])
        return Guess(answer(network, [self._table(game.outputs()[game.judged])])[:, 0], threshold)

    def _table(self, logits: np.ndarray) -> np.ndarray:
        return features.largest(logits, min(self.largest, logits.shape[1])).astype(np.float32)


def balanced(inside: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """As many records of one side as of the other."""
    sides = np.flatnonzero(inside), np.flatnonzero(~inside)
    count = min(map(len, sides))
    return np.concatenate([rng.permutation(side)[:count] for side in sides])
