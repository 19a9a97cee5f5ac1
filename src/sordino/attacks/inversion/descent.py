"""Two optimisers whose whole state is plain arrays, so that an interrupted attack goes on bit for bit.

`SignedAdam` is the one of IG and GI: Adam on the sign of the gradient, projected into the box of pixel values. `LBFGS` is DLG's
(Liu and Nocedal 1989), with a backtracking line search in place of the fixed rate of the published code, which diverges often.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Arrays = dict[str, Tensor]
Objective = Callable[[Tensor], tuple[float, Tensor]]
MEMORY = 100  # pairs that L-BFGS keeps; with 20 of them most restarts stall above the image
ARMIJO = 1e-4
HALVINGS = 25


@dataclass
class SignedAdam:
    """Adam (betas 0.9, 0.999). The rate of each step is given with it."""

    point: Tensor
    first: Tensor
    second: Tensor
    count: int = 0

    @classmethod
    def start(cls, point: Tensor) -> SignedAdam:
        """Adam at this point, with both means at zero."""
        return cls(point, torch.zeros_like(point), torch.zeros_like(point))

    def move(self, slope: Tensor, rate: float, low: Tensor, high: Tensor) -> None:
        """One step of Adam with the signs of the slope, kept between `low` and `high`."""
        slope = slope.sign()
        self.count += 1
        self.first.lerp_(slope, 0.1)
        self.second.mul_(0.999).addcmul_(slope, slope, value=0.001)
        root = (self.second / (1 - 0.999**self.count)).sqrt_().add_(1e-8)
        self.point.addcdiv_(self.first, root, value=-rate / (1 - 0.9**self.count))
        torch.minimum(torch.maximum(self.point, low, out=self.point), high, out=self.point)

    def arrays(self) -> Arrays:
        """All of its state, for a file from which a search goes on."""
        return {"point": self.point, "first": self.first, "second": self.second, "count": torch.tensor([self.count])}

    @classmethod
    def from_arrays(cls, kept: Mapping[str, Tensor]) -> SignedAdam:
        """The search that `arrays` described."""
        return cls(kept["point"], kept["first"], kept["second"], int(kept["count"][0]))


@dataclass
class LBFGS:
    """One minimisation. `value` and `slope` are those of `point`.

    Steps and changes of slope lie in one matrix. The two-loop recursion runs on their inner products (Chen et al. 2014), so that a
    direction costs a few products of a matrix and a vector instead of four small operations for each pair.
    """

    point: Tensor
    value: float
    slope: Tensor
    pairs: Tensor  # rows: a step, and the change of slope over it; oldest first
    inner: np.ndarray  # products of these rows
    stalled: bool = False

    @classmethod
    def start(cls, point: Tensor, f: Objective) -> LBFGS:
        """A search at this point, without any memory of steps."""
        value, slope = f(point)
        return cls(point, value, slope, point.new_zeros(0, len(point)), np.zeros((0, 0)))

    def advance(self, f: Objective) -> int:
        """One step along the quasi-Newton direction; how often `f` was asked. `stalled` where no step lowers it."""
        direction = self._direction()
        downhill = float(direction @ self.slope)
        if not downhill < 0:
            self._forget()
            direction = -self.slope
            downhill = float(direction @ self.slope)
        # Without a history the length of the slope says nothing about the length of a step.
        length = 1.0 if len(self.pairs) else min(1.0, 1.0 / max(float(self.slope.abs().sum()), 1e-30))
        for asked in range(1, HALVINGS + 1):
            point = self.point + length * direction
            value, slope = f(point)
            if math.isfinite(value) and value <= self.value + ARMIJO * length * downhill:
                self._accept(point, value, slope)
                return asked
            length *= 0.5
        self.stalled = not len(self.pairs)
        self._forget()  # the history misleads; the next step starts afresh
        return HALVINGS

    def _forget(self) -> None:
        self.pairs, self.inner = self.pairs[:0], self.inner[:0, :0]

    def _accept(self, point: Tensor, value: float, slope: Tensor) -> None:
        pair = torch.stack([point - self.point, slope - self.slope])
        own = (pair @ pair.T).double().numpy()
        if own[0, 1] > 1e-10 * math.sqrt(own[0, 0] * own[1, 1]):
            if len(self.pairs) >= 2 * MEMORY:
                self.pairs, self.inner = self.pairs[2:], self.inner[2:, 2:]
            across = (self.pairs @ pair.T).double().numpy()
            self.inner = np.block([[self.inner, across], [across.T, own]])
            self.pairs = torch.cat([self.pairs, pair])
        self.stalled = not value < self.value
        self.point, self.value, self.slope = point, value, slope

    def _direction(self) -> Tensor:
        """The two-loop recursion, in coordinates of the pairs and the slope."""
        count = len(self.pairs)
        if not count:
            return -self.slope
        along = (self.pairs @ self.slope).double().numpy()
        found = np.zeros(count)  # of the pairs; that of the slope is `own`
        own = -1.0
        weights = np.zeros(count)
        for i in range(count - 2, -1, -2):  # a step, and behind it its change
            weights[i] = (found @ self.inner[i] + own * along[i]) / self.inner[i, i + 1]
            found[i + 1] -= weights[i]
        scale = self.inner[-2, -1] / self.inner[-1, -1]
        found *= scale
        own *= scale
        for i in range(0, count, 2):
            turn = (found @ self.inner[i + 1] + own * along[i + 1]) / self.inner[i, i + 1]
            found[i] += weights[i] - turn
        return torch.from_numpy(found.astype(np.float32)) @ self.pairs + own * self.slope

    def arrays(self) -> Arrays:
        """All of its state, for a file from which a search goes on."""
        kept = {"point": self.point, "slope": self.slope, "value": torch.tensor([self.value], dtype=torch.float64)}
        return {**kept, "pairs": self.pairs, "inner": torch.from_numpy(self.inner)}

    @classmethod
    def from_arrays(cls, kept: Mapping[str, Tensor]) -> LBFGS:
        """The search that `arrays` described."""
        return cls(kept["point"], float(kept["value"][0]), kept["slope"], kept["pairs"], kept["inner"].numpy())
