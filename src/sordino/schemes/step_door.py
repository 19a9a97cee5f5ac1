"""The way out of one local step of DP-SGD: everything that leaves is noised, and noted for the check against its grant."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sordino.privacy import events, mechanisms
from sordino.privacy.bounds import Bound, Flat
from sordino.privacy.randomness import Source
from sordino.privacy.release import Private, disclose
from sordino.rules.query import Answer, Query, answer_codes, is_raw


@dataclass
class StepDoor:
    """The way out of one step: everything that leaves is noised, and noted."""

    noise: Source
    capacity: int  # records that a sum may hold; the client's declared number, never that of the batch
    units: float
    released: list[events.Event] = field(default_factory=list)

    def sum(self, total: np.ndarray, bound: Bound, z: float) -> np.ndarray:
        """A sum of clipped gradients, with the noise that its bound asks for."""
        grid = mechanisms.FixedPoint.for_bound(bound, self.capacity, max(1000.0, z))
        return self._gaussian(mechanisms.Sum(grid.encode(total), grid), bound, z)

    def answer(self, query: Query, norms: np.ndarray, size: float, std: float | None) -> Answer:
        """The answer to a question about norms: with noise, or disclosed where the rule asks for it in the raw."""
        if is_raw(query) or std is None:
            exact, event = disclose(Private(query.encode(norms, size)), "exact norms of a batch are used")
            self.released.append(event)
            return Answer(exact.value, self.units)
        limit = Flat(query.norm)
        grid = mechanisms.FixedPoint.for_bound(limit, self.capacity, max(1000.0, std / query.norm))
        codes = answer_codes(query, norms, size, grid)
        return Answer(self._gaussian(mechanisms.Sum(codes, grid), limit, std / query.norm), self.units, std)

    def _gaussian(self, total: mechanisms.Sum, bound: Bound, z: float) -> np.ndarray:
        noisy, event = mechanisms.gaussian(Private(total, bound=bound), bound, z, self.noise)
        self.released.append(event)
        return noisy.value
