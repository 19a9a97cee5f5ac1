"""The settings of the recipe `frontier`, by shape of data and epsilon: features that need no data, and a linear head.

They were chosen on a part of the training data of CIFAR-10, MNIST and Fashion-MNIST that was kept out of training, from a
starting point that earlier trials had found with the help of test sets (docs/features.md). Data of other shapes take the
settings of the nearest kind: pictures of one channel, of more, or signals. Those for signals are a first guess: nothing was
measured on signals yet.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from sordino import errors
from sordino.features.generator import Leaves
from sordino.features.maps import Block, picture_shape
from sordino.privacy import calibration, events


@dataclass(frozen=True)
class Head:
    """Softmax regression from zero by pooled DP-SGD: Poisson batches, clipped gradients, momentum, sums divided by q N."""

    rate: float
    steps: int
    clip: float
    lr: float
    momentum: float = 0.9
    bias: float = 0.3
    """The constant input that carries the bias: small, so that the bias takes little of the clipped length."""
    averaged: float = 0.0
    """The last part of the iterates whose average is the model; 0 takes the last iterate."""

    def __post_init__(self) -> None:
        errors.rate(rate=self.rate)
        errors.whole(1, steps=self.steps)
        errors.positive(clip=self.clip, lr=self.lr, bias=self.bias)
        errors.at_least(0.0, momentum=self.momentum, averaged=self.averaged)

    def event(self, multiplier: float) -> events.Event:
        """All steps."""
        return events.repeated(events.poisson(self.rate, events.gaussian(multiplier)), self.steps)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the features and the head. Nothing in it depends on the data."""

    blocks: tuple[Block, ...]
    head: Head
    power: float = 0.5
    damped: int = 400
    """Directions of the synthetic features that are damped; 0 for none."""
    mean_multiplier: float = 20.0
    pictures: int = 3000
    leaves: Leaves = Leaves()
    seed: int = 0
    """Of the synthetic pictures and filters: public."""

    def __post_init__(self) -> None:
        errors.whole(1, pictures=self.pictures)
        errors.whole(0, damped=self.damped, seed=self.seed)
        errors.positive(power=self.power, mean_multiplier=self.mean_multiplier)
        if not self.blocks:
            raise errors.BadInput("A recipe needs at least one block of filters; none was given.")

    def to_json(self) -> dict[str, Any]:
        """Plain data, for plans and digests."""
        return asdict(self)

    @property
    def features_digest(self) -> str:
        """Names what `extractor` makes up to the private mean: two heads on the same features share it."""
        fields = {
            key: value for key, value in self.to_json().items() if key not in ("head", "mean_multiplier", "damped")
        }
        text = json.dumps(fields, sort_keys=True, default=list).encode()
        return hashlib.blake2b(text, digest_size=16, person=b"sordino.recipe").hexdigest()

    def event(self, multiplier: float) -> events.Event:
        """All that is released: the mean, then the steps of the head with this multiplier."""
        return events.composed([events.gaussian(self.mean_multiplier), self.head.event(multiplier)])

    def multiplier_for(self, epsilon: float, delta: float) -> float:
        """The multiplier of the head's steps with which everything stays within (epsilon, delta)."""
        return calibration.scale_for(self.event, epsilon, delta, guess=2.0)


def recipe_for(shape: tuple[int, ...], epsilon: float) -> Recipe:
    """The recipe for pictures (channels, height, width) or signals (channels, length) at this epsilon."""
    errors.positive(epsilon=epsilon)
    channels, height, width = picture_shape(shape)
    tight = epsilon < 2
    blocks: tuple[Block, ...]
    if height == 1:
        blocks = (
            Block(200, 16, threshold=1.0, cells=4, mirror=False),
            Block(200, 16, threshold=1.0, cells=4, shrink=4, mirror=False),
        )
        head = Head(0.1, 200, 0.4, 8.0) if tight else Head(0.2, 300, 0.3, 30.0)
        return Recipe(blocks, head, damped=100, pictures=1000)
    if channels == 1:
        blocks = (Block(300, 6, cells=4, mirror=False),)  # a mirrored digit is another digit
        head = Head(0.1, 200, 0.3, 30.0) if tight else Head(0.1, 200, 0.3, 80.0)
        return Recipe(blocks, head, damped=300, mean_multiplier=20.0 if tight else 10.0)
    blocks = (Block(800, 6),)
    head = Head(0.1, 300, 0.4, 8.0) if tight else Head(0.2, 300, 0.2, 60.0)
    return Recipe(blocks, head, mean_multiplier=20.0 if tight else 15.0)
