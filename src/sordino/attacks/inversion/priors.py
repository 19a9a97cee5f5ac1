"""What pictures look like, as terms of the loss with their slopes: smooth, not too bright, alike over the seeds.

Each function takes dummy images [group, batch, channel, height, width] and gives the value of each group and the derivative by
the images. Slopes are written out: they cost a fraction of a pass of autograd.
"""

from __future__ import annotations

from torch import Tensor

Term = tuple[Tensor, Tensor]


def total_variation(x: Tensor) -> Term:
    """Mean absolute difference of neighbours, down and across (Rudin et al. 1992; the anisotropic form of IG)."""
    slope = x.new_zeros(x.shape)
    down, across = x.diff(dim=3), x.diff(dim=4)
    for change, axis in ((down, 3), (across, 4)):
        sign = change.sign() / (change.numel() / len(x))
        slope.narrow(axis, 1, sign.shape[axis]).add_(sign)
        slope.narrow(axis, 0, sign.shape[axis]).sub_(sign)
    value = down.abs().flatten(1).mean(1) + across.abs().flatten(1).mean(1)
    return value, slope


def energy(x: Tensor) -> Term:
    """Mean square of the inputs (GI's l2 term)."""
    return x.square().flatten(1).mean(1), x * (2 / x[0].numel())


def consensus(x: Tensor) -> Term:
    """Mean square distance from the mean over the groups (GI's group consistency). The mean is held fixed."""
    off = x - x.mean(0, keepdim=True)
    return off.square().flatten(1).mean(1), off * (2 / x[0].numel())
