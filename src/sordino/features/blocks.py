"""What one block of features is made of, and which pictures it fits. Plain settings: nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sordino.errors import BadInput, at_least, whole
from sordino.features import levels


@dataclass(frozen=True)
class Block:
    """What one block of features is made of."""

    filters: int
    patch: int = 6
    stride: int = 1
    threshold: float = 1.0
    cells: int = 2
    shrink: int = 1
    mirror: bool = True
    soft: int = 0
    """Cells reach so many positions into one another: what features averaged over pictures moved by so many pixels would be."""

    def __post_init__(self) -> None:
        whole(1, filters=self.filters, patch=self.patch, stride=self.stride, cells=self.cells, shrink=self.shrink)
        whole(0, soft=self.soft)
        at_least(0.0, threshold=self.threshold)

    def window(self, shape: tuple[int, int, int]) -> tuple[int, int]:
        """Height and width of a patch: a signal (height 1) has patches of height 1."""
        return (1 if shape[1] == 1 else self.patch, self.patch)

    def grid(self, shape: tuple[int, int, int]) -> tuple[int, int]:
        """Cells along each axis."""
        return (1 if shape[1] == 1 else self.cells, self.cells)

    def seen(self, shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """The shape of the picture after shrinking; a picture that is too small is refused."""
        channels, height, width = shape
        small = (channels, height if height == 1 else height // self.shrink, width // self.shrink)
        window, grid = self.window(shape), self.grid(shape)
        for size, patch, cells in zip(small[1:], window, grid):
            if (size - patch) // self.stride + 1 < cells:
                need = (patch + (cells - 1) * self.stride) * self.shrink
                if height == 1:
                    raise BadInput(
                        f"Signals of {width} steps in {channels} channels are too short for these features, which need {need} steps; "
                        "use --recipe none, or longer signals. If they are pictures without a channel axis, add the axis."
                    )
                raise BadInput(
                    f"Pictures of {height} x {width} are too small for these features, which need {need} pixels along "
                    "each side; use a recipe with smaller patches, or larger pictures."
                )
        return small

    def size(self, shape: tuple[int, int, int]) -> int:
        """Features of one picture."""
        rows, columns = self.grid(shape)
        return 2 * self.filters * rows * columns


def picture_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """(C, H, W); a signal (C, L) is a picture of height 1."""
    if len(shape) == 2:
        return (int(shape[0]), 1, int(shape[1]))
    if len(shape) == 3:
        return (int(shape[0]), int(shape[1]), int(shape[2]))
    raise BadInput(
        f"Features are for pictures (channels, height, width) or signals (channels, length), not shape {tuple(shape)}; add the channel axis."
    )


def sizes(shape: tuple[int, ...], blocks: Sequence[Block]) -> list[int]:
    """How many features each block has; for signals, their levels come last."""
    found = [block.size(picture_shape(shape)) for block in blocks]
    return found + ([levels.size(shape[0])] if len(shape) == 2 else [])
