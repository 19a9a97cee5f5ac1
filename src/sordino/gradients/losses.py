"""Losses with one number per example: those with a name, and the user's, called with one example at a time.

A function that is given a whole batch may mix its examples, as a class-balanced loss does; one that is given a single
example cannot. So a loss of the user's never sees two: `torch.func.vmap` runs it on batches of one, all at once, or a loop
does where `vmap` cannot. A loss that works across the batch is then another function, of each example alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from sordino.data.dataset import NO_LABEL
from sordino.errors import BadInput

Loss = Callable[[Tensor, Tensor], Tensor]  # (outputs, targets) -> one loss per example


def cross_entropy(out: Tensor, y: Tensor) -> Tensor:
    """For scores [n, classes], or [n, positions, classes] averaged over the positions of each example that have a label."""
    if out.dim() == 2:
        return F.cross_entropy(out, y, reduction="none")
    each = F.cross_entropy(out.flatten(0, -2), y.flatten(), ignore_index=NO_LABEL, reduction="none")
    return each.view(len(out), -1).sum(1) / (y != NO_LABEL).flatten(1).sum(1).clamp_min(1)


def mean_cross_entropy(out: Tensor, y: Tensor) -> Tensor:
    """The mean of `cross_entropy` over the batch; faster where there is one label per example."""
    return F.cross_entropy(out, y) if out.dim() == 2 else cross_entropy(out, y).mean()


def squared_error(out: Tensor, y: Tensor) -> Tensor:
    """Half the squared distance to the target."""
    return 0.5 * (out.flatten(1) - y.reshape(len(out), -1)).square().sum(1)


def binary_cross_entropy(out: Tensor, y: Tensor) -> Tensor:
    """For one score per label [n, labels], averaged over labels; targets are 0 or 1."""
    return F.binary_cross_entropy_with_logits(out, y.to(out.dtype), reduction="none").flatten(1).mean(1)


LOSSES: dict[str, Loss] = {
    "cross-entropy": cross_entropy,
    "squared-error": squared_error,
    "binary-cross-entropy": binary_cross_entropy,
}
LOSS_OF: dict[str, Loss] = {
    "classification": cross_entropy,
    "regression": squared_error,
    "multi-label": binary_cross_entropy,
}


class OneByOne:
    """A loss of the user's on a batch, each example by itself."""

    def __init__(self, loss: Loss) -> None:
        self.loss, self.loops = loss, False

    def __call__(self, out: Tensor, y: Tensor) -> Tensor:
        if self.loops:
            return torch.stack([self.one(o, t) for o, t in zip(out, y)])
        return torch.func.vmap(self.one, randomness="different")(out, y)

    def one(self, out: Tensor, y: Tensor) -> Tensor:
        """The loss of one example, given as a batch of one."""
        return checked(self.loss(out[None], y[None]), 1)[0]

    def settle(self, out: Tensor, y: Tensor) -> None:
        """Choose between `vmap` and a loop, on synthetic outputs and targets."""
        self.loops = False
        try:
            self(out, y)
        except BadInput:
            raise
        except Exception:  # whatever vmap cannot run, a loop can
            self.loops = True


def checked(losses: Tensor, n: int) -> Tensor:
    """One loss per example, or a refusal."""
    shape = tuple(losses.shape)
    if shape == ():
        raise BadInput(
            "the loss gives a single number for a batch and must give one number per example: "
            "leave its mean or sum out, for instance by reduction='none'."
        )
    if shape != (n,):
        raise BadInput(f"the loss must give one number per example, not shape {shape} for {n}.")
    return losses


def rowwise(loss: Loss) -> Loss:
    """The loss as a function of a batch that is known to keep examples apart."""
    return loss if any(loss is known for known in LOSSES.values()) else OneByOne(loss)
