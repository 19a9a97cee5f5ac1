"""Two optimisers whose whole state is plain arrays, so that an interrupted attack goes on bit for bit.

`SignedAdam` is the one of IG and GI: Adam on the sign of the gradient, projected into the box of pixel values. `LBFGS` is DLG's
(Liu and Nocedal 1989), with a backtracking line search in place of the fixed rate of the published code, which diverges often.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

Arrays = dict[str, Tensor]
Objective = Callable[[Tensor], tuple[float, Tensor]]
MEMORY = 20  # pairs that L-BFGS keeps; more cost as much as a step and gain little
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
        return cls(point, torch.zeros_like(point), torch.zeros_like(point))

    def move(self, slope: Tensor, rate: float, low: Tensor, high: Tensor, signed: bool = True) -> None:
        slope = slope.sign() if signed else slope
        self.count += 1
        self.first.lerp_(slope, 0.1)
        self.second.mul_(0.999).addcmul_(slope, slope, value=0.001)
        root = (self.second / (1 - 0.999**self.count)).sqrt_().add_(1e-8)
        self.point.addcdiv_(self.first, root, value=-rate / (1 - 0.9**self.count))
        torch.minimum(torch.maximum(self.point, low, out=self.point), high, out=self.point)

    def arrays(self) -> Arrays:
        return {"point": self.point, "first": self.first, "second": self.second, "count": torch.tensor([self.count])}

    @classmethod
    def from_arrays(cls, kept: Mapping[str, Tensor]) -> SignedAdam:
        return cls(kept["point"], kept["first"], kept["second"], int(kept["count"][0]))


@dataclass
class LBFGS:
    """One minimisation. `value` and `slope` are those of `point`."""

    point: Tensor
    value: float
    slope: Tensor
    steps: list[Tensor] = field(default_factory=list)
    changes: list[Tensor] = field(default_factory=list)
    stalled: bool = False

    @classmethod
    def start(cls, point: Tensor, f: Objective) -> LBFGS:
        value, slope = f(point)
        return cls(point, value, slope)

    def advance(self, f: Objective) -> int:
        """One step along the quasi-Newton direction; how often `f` was asked. `stalled` where no step lowers it."""
        direction = self._direction()
        downhill = float(direction @ self.slope)
        if not downhill < 0:
            self.steps, self.changes = [], []
            direction = -self.slope
            downhill = float(direction @ self.slope)
        # Without a history the length of the slope says nothing about the length of a step.
        length = 1.0 if self.steps else min(1.0, 1.0 / max(float(self.slope.abs().sum()), 1e-30))
        for asked in range(1, HALVINGS + 1):
            point = self.point + length * direction
            value, slope = f(point)
            if math.isfinite(value) and value <= self.value + ARMIJO * length * downhill:
                self._accept(point, value, slope)
                return asked
            length *= 0.5
        if self.steps:  # the history misleads; the next step starts afresh
            self.steps, self.changes = [], []
        else:
            self.stalled = True
        return HALVINGS

    def _accept(self, point: Tensor, value: float, slope: Tensor) -> None:
        step, change = point - self.point, slope - self.slope
        if float(step @ change) > 1e-10 * float(step.norm() * change.norm()):
            self.steps.append(step)
            self.changes.append(change)
            del self.steps[:-MEMORY], self.changes[:-MEMORY]
        self.stalled = not value < self.value
        self.point, self.value, self.slope = point, value, slope

    def _direction(self) -> Tensor:
        """The two-loop recursion."""
        d = -self.slope
        if not self.steps:
            return d
        weights = []
        for s, y in zip(reversed(self.steps), reversed(self.changes)):
            rho = 1.0 / float(y @ s)
            weight = rho * float(s @ d)
            weights.append((weight, rho))
            d = d - weight * y
        s, y = self.steps[-1], self.changes[-1]
        d = d * (float(s @ y) / float(y @ y))
        for (weight, rho), s, y in zip(reversed(weights), self.steps, self.changes):
            d = d + s * (weight - rho * float(y @ d))
        return d

    def arrays(self) -> Arrays:
        kept = {"point": self.point, "slope": self.slope, "value": torch.tensor([self.value], dtype=torch.float64)}
        if self.steps:
            kept |= {"steps": torch.stack(self.steps), "changes": torch.stack(self.changes)}
        return kept

    @classmethod
    def from_arrays(cls, kept: Mapping[str, Tensor]) -> LBFGS:
        steps = list(kept["steps"].unbind()) if "steps" in kept else []
        changes = list(kept["changes"].unbind()) if "changes" in kept else []
        return cls(kept["point"], float(kept["value"][0]), kept["slope"], steps, changes)
