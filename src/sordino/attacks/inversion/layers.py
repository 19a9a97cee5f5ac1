"""Layers with four passes: forward, backward, tangent, and the reverse of the tangent.

Gradient matching needs the derivative of ``<gradient(x), v>`` by the input x. That number is also the derivative of the loss
along v in the parameters (a tangent), so the passes are

    forward    u -> y
    backward   cotangent of y -> cotangent of u, and the gradient of the parameters
    tangent    (u, du) with parameters moving along v -> dy
    reverse    cotangents of (y, dy) -> cotangent of u; that of du is known from `backward`, which is linear

The published pseudo-code asks autograd for a second backward pass, which works out second derivatives of the parameters
that nobody reads, and calls slow kernels for the rest. Convolutions here are one matrix product over rows of patches; the
patches are made once and serve the forward pass, the gradient and the tangent. `native_chain` has the same passes in C, which are faster
still; these here serve where nothing was compiled.

Images are (example, height, width, channel). The first axis holds `groups * batch` examples; each group (a seed, or a restart) has
a gradient and a v of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Layer:
    """A layer without parameters. A pass may keep what the later ones need."""

    size = 0  # entries of its parameters, in the order of `parameters()`, each in row-major order

    def forward(self, u: Tensor) -> Tensor:
        """The output of the layer at u."""
        raise NotImplementedError

    def backward(self, out: Tensor, deeper: bool) -> Tensor:
        """The cotangent of the input; unless there are layers below (`deeper`) nobody asks for it."""
        raise NotImplementedError

    def gradient(self, rows: Tensor) -> None:
        """Write the gradient into `rows`, one for each group: the sum over its examples, after `backward`."""
        raise AssertionError("a layer without parameters has no gradient")

    def tangent(self, du: Tensor | None, v: Tensor | None) -> Tensor | None:
        """The tangent of the output. None stands for zero; `v` has one row for each group."""
        raise NotImplementedError

    def reverse(self, out: Tensor, dout: Tensor | None) -> Tensor:
        """The cotangent of the input, from those of the output and of its tangent (None: it has no tangent)."""
        raise NotImplementedError


class _Product(Layer):
    """A layer that multiplies rows by a weight matrix: dense layers, and convolutions over rows of patches."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight.detach().reshape(weight.shape[0], -1).contiguous()  # [out, in]
        self.bias = None if bias is None else bias.detach()
        self.size = self.weight.numel() + (0 if self.bias is None else self.bias.numel())
        self._rows: Tensor  # [places, in], of all examples
        self._out: Tensor  # [places, out]
        self._v: Tensor  # [groups, out, in]

    def _product(self, rows: Tensor) -> Tensor:
        self._rows = rows
        return rows @ self.weight.T if self.bias is None else torch.addmm(self.bias, rows, self.weight.T)

    def gradient(self, rows: Tensor) -> None:
        groups, (out, inside) = len(rows), self.weight.shape
        cut = out * inside
        if groups == 1:  # one product, straight into its place
            torch.mm(self._out.T, self._rows, out=rows[0, :cut].view(out, inside))
        else:
            parts = self._out.reshape(groups, -1, out).transpose(1, 2)
            rows[:, :cut] = (parts @ self._rows.reshape(groups, -1, inside)).reshape(groups, -1)
        if self.bias is not None:
            rows[:, cut:] = self._out.reshape(groups, -1, out).sum(1)

    def _tangent(self, rows: Tensor | None, v: Tensor) -> Tensor:
        """V rows + c + W drows."""
        out, inside = self.weight.shape
        self._v = v[:, : out * inside].reshape(-1, out, inside)
        groups = len(self._v)
        if groups == 1 and self.bias is not None:
            moved = torch.addmm(v[0, out * inside :], self._rows, self._v[0].T)
        elif groups == 1:
            moved = self._rows @ self._v[0].T
        else:
            moved = (self._rows.reshape(groups, -1, inside) @ self._v.transpose(1, 2)).reshape(-1, out)
            if self.bias is not None:
                moved.view(groups, -1, out).add_(v[:, None, out * inside :])
        return moved if rows is None else moved.addmm_(rows, self.weight.T)


class Dense(_Product):
    """y = W u + b."""

    def forward(self, u: Tensor) -> Tensor:
        return self._product(u)

    def backward(self, out: Tensor, deeper: bool) -> Tensor:
        self._out = out
        return out @ self.weight if deeper else out

    def tangent(self, du: Tensor | None, v: Tensor | None) -> Tensor | None:
        assert v is not None
        return self._tangent(du, v)

    def reverse(self, out: Tensor, dout: Tensor | None) -> Tensor:
        assert dout is not None
        groups, width = len(self._v), dout.shape[1]
        above = (dout.reshape(groups, -1, width) @ self._v).reshape(len(dout), -1)
        return above.addmm_(out, self.weight)


class Convolution(_Product):
    """y = W * u + b in two dimensions. One row of patches for each place of the output."""

    def __init__(self, layer: nn.Conv2d) -> None:
        # (out, height, width, in): the order of the flat vector, and that of a patch of a channels-last image
        super().__init__(layer.weight.permute(0, 2, 3, 1), layer.bias)
        self.channels, self.kernel = layer.in_channels, layer.kernel_size
        self.stride, self.padding = layer.stride, (int(layer.padding[0]), int(layer.padding[1]))
        self._shape: torch.Size  # of the input
        self._side: tuple[int, int] = (0, 0)  # of the output

    def _patches(self, u: Tensor) -> Tensor:
        (top, left), (kh, kw), (sh, sw) = self.padding, self.kernel, self.stride
        wide = F.pad(u, (0, 0, left, left, top, top)) if top or left else u.contiguous()
        n, h, w, c = wide.shape
        self._side = ((h - kh) // sh + 1, (w - kw) // sw + 1)
        one, row, column, _ = wide.stride()
        # A row of a patch lies in one piece, so that the copy is of long runs.
        windows = wide.as_strided((n, *self._side, kh, kw * c), (one, row * sh, column * sw, row, 1))
        return windows.reshape(-1, kh * kw * c)

    def _back(self, out: Tensor, matrix: Tensor) -> Tensor:
        """The transpose of the convolution by `matrix`: from [places, out] to the shape of the input."""
        channels = matrix.shape[0]
        image = out.reshape(-1, *self._side, channels).permute(0, 3, 1, 2)
        weight = matrix.reshape(channels, *self.kernel, self.channels).permute(0, 3, 1, 2)
        extra = [
            n - ((m - 1) * s - 2 * p + k)
            for n, m, s, p, k in zip(self._shape[1:3], self._side, self.stride, self.padding, self.kernel)
        ]
        below = F.conv_transpose2d(image, weight, None, self.stride, self.padding, extra)
        return below.permute(0, 2, 3, 1)

    def forward(self, u: Tensor) -> Tensor:
        self._shape = u.shape
        return self._product(self._patches(u)).reshape(len(u), *self._side, -1)

    def backward(self, out: Tensor, deeper: bool) -> Tensor:
        self._out = out.reshape(-1, out.shape[3])
        return self._back(out, self.weight) if deeper else out

    def tangent(self, du: Tensor | None, v: Tensor | None) -> Tensor | None:
        assert v is not None
        moved = self._tangent(None if du is None else self._patches(du), v)
        return moved.reshape(self._shape[0], *self._side, -1)

    def reverse(self, out: Tensor, dout: Tensor | None) -> Tensor:
        assert dout is not None
        groups = len(self._v)
        parts = zip(out.chunk(groups), dout.chunk(groups), self._v)
        # The cotangent by W and that by V in one convolution over twice the channels.
        above = [self._back(torch.cat([a, b], 3), torch.cat([self.weight, v])) for a, b, v in parts]
        return above[0] if groups == 1 else torch.cat(above)
