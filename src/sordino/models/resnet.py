"""ResNet-18 (He et al. 2016) with GroupNorm (Wu and He 2018) in place of BatchNorm.

BatchNorm mixes the examples of a batch and keeps running statistics of private data; GroupNorm does neither. Images
of at most 64 pixels get the usual small stem (one 3x3 convolution, no pooling), larger ones the original stem.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_GROUPS = 32


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(_GROUPS, outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(_GROUPS, outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.GroupNorm(_GROUPS, outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Four stages of two blocks, widths 64 to 512, average pooling and one dense layer."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        small = max(height, width) <= 64
        self.conv1 = nn.Conv2d(channels, 64, 3 if small else 7, 1 if small else 2, 1 if small else 3, bias=False)
        self.norm1 = nn.GroupNorm(_GROUPS, 64)
        self.pool: nn.Module = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        stages = []
        inside = 64
        for stage, outside in enumerate((64, 128, 256, 512)):
            stages += [Block(inside, outside, 1 if stage == 0 else 2), Block(outside, outside, 1)]
            inside = outside
        self.blocks = nn.Sequential(*stages)
        self.out = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.pool(self.norm1(self.conv1(x))))
        x = self.blocks(x)
        return self.out(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))
