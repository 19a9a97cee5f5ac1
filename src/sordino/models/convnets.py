"""Convolutional networks of the federated papers, and the linear softmax.

Papers write "ReLU, then 2x2 max pooling". Both are monotone, so the two orders are the same function with the same
gradient; pooling first leaves ReLU a quarter of the work and its backward pass a quarter of the memory, so it comes
first. Widths that a paper leaves open are chosen here and named in the class.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sordino.errors import BadInput


def _side(length: int, *steps: tuple[int, int, int], what: tuple[int, ...]) -> int:
    """Length after steps of (kernel, padding, pool): a convolution and the pooling behind it."""
    for kernel, padding, pool in steps:
        length = (length + 2 * padding - kernel + 1) // pool
    if length < 1:
        raise BadInput(f"examples of shape {what} are too small for this network: choose the model 'linear'.")
    return length


class Linear(nn.Module):
    """Softmax regression on the flattened example. Convex, so it starts at zero."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.out = nn.Linear(math.prod(shape), classes)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.flatten(x, 1))


class Head(nn.Module):
    """Softmax regression without a bias: features carry a constant of their own. Convex, so it starts at zero."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.out = nn.Linear(math.prod(shape), classes, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.flatten(x, 1))


class SmoothLeNet(nn.Module):
    """The network that DLG was shown on: three 5x5 convolutions of 12 filters (strides 2, 2, 1) and one dense layer, sigmoid between them.

    Weights are uniform in [-0.5, 0.5]: with PyTorch's smaller ones three sigmoids pass almost no signal.
    """

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 12, 5, stride=2, padding=2)
        self.conv2 = nn.Conv2d(12, 12, 5, stride=2, padding=2)
        self.conv3 = nn.Conv2d(12, 12, 5, padding=2)
        h, w = (((n + 1) // 2 + 1) // 2 for n in (height, width))
        self.fc = nn.Linear(12 * h * w, classes)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.5, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.sigmoid(self.conv1(x))
        x = torch.sigmoid(self.conv2(x))
        x = torch.sigmoid(self.conv3(x))
        return self.fc(torch.flatten(x, 1))


class Tempered(nn.Module):
    """Two strided convolutions and two dense layers with tanh (Papernot et al. 2021, table 1).

    Bounded activations keep gradients of one example short, so that clipping to a small bound costs little: at the same
    epsilon it gains several points over ReLU.
    """

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        h, w = ((((n + 6 - 8) // 2 + 1 - 1) - 4) // 2 + 1 - 1 for n in (height, width))
        if min(h, w) < 1:
            raise BadInput(f"examples of shape {shape} are too small for this network: use linear.")
        self.conv1 = nn.Conv2d(channels, 16, 8, stride=2, padding=3)
        self.conv2 = nn.Conv2d(16, 32, 4, stride=2)
        self.fc1 = nn.Linear(32 * h * w, 32)
        self.fc2 = nn.Linear(32, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(torch.tanh(self.conv1(x)), 2, 1)
        x = F.max_pool2d(torch.tanh(self.conv2(x)), 2, 1)
        return self.fc2(torch.tanh(self.fc1(torch.flatten(x, 1))))


class ConvNet(nn.Module):
    """Convolutions, each with 2x2 max pooling and ReLU, then dense layers with ReLU between them.

    Layers are named as in the papers' code: conv1, conv2, ... and fc1, fc2, ..., or fc if there is one alone.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        filters: tuple[int, ...],
        widths: tuple[int, ...] = (),  # of the dense layers before the last
        kernel: int = 5,
        padding: tuple[int, ...] = (0, 0),  # of each convolution
    ) -> None:
        super().__init__()
        channels, *sides = shape
        self._convolutions = tuple(f"conv{i}" for i in range(1, len(filters) + 1))
        self._dense = tuple(f"fc{i}" for i in range(1, len(widths) + 2)) if widths else ("fc",)
        h, w = (_side(n, *((kernel, p, 2) for p in padding), what=shape) for n in sides)
        for name, inside, out, p in zip(self._convolutions, (channels, *filters), filters, padding):
            self.add_module(name, nn.Conv2d(inside, out, kernel, padding=p))
        for name, inside, out in zip(self._dense, (filters[-1] * h * w, *widths), (*widths, classes)):
            self.add_module(name, nn.Linear(inside, out))

    def forward(self, x: Tensor) -> Tensor:
        for name in self._convolutions:
            x = F.relu(F.max_pool2d(self.get_submodule(name)(x), 2))
        x = torch.flatten(x, 1)
        for name in self._dense[:-1]:
            x = F.relu(self.get_submodule(name)(x))
        return self.get_submodule(self._dense[-1])(x)


class LeNet(ConvNet):
    """LeNet-5: 6 and 16 filters of 5x5, then 120 and 84 units. 28x28 inputs are padded to 32x32 as in 1998."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        pad = 2 if min(shape[1:]) < 32 else 0
        super().__init__(shape, classes, (6, 16), (120, 84), padding=(pad, 0))


class TwoConvTwoFC(ConvNet):
    """Two 5x5 convolutions, each with 2x2 max pooling, and two dense layers (widths 16, 32, 128)."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes, (16, 32), (128,))


class TwoConvOneFC(ConvNet):
    """Two 5x5 convolutions (16, 32), each with 2x2 max pooling, and one dense layer: noise_gamma's three layers."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes, (16, 32))


class TwoConvThreeFC(ConvNet):
    """The same convolutions with three dense layers (widths 16, 32, 256, 128), for CIFAR-10 and CIFAR-100."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes, (16, 32), (256, 128))


class ThreeConvThreeFC(ConvNet):
    """Three 3x3 convolutions (16, 32, 32), each with 2x2 max pooling, and dense layers of 512 and 128."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes, (16, 32, 32), (512, 128), kernel=3, padding=(1, 1, 1))


class Signal(nn.Module):
    """One-dimensional: convolutions of 7 (16, 32 filters), each with max pooling of 4, and two dense layers (64)."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, length = shape
        steps = _side(length, (7, 3, 4), (7, 3, 4), what=shape)
        self.conv1 = nn.Conv1d(channels, 16, 7, padding=3)
        self.conv2 = nn.Conv1d(16, 32, 7, padding=3)
        self.fc1 = nn.Linear(32 * steps, 64)
        self.fc2 = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool1d(self.conv1(x), 4))
        x = F.relu(F.max_pool1d(self.conv2(x), 4))
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))
