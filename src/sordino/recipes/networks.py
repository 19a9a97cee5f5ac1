"""The network that suits a shape, and the learning rate that suits a network."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sordino.recipes.choice import Choice
from sordino.recipes.facts import PublicFacts

if TYPE_CHECKING:
    from torch import nn

LEARNT = 15_000  # records times epsilon, from which on a hidden layer learns more than its noise costs
SMALLEST_PICTURE = 16  # pixels a side, below which convolutions have nothing left to slide over
SHORTEST_SIGNAL = 32


def model_for(facts: PublicFacts, epsilon: float | None) -> Choice:
    """`epsilon` None: no privacy."""
    shape = facts.shape
    if facts.tokens:
        return Choice("model", "char-lstm-all" if facts.positions else "char-lstm", f"for {facts.said}")
    if facts.table:
        return Choice("model", "wide-fourier", f"for {facts.said}: a linear model and cosines beside it")
    if len(shape) == 2 and shape[1] >= SHORTEST_SIGNAL:
        return Choice("model", "std-cnn-1d", f"for {facts.said}")
    if len(shape) == 3 and min(shape[1:]) >= SMALLEST_PICTURE:
        return Choice("model", "std-cnn", f"for {facts.said}")
    if epsilon is None or facts.records * epsilon >= LEARNT:
        return Choice("model", "std-mlp", f"for {facts.said}")
    few = f"{facts.records:,} records at epsilon {epsilon:g} teach few parameters"
    return Choice("model", "std-linear", f"for {facts.said}; {few}")


def parameters(name: str, facts: PublicFacts) -> int:
    """How many a network has on such data."""
    from sordino.models import build

    return sum(p.numel() for p in build(name, facts.shape, facts.classes).parameters() if p.requires_grad)


def fan_in(net: nn.Module) -> int:
    """The most inputs that one unit of the network adds up."""
    return max((p.numel() // p.shape[0] for p in net.parameters() if p.dim() > 1), default=1)


def rate_for(fan: int) -> float:
    """Adam moves every weight by about the same; a unit that adds up more of them moves by the root of their number more."""
    return float(f"{min(0.05, 0.4 / math.sqrt(fan)):.2g}")
