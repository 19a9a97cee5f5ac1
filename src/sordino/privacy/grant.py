"""Grants: leave to make one release each, and the book of all that a ledger holds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sordino.privacy import events
from sordino.privacy import ledger_format as lines
from sordino.privacy.events import Event
from sordino.privacy.ledger_format import Row

_PARSED = 4096  # distinct events that are kept parsed


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to make one release. `attempt` counts the times that this step of this round was charged."""

    seq: int
    round: int
    step: int
    attempt: int
    event: Event
    reused: bool = False  # handed out again to a seeded simulation, without a new charge
    recovered: bool = False  # read from a torn line
    _clients: lines.PackedIds | None = field(default=None, repr=False)
    _costs: lines.PackedCosts | float | None = field(default=None, repr=False)

    @property
    def clients(self) -> NDArray[np.int64] | None:
        """The cohort, in ascending order, if it was recorded."""
        return None if self._clients is None else lines.unpack_ids(self._clients)

    @property
    def costs(self) -> float | NDArray[np.float64] | None:
        """What the clients were charged: one number for all, or one each in the order of `clients`."""
        return None if self._costs is None else lines.unpack_costs(self._costs)


class Grants:
    """What a ledger granted so far: in order, by round and step, and the rounds that were given up."""

    def __init__(self) -> None:
        self.all: list[Grant] = []
        self.latest: dict[tuple[int, int], Grant] = {}
        self.rounds: set[int] = set()
        self.lost: set[int] = set()
        self._parsed: dict[str, Event] = {}

    def event(self, described: dict[str, object]) -> Event:
        """The event that a row describes, as every replay reads it."""
        key = repr(described)
        if key not in self._parsed:
            if len(self._parsed) >= _PARSED:
                self._parsed.clear()
            self._parsed[key] = events.from_json(described)
        return self._parsed[key]

    def keep(self, number: int, row: Row, event: Event) -> Grant:
        """Enter row `number`, which was charged."""
        t, step = row["round"], row["step"]
        torn = row["kind"] == "torn"
        grant = Grant(number, t, step, row["attempt"], event, False, torn, row.get("clients"), row.get("costs"))
        self.all.append(grant)
        self.latest[t, step] = grant
        self.rounds.add(t)
        return grant
