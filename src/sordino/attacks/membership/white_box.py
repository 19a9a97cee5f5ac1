"""The white-box attack (Nasr, Shokri and Houmansadr 2019): `white-box`, passive or active, by client or server.

For each of several rounds the attacker computes, for a record, the gradient of the last layer, the gradient norm of
every layer, the output, the loss and the label. Each goes through an encoder of its own; the codes of all rounds are
joined and a classifier ends in one number. It learns from records whose membership the attacker knows.

The gradient of the last layer is the matrix ``hidden x error``; its encoder looks at all classes of one hidden unit at
a time (a convolution of 1 x classes, 1000 filters in the paper, fewer here) and joins them. A client sees the released
models. The server also sees each client's own, unless aggregation is secure. An active attacker climbs the loss on the
attacked records during training: see `replay`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sordino.attacks import features
from sordino.attacks.game import Game, Guess, Reach
from sordino.attacks.lens import Sight
from sordino.attacks.metrics import best_threshold
from sordino.attacks.networks import Lesson, Scale, answer, learn, member_loss

if TYPE_CHECKING:
    from torch import nn

LESSON = Lesson(lr=5e-4, epochs=60, batch=64, weight_decay=1e-4)
CODE = 64


@dataclass(frozen=True)
class WhiteBox:
    """Over up to `rounds` rounds; `strength` is how far an active attacker climbs, in honest moves."""

    server: bool = False
    active: bool = False
    rounds: int = 5
    filters: int = 16
    strength: float = 1.0

    @property
    def reach(self) -> frozenset[Reach]:
        more = ({Reach.UPDATES} if self.server else set()) | ({Reach.TAMPER} if self.active else set())
        return frozenset({Reach.KNOWN, Reach.ROUNDS, Reach.WEIGHTS} | more)

    def guess(self, game: Game) -> Guess:
        sights = game.watch(self.rounds, deep=True, server=self.server, active=self.strength if self.active else 0.0)
        parts = [part for sight in sights for part in components(sight, game.labels, game.own)]
        sizes = [part.shape[1] for part in parts[:3]]
        own = [part[game.own] for part in parts]
        rng = game.rng("white-box")
        network = learn(
            lambda: joined_encoders(len(sights), sizes[0], sizes[1], sizes[2], self.filters),
            own,
            game.own_members.astype(np.float32),
            member_loss,
            LESSON,
            rng,
        )
        scores = answer(network, parts)[:, 0]
        return Guess(scores[game.judged], best_threshold(scores[game.own], game.own_members))


def components(sight: Sight, labels: np.ndarray, own: np.ndarray) -> list[np.ndarray]:
    """What one model tells: the two factors of the last gradient, and plain numbers, scaled by known records."""
    assert sight.hidden is not None and sight.norms is not None
    classes = sight.logits.shape[1]
    label = np.eye(classes)[labels]
    error = features.softmax(sight.logits) - label
    # Errors of an over-fitted model span many orders of magnitude; their logarithms are what differs.
    sizes = np.log(np.linalg.norm(error, axis=1, keepdims=True) + 1e-12)
    direction = error / np.maximum(np.linalg.norm(error, axis=1, keepdims=True), 1e-12)
    plain = np.column_stack(
        [
            np.log(sight.norms + 1e-12),
            sizes,
            np.log(features.loss(sight.logits, labels) + 1e-12),
            features.margin(sight.logits, labels),
            features.log_softmax(sight.logits),
        ]
    )
    scaled = Scale.of(plain[own])(plain)
    strength = Scale.of(sizes[own])(sizes)
    hidden = sight.hidden / (np.abs(sight.hidden[own]).mean() + 1e-12)
    return [
        hidden.astype(np.float32),
        np.concatenate([direction.astype(np.float32), strength], 1),
        np.concatenate([scaled, label.astype(np.float32)], 1),
    ]


def joined_encoders(rounds: int, hidden: int, classes_and_size: int, plain: int, filters: int) -> nn.Module:
    """One encoder of gradients and one of plain numbers per round, and a classifier on all codes."""
    import torch
    from torch import Tensor, nn

    class GradientEncoder(nn.Module):
        """ReLU of 1 x classes filters on ``hidden x error``: the product is formed filter by filter, never in full."""

        def __init__(self) -> None:
            super().__init__()
            self.filter = nn.Linear(classes_and_size - 1, filters, bias=False)
            self.offset = nn.Parameter(torch.zeros(filters, 1))
            self.out = nn.Sequential(
                nn.Dropout(0.2),
                nn.Linear(filters * hidden, 128),
                nn.ReLU(),
                nn.Dropout(0.2),
                nn.Linear(128, CODE),
                nn.ReLU(),
            )

        def forward(self, before: Tensor, error: Tensor) -> Tensor:
            size = torch.exp(error[:, -1:].clamp(-4, 4))  # how large the gradient is among those that are known
            seen = self.filter(error[:, :-1]) * size
            maps = torch.relu(seen.unsqueeze(2) * before.unsqueeze(1) + self.offset)
            return self.out(maps.flatten(1))

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gradients = nn.ModuleList(GradientEncoder() for _ in range(rounds))
            self.plain = nn.ModuleList(
                nn.Sequential(nn.Linear(plain, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, CODE), nn.ReLU())
                for _ in range(rounds)
            )
            self.head = nn.Sequential(
                nn.Linear(2 * CODE * rounds, 256), nn.ReLU(), nn.Dropout(0.2),
                nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1),
            )  # fmt: skip

        def forward(self, *parts: Tensor) -> Tensor:
            codes = []
            for r in range(rounds):
                before, error, numbers = parts[3 * r : 3 * r + 3]
                codes += [self.gradients[r](before, error), self.plain[r](numbers)]
            return self.head(torch.cat(codes, 1))

    return Joined()
