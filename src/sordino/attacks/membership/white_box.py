"""The white-box attack (Nasr, Shokri and Houmansadr 2019): `white-box`, passive or active, by client or server.

For each of several rounds the attacker computes, for a record, the gradient of the last layer, the gradient norm of every
layer, its cosine with the move that the model made, the output, the loss and the label. Encoders shorten the gradient and the output; their codes and the plain numbers
of all rounds are joined, and a classifier ends in one number. It learns from records whose membership the attacker knows.

The gradient of the last layer is the matrix ``hidden x error``; its encoder looks at all classes of one hidden unit at a
time (a convolution of 1 x classes) and joins them. With the hundreds of known records that there are here, encoders as
large as the paper's (1000 filters) learn those records by heart, so they are small, shared by the rounds, and begin with
little say; several networks vote. A client sees the released models. The server also sees each client's own, unless
aggregation is secure. An active attacker climbs the loss on the attacked records during training: see `replay`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sordino.attacks import features
from sordino.attacks.game import Game, Guess, Reach
from sordino.attacks.metrics import best_threshold
from sordino.attacks.model_probe import Observation
from sordino.attacks.networks import Lesson, Scale, answer, learn, member_loss

if TYPE_CHECKING:
    from torch import nn

LESSON = Lesson(lr=1e-3, epochs=30, batch=64, weight_decay=1e-3)
CODE = 8
PARTS = 4  # arrays that one sight gives


@dataclass(frozen=True)
class WhiteBox:
    """Over up to `rounds` rounds; `strength` is how far an active attacker climbs, in honest moves."""

    server: bool = False
    active: bool = False
    rounds: int = 20
    filters: int = 4
    networks: int = 3
    strength: float = 0.2

    @property
    def reach(self) -> frozenset[Reach]:
        more = ({Reach.UPDATES} if self.server else set()) | ({Reach.TAMPER} if self.active else set())
        return frozenset({Reach.KNOWN, Reach.ROUNDS, Reach.WEIGHTS} | more)

    def guess(self, game: Game) -> Guess:
        climb = self.strength if self.active else 0.0
        sights = game.watch(self.rounds, deep=True, server=self.server, active=climb)
        parts = [part for sight in sights for part in components(sight, game.labels, game.own)]
        own, wanted = [part[game.own] for part in parts], game.own_members.astype(np.float32)
        rng = game.rng("white-box")
        scores = np.zeros(len(game.labels))
        for _ in range(self.networks):
            network = learn(lambda: encoders(len(sights), own, self.filters), own, wanted, member_loss, LESSON, rng)
            scores += answer(network, parts)[:, 0] / self.networks
        return Guess(scores[game.judged], best_threshold(scores[game.own], game.own_members))


def components(sight: Observation, labels: np.ndarray, own: np.ndarray) -> list[np.ndarray]:
    """What one model tells: both factors of the last gradient, plain numbers, the output; scaled by known records."""
    assert sight.hidden is not None and sight.norms is not None and sight.update_cosines is not None
    label = np.eye(sight.logits.shape[1])[labels]
    error = features.softmax(sight.logits) - label
    # Errors and losses of an over-fitted model span many orders of magnitude; their logarithms are what differs.
    length = np.linalg.norm(error, axis=1, keepdims=True)
    size = np.log(length + 1e-12)
    plain = np.column_stack(
        [
            np.log(sight.norms + 1e-12),
            sight.update_cosines,
            np.log(features.loss(sight.logits, labels) + 1e-12),
            features.log_odds(sight.logits, labels),
            features.margin(sight.logits, labels),
        ]
    )
    output = np.concatenate([features.log_softmax(sight.logits), label], 1)
    hidden = sight.hidden / (np.abs(sight.hidden[own]).mean() + 1e-12)
    direction = error / np.maximum(length, 1e-12)
    return [
        hidden.astype(np.float32),
        np.concatenate([direction.astype(np.float32), _scaled(size, own)], 1),
        _scaled(plain, own),
        _scaled(output, own),
    ]


def _scaled(table: np.ndarray, own: np.ndarray) -> np.ndarray:
    return Scale.of(table[own])(table)


def encoders(rounds: int, parts: list[np.ndarray], filters: int) -> nn.Module:
    """The network: an encoder of gradients and one of outputs for all rounds, and a classifier on everything."""
    import torch
    from torch import Tensor, nn

    hidden, errors, plain, outputs = (part.shape[1] for part in parts[:PARTS])

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.filter = nn.Linear(errors - 1, filters, bias=False)
            self.offset = nn.Parameter(torch.zeros(filters, 1))
            self.gradient = nn.Sequential(nn.Dropout(0.5), nn.Linear(filters * hidden, CODE), nn.ReLU())
            self.output = nn.Sequential(nn.Linear(outputs, CODE), nn.ReLU(), nn.Dropout(0.5))
            self.say = nn.Parameter(torch.tensor(0.1))  # of both encoders, beside the plain numbers
            width = rounds * (plain + 2 * CODE)
            self.head = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 1))

        def forward(self, *given: Tensor) -> Tensor:
            codes = []
            for r in range(rounds):
                before, error, numbers, output = given[PARTS * r : PARTS * (r + 1)]
                size = torch.exp(0.5 * error[:, -1:].clamp(-4, 2))  # of the gradient, among those that are known
                seen = self.filter(error[:, :-1]) * size
                maps = torch.relu(seen.unsqueeze(2) * before.unsqueeze(1) + self.offset)
                codes += [numbers, self.say * self.gradient(maps.flatten(1)), self.say * self.output(output)]
            return self.head(torch.cat(codes, 1))

    return Joined()
