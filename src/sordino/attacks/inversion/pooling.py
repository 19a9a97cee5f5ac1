"""Pooling and flattening as layers with four passes: maps without parameters, each with its transpose."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from sordino.attacks.inversion.layers import Layer


class MaxPool(Layer):
    """The largest number of each window; tangents and cotangents follow the one that was taken."""

    def __init__(self, kernel: int, stride: int, padding: int) -> None:
        self.kernel, self.stride, self.padding = [kernel] * 2, [stride] * 2, [padding] * 2
        self._u: Tensor
        self._taken: Tensor  # [example, channel, places], in channels-last memory

    def forward(self, u: Tensor) -> Tensor:
        self._u = u.permute(0, 3, 1, 2)
        y, self._taken = F.max_pool2d(self._u, self.kernel, self.stride, self.padding, return_indices=True)
        return y.permute(0, 2, 3, 1)

    def _back(self, out: Tensor) -> Tensor:
        back = torch.ops.aten.max_pool2d_with_indices_backward
        image = out.permute(0, 3, 1, 2)
        below = back(image, self._u, self.kernel, self.stride, self.padding, [1, 1], False, self._taken)
        return below.permute(0, 2, 3, 1)

    def backward(self, out: Tensor, deeper: bool) -> Tensor:
        return self._back(out)

    def tangent(self, du: Tensor | None, v: Tensor | None) -> Tensor | None:
        if du is None:
            return None
        taken = self._taken.permute(0, 2, 3, 1)
        return du.flatten(1, 2).gather(1, taken.flatten(1, 2)).reshape(taken.shape)

    def reverse(self, out: Tensor, dout: Tensor | None) -> Tensor:
        return self._back(out)


class MeanPool(Layer):
    """The mean of each window. Linear, so that every pass is the map or its transpose."""

    def __init__(self, kernel: int) -> None:
        self.kernel = kernel
        self._shape: torch.Size

    def _mean(self, u: Tensor) -> Tensor:
        return F.avg_pool2d(u.permute(0, 3, 1, 2), self.kernel).permute(0, 2, 3, 1)

    def forward(self, u: Tensor) -> Tensor:
        self._shape = u.shape
        return self._mean(u)

    def _back(self, out: Tensor) -> Tensor:
        k = self.kernel
        wide = (out / (k * k)).repeat_interleave(k, 1).repeat_interleave(k, 2)
        return F.pad(wide, (0, 0, 0, self._shape[2] - wide.shape[2], 0, self._shape[1] - wide.shape[1]))

    def backward(self, out: Tensor, deeper: bool) -> Tensor:
        return self._back(out)

    def tangent(self, du: Tensor | None, v: Tensor | None) -> Tensor | None:
        return None if du is None else self._mean(du)

    def reverse(self, out: Tensor, dout: Tensor | None) -> Tensor:
        return self._back(out)


class Flatten(Layer):
    """To one row for each example, in PyTorch's order (channel, height, width)."""

    def __init__(self) -> None:
        self._shape: torch.Size

    def _row(self, u: Tensor) -> Tensor:
        return u.permute(0, 3, 1, 2).reshape(len(u), -1) if u.dim() == 4 else u.reshape(len(u), -1)

    def _back(self, out: Tensor) -> Tensor:
        if len(self._shape) != 4:
            return out.reshape(self._shape)
        n, h, w, c = self._shape
        return out.reshape(n, c, h, w).permute(0, 2, 3, 1).contiguous()

    def forward(self, u: Tensor) -> Tensor:
        self._shape = u.shape
        return self._row(u)

    def backward(self, out: Tensor, deeper: bool) -> Tensor:
        return self._back(out)

    def tangent(self, du: Tensor | None, v: Tensor | None) -> Tensor | None:
        return None if du is None else self._row(du)

    def reverse(self, out: Tensor, dout: Tensor | None) -> Tensor:
        return self._back(out)
