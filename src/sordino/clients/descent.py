"""Local training: some epochs of mini-batches on one client's data, every step one operation on the flat vector.

The optimisers are written out on the vector because they are three lines each there, and `torch.optim` walks the
parameters one by one (a fifth of a step's time for small batches).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sordino.gradients.flat import Flat

Loss = Callable[[Tensor, Tensor], Tensor]
Step = Callable[[Tensor], Tensor]  # gradient -> what to subtract


@dataclass(frozen=True)
class Descent:
    """SGD, momentum or Adam, as a maker of fresh step functions."""

    kind: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9

    def start(self, size: int, device: torch.device) -> Step:
        """A fresh optimiser for this many parameters: it turns a gradient into a move."""
        return {"sgd": self._sgd, "momentum": self._momentum, "adam": self._adam}[self.kind](size, device)

    def _sgd(self, size: int, device: torch.device) -> Step:
        return lambda grad: grad.mul_(self.lr)

    def _momentum(self, size: int, device: torch.device) -> Step:
        velocity = torch.zeros(size, device=device)

        def step(grad: Tensor) -> Tensor:
            velocity.mul_(self.momentum).add_(grad)
            return torch.mul(velocity, self.lr, out=grad)

        return step

    def _adam(self, size: int, device: torch.device) -> Step:
        first, second, t = torch.zeros(size, device=device), torch.zeros(size, device=device), 0

        def step(grad: Tensor) -> Tensor:
            nonlocal t
            t += 1
            first.lerp_(grad, 0.1)
            second.mul_(0.999).addcmul_(grad, grad, value=0.001)
            root = (second / (1 - 0.999**t)).sqrt_().add_(1e-8)
            return torch.div(first, root, out=grad).mul_(self.lr / (1 - 0.9**t))

        return step


def train(
    flat: Flat,
    forward: Callable[[Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    loss: Loss,
    descent: Descent,
    epochs: int,
    batch: int,
    rng: np.random.Generator,
    adjust: Callable[[Flat], None] | None = None,
) -> None:
    """Train `flat` in place through `forward`, its model or an equal rearrangement of it; batches are drawn from `rng`.

    `adjust` changes the gradient of every step, for losses with further terms and coordinates that stay as they are.
    """
    step = descent.start(flat.size, flat.theta.device)
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(y))).to(y.device)
        for rows in order.split(batch):
            flat.grad.zero_()
            loss(forward(x.index_select(0, rows)), y.index_select(0, rows)).backward()
            if adjust is not None:
                adjust(flat)
            flat.theta.sub_(step(flat.grad))
