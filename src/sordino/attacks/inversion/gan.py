"""The networks of KED-MI for small images: a generator, and a discriminator whose outputs are the target's classes."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LATENT = 100


class Generator(nn.Module):
    """From a point of `LATENT` numbers to an image between `low` and `high`: one dense layer, two doublings, convolutions."""

    def __init__(self, shape: tuple[int, int, int], low: Tensor, high: Tensor, width: int = 32) -> None:
        super().__init__()
        channels, height, width_of_image = shape
        self.shape, self.side = shape, (math.ceil(height / 4), math.ceil(width_of_image / 4))
        self.first = nn.Linear(LATENT, 2 * width * self.side[0] * self.side[1])
        self.norm0 = nn.BatchNorm2d(2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 4, 2, 1)
        self.norm1 = nn.BatchNorm2d(width)
        self.up2 = nn.ConvTranspose2d(width, width // 2, 4, 2, 1)
        self.norm2 = nn.BatchNorm2d(width // 2)
        self.last = nn.Conv2d(width // 2, channels, 3, padding=1)
        self.low, self.span = low, high - low

    def forward(self, z: Tensor) -> Tensor:
        u = self.first(z).reshape(len(z), -1, *self.side)
        u = F.relu(self.norm0(u))
        u = F.relu(self.norm1(self.up1(u)))
        u = F.relu(self.norm2(self.up2(u)))
        image = torch.sigmoid(self.last(u)) * self.span + self.low
        return image[:, :, : self.shape[1], : self.shape[2]]


class Discriminator(nn.Module):
    """Logits of the target's classes, and the features before them. An image is real as far as its log-sum-exp is large."""

    def __init__(self, shape: tuple[int, int, int], classes: int, width: int = 24) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(shape[0], width, 4, 2, 1)
        self.conv2 = nn.Conv2d(width, 2 * width, 4, 2, 1)
        self.norm2 = nn.GroupNorm(4, 2 * width)
        self.dense = nn.Linear(2 * width * (shape[1] // 4) * (shape[2] // 4), 128)
        self.out = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        u = F.leaky_relu(self.conv1(x), 0.2)
        u = F.leaky_relu(self.norm2(self.conv2(u)), 0.2)
        features = F.leaky_relu(self.dense(u.flatten(1)), 0.2)
        return features, self.out(features)


class Judge(nn.Module):
    """The evaluation classifier: deeper and wider than the targets, and trained apart from them."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(shape[0], 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 64, 3, padding=1)
        self.norm = nn.GroupNorm(8, 64)
        self.dense = nn.Linear(64 * (shape[1] // 8) * (shape[2] // 8), 128)
        self.out = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        u = F.relu(F.max_pool2d(self.conv1(x), 2))
        u = F.relu(F.max_pool2d(self.conv2(u), 2))
        u = F.relu(F.max_pool2d(self.norm(self.conv3(u)), 2))
        return self.out(F.relu(self.dense(u.flatten(1))))
