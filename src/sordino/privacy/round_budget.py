"""What one client may spend while it works: a part of its budget that the ledger granted before the round.

A client that chooses its multiplier step by step, from what its own steps released, cannot tell beforehand what the
round will cost. So the ledger grants it a budget, on disk, before the round; and this budget grants each step before any
record is drawn for it. Costs are Renyi divergences at the order that was committed before round one, where they add up
along any adaptive path (Feldman and Zrnic 2021): the sum over all rounds stays within the client's budget, hence so
does all that is spent out of them. What is left over stays the client's own and is added to its next budget.

Sums are exact (see `exact`).
"""

from __future__ import annotations

import math

from sordino.errors import BadInput, BudgetRefused
from sordino.privacy import exact


class RoundBudget:
    """A sum that can only go down, and never below zero."""

    def __init__(self, granted: float) -> None:
        if not (isinstance(granted, (int, float)) and math.isfinite(granted) and granted >= 0):
            raise BadInput(f"a round's budget is a number of at least 0, not {granted!r}.")
        self._left = exact.from_float(float(granted))
        self._spent = 0

    def affords(self, cost: float) -> bool:
        """Whether `request` would grant this cost; never, for one that is not a number or below zero."""
        return math.isfinite(cost) and cost >= 0 and exact.from_float(float(cost)) <= self._left

    def request(self, cost: float) -> None:
        """Grant one step, or raise `BudgetRefused` and change nothing."""
        if not self.affords(cost):
            raise BudgetRefused(
                f"The step is refused because it would cost {cost:.6g} of Renyi divergence and {self.left:.6g} is left "
                "of this round's budget; ask again with a larger multiplier, or sit out."
            )
        taken = exact.from_float(float(cost))
        self._left -= taken
        self._spent += taken

    @property
    def left(self) -> float:
        """What is left, rounded down."""
        value = exact.to_float(self._left)
        return value if exact.from_float(value) <= self._left else math.nextafter(value, 0.0)

    @property
    def spent(self) -> float:
        """What is spent, rounded up."""
        value = exact.to_float(self._spent)
        return value if exact.from_float(value) >= self._spent else math.nextafter(value, math.inf)

    def __repr__(self) -> str:
        return "RoundBudget(...)"  # what one client has left may tell something about it
