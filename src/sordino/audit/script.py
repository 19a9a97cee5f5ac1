"""The script of the target, and the tiny model and population on which the two worlds are played.

The model is linear and sums its input, so the gradient of a record is the record itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sordino.federation.population import Federation
from sordino.plan import Plan

TARGET = 0  # the first client; in the example unit its first record, and the only one with label 1
TENSORS = 4  # of the tiny model; the target's vector has a part in each
JUST_WITHIN = 1 - 1e-6  # in bounds
FAR = 1e4  # how far beyond the bound the target reaches where it wants to be clipped


@dataclass(frozen=True)
class Script:
    """How the target behaves.

    `length` is that of its vector in bounds (or, in the example unit, in units of the plan's first bound); `turns`
    makes it point the other way in every second round (client unit only: a record cannot know the round).
    """

    length: float = FAR
    turns: bool = True
    quiet: bool = False  # the other client gives nothing
    single: bool = (
        False  # its vector has one coordinate only: the worst for Laplace noise, as long as clipping is in L1
    )
    trains: bool = False  # the update is what the target trains on its records (client unit)

    @property
    def other_length(self) -> float:
        """Of what the target is replaced by: on the other side of the bound."""
        return JUST_WITHIN if self.length > 1 else FAR

    def direction(self, dimension: int) -> np.ndarray:
        """The unit vector along which the target pulls."""
        return np.eye(1, dimension)[0] if self.single else direction(dimension)

    def record(self, dimension: int) -> np.ndarray:
        """What the target holds. If it trains, half of every tensor's entries are so large that Fed-DPA keeps them personal."""
        if not self.trains:
            return self.direction(dimension)
        return np.where(np.arange(dimension) % (dimension // TENSORS) < dimension // TENSORS // 2, 1.0, 0.3)

    def sign(self, t: int) -> float:
        """Whether the target pulls forth or back in this round."""
        return -1.0 if self.turns and t % 2 == 0 else 1.0


class Parts(nn.Module):
    """A linear model in several tensors, so that its gradient is its input."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        width = dimension // TENSORS
        self.parts = nn.ModuleList(nn.Linear(width, 1, bias=False) for _ in range(TENSORS))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(piece) for part, piece in zip(self.parts, x.chunk(TENSORS, 1))], 1)


def linear_loss(out: Tensor, y: Tensor) -> Tensor:
    """The sum of a record's outputs, whose gradient is the record."""
    return out.sum(1)


def direction(dimension: int, target: bool = True) -> np.ndarray:
    """A unit vector on half of every tensor's coordinates: one half for the target, the other for the other."""
    half = np.arange(dimension) % 2 == (0 if target else 1)
    return half / np.sqrt(half.sum())


def tiny(plan: Plan, script: Script, dimension: int) -> Federation:
    """Records are (vector, whether it is the target)."""
    own = script.length * plan.bound * script.record(dimension)
    other = (0.0 if script.quiet else 0.5 * plan.bound) * direction(dimension, target=False)
    target, rest = (own, 1), (other, 0)
    clients = [[target, rest]] + [[rest]] * (plan.clients - 1)
    pairs = [(np.array([x for x, _ in c], np.float32), [y for _, y in c]) for c in clients]
    return Federation.from_arrays(pairs, classes=2, name="two worlds")
