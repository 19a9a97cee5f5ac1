"""What is taken to be public about a population: how many clients there are, and how many examples each one holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import BadInput

if TYPE_CHECKING:
    from sordino.federation.population import Federation


@dataclass(frozen=True, eq=False)
class PublicSizes:
    """Rates and denominators are functions of these numbers, so nobody may change them by joining or leaving.

    `sizes` holds one number for each client, or one that holds for every client, or None where no rate, weight or
    denominator of the plan asks for it. Records that are held out are not among them: `held_out` counts those.
    """

    clients: int
    sizes: np.ndarray | int | None
    held_out: np.ndarray | None = None  # by client; None: nothing is held out

    @classmethod
    def of(cls, federation: Federation, asked: bool = True) -> PublicSizes:
        """The sizes that the federation declares; `asked`: whether the plan uses them at all."""
        held = None
        if federation.held_out is not None:
            held = np.array([federation.held_out.size(k) for k in range(federation.clients)], np.int64)
        return cls(federation.clients, federation.declared_sizes() if asked else None, held)

    @property
    def each(self) -> np.ndarray:
        """Examples of every client, in client order."""
        if self.sizes is None:
            raise BadInput(
                "how many examples each client holds is not declared, and this plan's rates rest on it; "
                "give Federation.on_demand a size (a number, or a function of the client)."
            )
        return np.broadcast_to(np.asarray(self.sizes, np.int64), (self.clients,))

    @property
    def examples(self) -> int:
        """Examples of all clients together."""
        return self.sizes * self.clients if isinstance(self.sizes, int) else int(self.each.sum())

    def distinct(self) -> list[int]:
        """The different numbers of records that clients hold."""
        return [self.sizes] if isinstance(self.sizes, int) else np.unique(self.each).tolist()
