"""Everything that decides features: blocks of filters, the synthetic pictures behind them, what is done to each example.

`recipe_for` has the settings by shape. They were chosen on a part of the training data of CIFAR-10, MNIST and Fashion-MNIST
that was kept out of training, from a starting point that earlier trials had found with the help of test sets
(docs/features.md). Other pictures take the settings of the nearest kind: one channel, or more. Large pictures are shrunk to
about 32 pixels a side, small ones get smaller patches and fewer cells.

Most signals are windows of something that goes on, so filters are averaged over the whole length at three scales; a few are
also averaged over quarters, for signals that begin at a moment that means something (a heartbeat, a day).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from sordino import errors
from sordino.features.blocks import Block, picture_shape
from sordino.features.generator import Leaves
from sordino.plain import Json

SIDE = 32  # pixels to which large pictures are shrunk, about
SHORTEST_PATCH, LONGEST_PATCH = 4, 32  # steps of a signal


@dataclass(frozen=True)
class Recipe:
    """The settings of features. Nothing in it depends on the data."""

    blocks: tuple[Block, ...]
    power: float = 0.5
    damped: int = 400
    """Directions of the synthetic features that are damped; 0 for none."""
    pictures: int = 3000
    leaves: Leaves = Leaves()
    seed: int = 0
    """Of the synthetic pictures and filters: public."""

    def __post_init__(self) -> None:
        errors.whole(1, pictures=self.pictures)
        errors.whole(0, damped=self.damped, seed=self.seed)
        errors.positive(power=self.power)
        if not self.blocks:
            raise errors.BadInput("A recipe needs at least one block of filters; none was given.")

    def to_json(self) -> Json:
        """Plain data, for plans and digests; cells that are not soft are not mentioned."""
        plain = asdict(self)
        plain["blocks"] = tuple({k: v for k, v in block.items() if k != "soft" or v} for block in plain["blocks"])
        return plain

    @property
    def features_digest(self) -> str:
        """Names what `extractor` makes up to the private mean."""
        fields = {key: value for key, value in self.to_json().items() if key != "damped"}
        text = json.dumps(fields, sort_keys=True, default=list).encode()
        return hashlib.blake2b(text, digest_size=16, person=b"sordino.recipe").hexdigest()


def recipe_for(shape: tuple[int, ...]) -> Recipe:
    """The recipe for pictures (channels, height, width) or signals (channels, length)."""
    channels, height, width = picture_shape(shape)
    if height == 1:
        patch = max(SHORTEST_PATCH, min(width // 8, LONGEST_PATCH))
        blocks = [Block(200, patch, cells=1, shrink=shrink, mirror=False) for shrink in (1, 2, 4)]
        blocks.append(Block(25, patch, cells=4, shrink=2, mirror=False))
        return Recipe(tuple(blocks), damped=100, pictures=1000)
    side = min(height, width)
    shrink = max(1, side // SIDE)
    patch = 6 if side >= 16 else max(2, side // 3)
    positions = side // shrink - patch + 1
    cells = min(4 if channels == 1 else 3, max(1, positions))
    soft = min(2, positions // (2 * cells))
    if channels == 1:  # a mirrored digit is another digit
        return Recipe((Block(200, patch, cells=cells, shrink=shrink, mirror=False, soft=soft),), damped=300)
    return Recipe((Block(500, patch, cells=cells, shrink=shrink, soft=soft),))
