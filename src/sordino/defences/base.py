"""What a defence is given, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sordino.gradients.flat import Flat


@dataclass(frozen=True, eq=False)
class OwnView:
    """What a client has at hand when it defends its update: nothing of it leaves."""

    flat: Flat  # the model that the client started from
    x: Tensor
    y: Tensor
    loss: Callable[[Tensor, Tensor], Tensor]  # the mean loss of a batch
    lr: float  # an update is minus this times a gradient, or times a sum of gradients
    rng: np.random.Generator  # secret where the plan is secure

    def some(self, most: int) -> tuple[Tensor, Tensor]:
        """At most so many of the client's records, drawn anew in every round."""
        import torch

        if len(self.y) <= most:
            return self.x, self.y
        rows = torch.from_numpy(np.sort(self.rng.choice(len(self.y), most, replace=False))).to(self.x.device)
        return self.x.index_select(0, rows), self.y.index_select(0, rows)


Change = Callable[[np.ndarray, OwnView], np.ndarray]  # what a defence does to an update


class Defence(Protocol):
    """One heuristic defence. Its fields are its settings."""

    name: ClassVar[str]
    paper: ClassVar[str]

    def check(self, model: nn.Module, x: Tensor) -> None:
        """Refuse a model that has no place for it; `x` is synthetic input."""

    def __call__(self, update: np.ndarray, own: OwnView) -> np.ndarray:
        """The update (new minus old weights, flat order) that is clipped and sent in place of `update`."""
