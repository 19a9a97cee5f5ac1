"""Small networks and messages for the tests of inversion."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sordino.attacks.inversion.chain import chain_of
from sordino.attacks.inversion.gradient import Matcher
from sordino.attacks.inversion.observed import ObservedMessage, Victim
from sordino.gradients.flat import Flat

SHAPE, CLASSES = (2, 8, 8), 4


class Smooth(nn.Module):
    """Convolutions with and without stride, a mean pool, sigmoid and tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 5, 3, padding=1)
        self.conv2 = nn.Conv2d(5, 6, 3, stride=2, padding=1)
        self.pool = nn.AvgPool2d(2)
        self.fc1 = nn.Linear(6 * 4, 7)
        self.fc2 = nn.Linear(7, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.sigmoid(self.conv1(x))
        x = self.pool(torch.tanh(self.conv2(x)))
        return self.fc2(torch.tanh(self.fc1(torch.flatten(x, 1))))


class Kinked(nn.Module):
    """ReLU and max pooling, a convolution without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 6, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(6, 6, 3)
        self.fc = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(torch.max_pool2d(self.conv1(x), 2))
        x = torch.relu(torch.max_pool2d(self.conv2(x), 2))
        return self.fc(torch.flatten(x, 1))


class Overlapping(nn.Module):
    """Windows that overlap and lie over the edge, strides that leave a rest, ReLU behind a dense layer, a mean pool that leaves a rest."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 9, (3, 2), stride=(2, 1), padding=(1, 0))
        self.max = nn.MaxPool2d(3, 1, 1)
        self.mean = nn.AvgPool2d(2)
        self.fc1 = nn.Linear(9 * 2 * 3, 11, bias=False)
        self.fc2 = nn.Linear(11, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.mean(torch.tanh(self.max(self.conv1(x))))
        return self.fc2(torch.relu(self.fc1(torch.flatten(x, 1))))


class Wide(nn.Module):
    """More channels than vectors in the compiled passes hold, and a rest."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 19, 3, padding=1)
        self.conv2 = nn.Conv2d(19, 33, 3)
        self.fc1 = nn.Linear(33 * 4, 70)
        self.fc2 = nn.Linear(70, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(torch.max_pool2d(self.conv1(x), 2))
        return self.fc2(torch.sigmoid(self.fc1(torch.flatten(torch.tanh(self.conv2(x)), 1))))


class Shortcut(nn.Module):
    """No chain: the input is added to the first layer's output."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.fc = nn.Linear(128, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(x + torch.tanh(self.conv(x)), 1))


def maker(kind: type[nn.Module], scale: float = 1.0):
    def make(seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = kind()
            with torch.no_grad():
                for parameter in made.parameters():
                    parameter.mul_(scale)
            return made

    return make


def victim_of(kind: type[nn.Module], scale: float = 1.0) -> Victim:
    ends = np.zeros((2, 1, 1), np.float32), np.ones((2, 1, 1), np.float32)
    return Victim(maker(kind, scale), SHAPE, CLASSES, *ends)


def records(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Smooth images between 0 and 1 and their labels."""
    rng = np.random.default_rng(seed)
    rough = rng.random((count, 2, 4, 4)).repeat(2, 2).repeat(2, 3)
    return rough.astype(np.float32), rng.integers(0, CLASSES, count)


def gradient_by_hand(module: nn.Module, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The mean gradient by autograd, in the order of `Flat`."""
    flat = Flat(module)
    flat.grad.zero_()
    torch.nn.functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y)).backward()
    return flat.grad.numpy().copy()


def message_of(victim: Victim, x: np.ndarray, y: np.ndarray, **changes) -> ObservedMessage:
    module = victim.make(victim.seed)
    theta = Flat(module).vector().numpy()
    return ObservedMessage(gradient_by_hand(module, x, y), "gradient", theta, len(y), **changes)


def by_layers(victim: Victim, message: ObservedMessage) -> Matcher:
    """The four passes by PyTorch."""
    made = Matcher(victim, message)
    found = chain_of(made.module)
    assert found is not None
    made.chain = found[0]
    return made


def slow(victim: Victim, message: ObservedMessage) -> Matcher:
    return Matcher(victim, message, fast=False)
