"""Confidence series (CS-MIA, Gu et al. 2022; used by DP-FedACN): `cs`.

Members and non-members part ways in the course of training. The feature is the series of a record's confidence and
modified entropy over the rounds; a perceptron of 64 units learns from records that the attacker knows. A malicious
client sees the released models (view `client`); the server sees each client's own (view `server`), and asks which
client holds a record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.attacks import features
from sordino.attacks.game import Game, Guess, Reach
from sordino.attacks.membership.basic import measure
from sordino.attacks.metrics import best_threshold
from sordino.attacks.networks import Lesson, Scale, answer, learn, member_loss, perceptron

LESSON = Lesson(lr=1e-3, epochs=50, batch=128, weight_decay=5e-4)


@dataclass(frozen=True)
class ConfidenceSeries:
    """Over up to `rounds` rounds, evenly spread."""

    server: bool = False
    rounds: int = 20

    @property
    def reach(self) -> frozenset[Reach]:
        return frozenset({Reach.KNOWN, Reach.ROUNDS} | ({Reach.UPDATES} if self.server else set()))

    def guess(self, game: Game) -> Guess:
        sights = game.watch(self.rounds, server=self.server)
        series = [f(sight.logits, game.labels) for sight in sights for f in (features.confidence, self._entropy)]
        table = np.column_stack(series)
        table = Scale.of(table[game.own])(table)
        wanted = game.own_members.astype(np.float32)
        network = learn(
            lambda: perceptron(table.shape[1], (64,)), [table[game.own]], wanted, member_loss, LESSON, game.rng("cs")
        )
        scores = answer(network, [table])[:, 0]
        return Guess(scores[game.judged], best_threshold(scores[game.own], game.own_members))

    @staticmethod
    def _entropy(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return measure("modified-entropy", logits, labels)
