"""The diagonal of the empirical Fisher information: the mean over examples of squared gradient entries.

The obvious way is one backward pass per example. Here all examples of a chunk share one, with book-keeping in every layer
(`ghost_layers`). For a dense layer the squares of an outer product are the outer product of the squares, so that no gradient
of its weight is ever formed.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from sordino.gradients.flat import Flat
from sordino.gradients.losses import Loss
from sordino.gradients.per_example import PerExample


class Fisher:
    """Fisher diagonals of one model as it evaluates (layers that draw at random are still)."""

    def __init__(self, flat: Flat, loss: Loss) -> None:
        self.flat = flat
        flags = self._still()
        self.per_example = PerExample(flat, loss)
        self._restore(flags)

    def diagonal(self, x: Tensor, y: Tensor) -> np.ndarray:
        """[size], in the order of the flat vector, at the values that the model has now."""
        flags = self._still()
        try:
            return self.per_example.squared_sums(x, y) / max(1, len(y))
        finally:
            self._restore(flags)

    def _still(self) -> list[bool]:
        flags = [module.training for module in self.flat.model.modules()]
        self.flat.model.eval()
        return flags

    def _restore(self, flags: list[bool]) -> None:
        for module, training in zip(self.flat.model.modules(), flags):
            module.training = training
