"""CENSOR (Zhang et al., NDSS 2025): send a direction at a right angle to the gradient, the best of some random ones.

    for every tensor g of the update, `trials` times:
        u      a random direction
        v      u - (u.g / |g|^2) g, scaled to |g|
    the candidate (all its tensors together) with the lowest loss after a step of `step` is sent

The public code projects by (u.g / |g|) g, which is no right angle unless |g| = 1, and sends the true gradient where no
candidate lowers the loss. Here the projection is right to 1e-6, in every round (the public script stops after ten epochs), and
the best candidate is sent also where none lowers the loss: the true gradient never leaves. A tensor with a single entry has
no direction at a right angle, and is sent as zero.

What it does not do: the norm of every tensor leaves exactly. A person who knows the draws computes the gradient back from a
message, so with `--secure` they come from a key that nobody else has. A random direction carries next to no signal: training
under CENSOR is slow or stands still, and the tables say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sordino.defences.base import OwnView
from sordino.errors import positive, whole

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Censor:
    """The best of some random directions at a right angle to the update."""

    name: ClassVar[str] = "censor"
    paper: ClassVar[str] = (
        "Zhang et al. 2025, CENSOR: defense against gradient inversion via orthogonal subspace sampling"
    )

    trials: int = 20
    step: float = 1e-4  # along a gradient, before candidates are compared
    records: int = 256  # that candidates are compared on

    def __post_init__(self) -> None:
        whole(censor_trials=self.trials, censor_records=self.records)
        positive(censor_step=self.step)

    def check(self, model: nn.Module, x: Tensor) -> None:
        """Any model with a gradient has directions at a right angle to it."""

    def __call__(self, update: np.ndarray, own: OwnView) -> np.ndarray:
        x, y = own.some(self.records)
        slots = own.flat.slots
        best, lowest = np.zeros_like(update), np.inf
        for trial in range(self.trials):
            candidate = np.empty_like(update)
            for slot in slots:
                here = slice(slot.offset, slot.offset + slot.size)
                candidate[here] = at_right_angle(update[here], own.rng.standard_normal(slot.size))
            loss = self._loss_after(candidate, own, x, y)
            if trial == 0 or loss < lowest:
                best, lowest = candidate, loss
        return best

    def _loss_after(self, candidate: np.ndarray, own: OwnView, x: Tensor, y: Tensor) -> float:
        """The loss after a small step: an update is minus lr times a gradient."""
        import torch

        model, start = own.flat.model, own.flat.vector()
        flags = [(module, module.training) for module in model.modules()]
        try:
            own.flat.theta.add_(torch.from_numpy(candidate).to(start.device), alpha=self.step / own.lr)
            with torch.no_grad():
                loss = float(own.loss(model.eval()(x), y))
        finally:
            own.flat.load(start)
            for module, training in flags:
                module.training = training
        return loss if np.isfinite(loss) else np.inf


def at_right_angle(g: np.ndarray, u: np.ndarray) -> np.ndarray:
    """u without its part along g, as long as g. Zero where there is no such direction.

    >>> at_right_angle(np.array([3.0, 4.0]), np.array([1.0, 0.0])).round(6).tolist()
    [4.0, -3.0]
    """
    wide, along = np.asarray(u, np.float64), np.asarray(g, np.float64)
    length = np.sqrt(np.square(along).sum())
    if not 0 < length < np.inf:
        return np.zeros_like(g)
    unit = along / length
    before = np.sqrt(np.square(wide).sum())
    for _ in range(2):  # a second pass takes off what rounding left of the first
        wide = wide - (wide * unit).sum() * unit
    left = np.sqrt(np.square(wide).sum())
    if left <= 1e-9 * before:
        return np.zeros_like(g)
    return (wide * (length / left)).astype(g.dtype)
