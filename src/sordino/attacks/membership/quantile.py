"""Quantile regression (Bertran et al. 2023): `quantile`, and `quantile-unseen` in the setting of Thaker et al. 2025.

On records that are in no model, a network learns what margins the target gives to records like x: the mean and
deviation of a normal, or 41 quantiles by the pinball loss. A record whose margin lies above its own quantile of level 1
- a is called a member at false-positive rate a; a score is how far out its margin lies. No shadow model is needed. The
rate a is met on average over non-members, not in every group of them.

`unseen` judges a record by a regressor that had no data of its class: the classes are dealt into groups, and each group
in turn is kept from the regressor that judges it. The target was trained on all classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sordino.attacks import features
from sordino.attacks.game import Game, Guess, Reach
from sordino.attacks.networks import Lesson, answer, learn
from sordino.errors import BadInput, one_of

if TYPE_CHECKING:
    from torch import Tensor

LESSON = Lesson(lr=1e-3, epochs=15, batch=64, weight_decay=1e-4)
LEVELS = 1 - 10 ** np.linspace(-4, 0, 41)  # of the pinball loss, from 1 - 1e-4 down to 0
LOSSES = ("normal", "pinball")
LEVEL, DEVIATE = 0.9, 1.2815515655446004  # the attacker's own threshold: one false alarm in ten


@dataclass(frozen=True)
class Quantile:
    """`unseen`: the share of classes that the regressor never sees; 0 for the usual setting."""

    unseen: float = 0.0
    loss: str = "normal"
    reach = frozenset({Reach.QUERIES})

    def __post_init__(self) -> None:
        one_of(LOSSES, loss=self.loss)

    def guess(self, game: Game) -> Guess:
        """Judge each record by the quantile that its score would have among records like it that are no members."""
        labels, scores = game.labels[game.judged], np.zeros(len(game.judged))
        groups = self.groups(game)
        for group in groups:
            mine = np.flatnonzero(np.isin(labels, group)) if self.unseen else np.arange(len(labels))
            scores[mine] = self._scores(game, group, game.judged[mine])
        notes = (f"classes unseen in turn: {'; '.join(' '.join(map(str, g)) for g in groups)}",) if self.unseen else ()
        return Guess(scores, DEVIATE if self.loss == "normal" else LEVEL, notes=notes)

    def groups(self, game: Game) -> list[np.ndarray]:
        """Classes that are unseen together; one empty group in the usual setting."""
        if not self.unseen:
            return [np.zeros(0, np.int64)]
        return unseen_groups(game, self.unseen, "quantile-unseen")

    def _scores(self, game: Game, unseen: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """How far out the margins of these records lie, for a regressor without data of the unseen classes."""
        public = np.flatnonzero(~np.isin(game.population_labels, unseen))
        if len(public) < 50:
            raise BadInput(
                f"{len(public)} public records are too few for quantile regression; use a larger test split."
            )
        margins = features.margin(game.population_outputs(), game.population_labels)[public]
        centre, spread = margins.mean(), margins.std() + 1e-9
        network = learn(
            lambda: game.make(2 if self.loss == "normal" else len(LEVELS), seed=0),
            [game.population_inputs[public]],
            ((margins - centre) / spread).astype(np.float32),
            normal_loss if self.loss == "normal" else pinball_loss,
            LESSON,
            game.rng("quantile"),
            adamw=True,
        )
        seen = (features.margin(game.outputs()[rows], game.labels[rows]) - centre) / spread
        told = answer(network, [game.inputs[rows]])
        return normal_scores(seen, told) if self.loss == "normal" else pinball_scores(seen, told)


def unseen_groups(game: Game, share: float, purpose: str) -> list[np.ndarray]:
    """The classes dealt into groups of this share; each group is attacked by someone who has no record of its classes."""
    size = min(max(1, round(share * game.classes)), game.classes - 1)
    order = game.rng(purpose).permutation(game.classes)
    return [np.sort(order[start : start + size]) for start in range(0, game.classes, size)]


def normal_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood of a normal with heads (mean, log deviation)."""
    mean, log_std = outputs[:, 0], outputs[:, 1].clamp(-4, 4)
    return (0.5 * ((targets - mean) * (-log_std).exp()) ** 2 + log_std).mean()


def pinball_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss whose minimum is the quantile at each of `LEVELS`."""
    import torch

    levels = torch.from_numpy(LEVELS).to(outputs.dtype)
    short = targets[:, None] - outputs
    return torch.maximum(levels * short, (levels - 1) * short).mean()


def normal_scores(seen: np.ndarray, told: np.ndarray) -> np.ndarray:
    """The deviate: monotone in the level of the quantile that the margin reaches."""
    return (seen - told[:, 0]) / np.exp(np.clip(told[:, 1], -4, 4))


def pinball_scores(seen: np.ndarray, told: np.ndarray) -> np.ndarray:
    """The highest level whose quantile the margin exceeds; heads are put in order first, since they may cross."""
    quantiles = np.sort(told, axis=1)
    reached = (quantiles < seen[:, None]).sum(1)
    levels = np.concatenate([[0.0], np.sort(LEVELS)])
    # Ties are broken by the distance to the top quantile, which keeps the order among those above all levels.
    return levels[reached] + 1e-6 * np.tanh(seen - quantiles[:, -1])
