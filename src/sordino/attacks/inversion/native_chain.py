"""The passes of `chain.Chain` in C (`native/passes.c`): one call for each pass, in memory that is laid out once for each number of examples.

Logits, tangents and gradients lie in that memory, and the next pass of the same kind writes over them.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sordino import native
from sordino.attacks.inversion.activations import Relu, Sigmoid, Tanh
from sordino.attacks.inversion.layers import Convolution, Dense, Layer
from sordino.attacks.inversion.pooling import Flatten, MaxPool, MeanPool

KINDS: dict[type[Layer], int] = {  # as in passes.c
    Convolution: 0, Dense: 0, Relu: 1, Sigmoid: 2, Tanh: 3, MaxPool: 4, MeanPool: 5, Flatten: 6,
}  # fmt: skip
Shape = tuple[int, int, int]  # height, width, channels


@dataclass(frozen=True)
class Window:
    """Kernel, stride and padding, down and across."""

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)

    def places(self, shape: Shape) -> tuple[int, int]:
        """How many positions the window takes in an image of this shape, down and across."""
        sides = [(n + 2 * p - k) // s + 1 for n, k, s, p in zip(shape, self.kernel, self.stride, self.padding)]
        return sides[0], sides[1]


def window_of(layer: Layer) -> Window:
    """The window that a layer slides over its input; one place where it slides none."""
    if isinstance(layer, Convolution):
        return Window(_pair(layer.kernel), _pair(layer.stride), layer.padding)
    if isinstance(layer, MaxPool):
        return Window(_pair(layer.kernel), _pair(layer.stride), _pair(layer.padding))
    if isinstance(layer, MeanPool):
        return Window((layer.kernel,) * 2, (layer.kernel,) * 2)
    return Window()


def _pair(given: Sequence[int]) -> tuple[int, int]:
    return int(given[0]), int(given[1])


def output_shape(layer: Layer, shape: Shape) -> Shape:
    """The shape that a layer makes of an input of this shape."""
    if isinstance(layer, Flatten):
        return 1, 1, shape[0] * shape[1] * shape[2]
    if isinstance(layer, Dense):
        return 1, 1, len(layer.weight)
    out = len(layer.weight) if isinstance(layer, Convolution) else shape[2]
    return (*window_of(layer).places(shape), out)


class _Room:
    """Memory for the passes of `n` examples."""

    def __init__(self, layers: Sequence[Layer], shape: Shape, first: int, n: int) -> None:
        self.kept: list[Tensor] = []  # what pointers point to
        self.input = torch.zeros(n, *shape)
        self.below = torch.zeros(n, *shape)
        self.values: list[Tensor] = []
        records, at, most, turned = (native.Layer * len(layers))(), 0, 1, 1
        for i, layer in enumerate(layers):
            after = output_shape(layer, shape)
            record, window, one = records[i], window_of(layer), n * after[0] * after[1] * after[2]
            record.kind = KINDS[type(layer)]
            (record.h, record.w, record.c), (record.oh, record.ow, record.o) = shape, after
            (record.kh, record.kw), (record.sh, record.sw) = window.kernel, window.stride
            record.top, record.left, record.at = *window.padding, at
            y, dy, out, bar = (torch.zeros(n, *after) for _ in range(4))
            self.values.append(y)
            record.y, record.dy, record.out, record.bar = map(self._pointer, (y, dy, out, bar))
            if isinstance(layer, Convolution | Dense):
                record.weight = self._pointer(layer.weight)
                record.bias = None if layer.bias is None else self._pointer(layer.bias.contiguous())
            if isinstance(layer, Convolution):
                rows = torch.zeros(2, n * after[0] * after[1], layer.weight.shape[1])
                record.rows, record.drows = map(self._pointer, rows)
                turned = max(turned, layer.weight.shape[1] * math.ceil(after[2] / 16) * 16)
            elif isinstance(layer, MaxPool):
                record.taken = self._pointer(torch.zeros(one, dtype=torch.int32))
            elif isinstance(layer, Relu | Sigmoid | Tanh):
                record.slope = self._pointer(torch.zeros(one))
            padded = (shape[0] + 2 * window.padding[0]) * (shape[1] + 2 * window.padding[1]) * shape[2]
            most = max(most, padded, n * after[0] * after[1], after[2])
            at += layer.size
            if i == len(layers) - 1:
                self.logits, self.dlogits, self.out, self.bar = y, dy, out, bar
            shape = after
        self.records = records
        room = (most, most, turned, most)  # padded, patch, turned, by
        scratch = (*map(torch.zeros, room), torch.zeros(most, dtype=torch.int32))
        self.chain = native.Chain(len(layers), first, n, at, ctypes.addressof(records), *map(self._pointer, scratch))

    def _pointer(self, tensor: Tensor) -> int:
        self.kept.append(tensor)
        return tensor.data_ptr()


class NativeChain:
    """The layers in order, with the interface of `Chain`. One number of examples at a time: `forward` says which."""

    def __init__(self, passes: ctypes.CDLL, layers: Sequence[Layer], shape: Shape) -> None:
        self.layers, self.shape, self._passes = list(layers), shape, passes
        self.size = sum(layer.size for layer in layers)
        self._first = next(i for i, layer in enumerate(layers) if layer.size)
        self._rooms: dict[int, _Room] = {}
        self._gradients: dict[int, Tensor] = {}
        self._room: _Room
        self._v: Tensor
        self.features: list[Tensor] = []  # what convolutions gave in the last forward pass

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images (example, channel, height, width)."""
        room = self._rooms.get(len(x))
        if room is None:
            room = self._rooms[len(x)] = _Room(self.layers, self.shape, self._first, len(x))
        self._room = room
        room.input.copy_(x.permute(0, 2, 3, 1))
        self._passes.sordino_forward_pass(room.chain, room.input.data_ptr())
        self.features = [y for y, layer in zip(room.values, self.layers) if isinstance(layer, Convolution)]
        return room.logits[:, 0, 0]

    def gradient(self, out: Tensor, groups: int) -> Tensor:
        """After `forward`: the gradient of each group, [groups, size], for the cotangent `out` of the logits."""
        found = self._gradients.get(groups)
        if found is None:
            found = self._gradients[groups] = torch.zeros(groups, self.size)
        self._room.out[:, 0, 0] = out
        self._passes.sordino_gradient_pass(self._room.chain, self._room.input.data_ptr(), groups, found.data_ptr())
        return found

    def tangent(self, v: Tensor) -> Tensor:
        """The tangent of the logits while the parameters move along `v`, [groups, size]."""
        self._v = v.contiguous()
        self._passes.sordino_tangent_pass(self._room.chain, self._room.input.data_ptr(), len(v), self._v.data_ptr())
        return self._room.dlogits[:, 0, 0]

    def reverse(self, out: Tensor, scale: Tensor, features: list[Tensor] | None = None) -> Tensor:
        """After the other passes: the cotangent of the input, as in `Chain.reverse`."""
        room, scale = self._room, scale.contiguous()
        room.bar[:, 0, 0] = out
        pushed = None
        if features is not None:
            left = iter([one.contiguous() for one in features])
            each = [next(left) if isinstance(layer, Convolution) else None for layer in self.layers]
            pushed = (ctypes.c_void_p * len(each))(*(None if one is None else one.data_ptr() for one in each))
        self._passes.sordino_reverse_pass(
            room.chain, len(self._v), self._v.data_ptr(), scale.data_ptr(), pushed, room.below.data_ptr()
        )
        return room.below.permute(0, 3, 1, 2).clone(memory_format=torch.contiguous_format)


def native_chain(layers: Sequence[Layer], shape: tuple[int, int, int]) -> NativeChain | None:
    """The same layers in C for images of `shape` (channel, height, width); None where nothing was compiled."""
    passes = native.passes()
    if passes is None or any(type(layer) not in KINDS for layer in layers):
        return None
    return NativeChain(passes, layers, (shape[1], shape[2], shape[0]))
