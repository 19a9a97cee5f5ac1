"""A filter that counts off what was settled."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

from sordino.errors import BadInput, BudgetRefused, at_least
from sordino.privacy import exact
from sordino.privacy.events import Event
from sordino.privacy.filter.base import Filter, FilterJson
from sordino.privacy.vocabulary import Relation


class ScheduleFilter(Filter):
    """Counts off a list of events that was settled, and accounted as a whole, before round one.

    The next request must be the next event of the list, or the same event with a multiplier at least as large (that is
    the listed release with more noise poured on afterwards, so it tells no more). The list is kept as runs of equal
    events; an item may be an event or a pair (event, how often). `epsilon` is that of the whole list and holds however
    much of it is used.
    """

    kind = "schedule"
    currency = "settled releases"

    def __init__(
        self,
        events: Iterable[Event | tuple[Event, int]],
        total_epsilon: float,
        delta: float,
        relation: Relation | str = Relation.ADD_REMOVE,
        accountant: str = "pld",
    ) -> None:
        at_least(0, epsilon=total_epsilon)  # 0 is proven where delta alone covers it
        if not (isinstance(delta, (int, float)) and 0 <= delta < 1):
            raise BadInput(f"delta must be at least 0 and below 1, not {delta!r}.")
        self.epsilon, self.delta, self.relation = float(total_epsilon), float(delta), Relation(relation)
        self.accountant = accountant
        self._runs: list[tuple[Event, int]] = []
        for item in events:
            event, count = item if isinstance(item, tuple) else (item, 1)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise BadInput(f"An event of a schedule must be there at least once, not {count!r} times.")
            if exact.not_private(event):
                raise BadInput("A schedule with a release that is not private has no epsilon; run it without a budget.")
            exact.check(event)
            if self._runs and self._runs[-1][0] == event:
                count += self._runs.pop()[1]
            self._runs.append((event, count))
        if not self._runs:
            raise BadInput("The schedule is empty; give at least one event.")
        self.total = sum(count for _, count in self._runs)
        self._run, self._used = 0, 0  # the run that is being used, and how much of it is

    def _next(self) -> Event | None:
        return self._runs[self._run][0] if self._run < len(self._runs) else None

    def price(self, event: Event) -> float:
        return math.inf if exact.not_private(event) else 1.0

    def affords(self, event: Event) -> bool:
        settled = self._next()
        return settled is not None and exact.no_costlier(event, settled)

    def times(self, event: Event) -> float:
        used, count = self._used, 0
        for settled, length in self._runs[self._run :]:
            if not exact.no_costlier(event, settled):
                break
            count, used = count + length - used, 0
        return count

    def request(self, event: Event) -> None:
        if not self.affords(event):
            settled = self._next()
            why = "all of them are used" if settled is None else f"the next one is {exact.say(settled)}"
            raise BudgetRefused(
                f"The release is refused because it is not in the schedule behind epsilon {self.epsilon:g}: asked was "
                f"{exact.say(event)}, {self.granted} of {self.total} settled releases are spent, {self.left:.0f} are "
                f"left and {why}; stop here, or plan a new run with more rounds or a larger budget."
            )
        self.granted += 1
        self._used += 1
        if self._used == self._runs[self._run][1]:
            self._run, self._used = self._run + 1, 0

    @property
    def spent(self) -> float:
        return float(self.granted)

    @property
    def left(self) -> float:
        return float(self.total - self.granted)

    def to_json(self) -> FilterJson:
        from sordino.privacy import events

        runs = [[events.to_json(event), count] for event, count in self._runs]  # lists, as JSON gives them back
        return {
            "kind": self.kind,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": str(self.relation),
            "accountant": self.accountant,
            "schedule": cast(list[tuple[dict[str, object], int]], runs),
            "granted": self.granted,
        }

    @classmethod
    def from_json(cls, data: FilterJson) -> ScheduleFilter:
        from sordino.privacy import events

        runs = [(events.from_json(event), count) for event, count in data["schedule"]]
        made = cls(runs, data["epsilon"], data["delta"], data["relation"], data["accountant"])
        granted = data["granted"]
        if not (isinstance(granted, int) and 0 <= granted <= made.total):
            raise BadInput(f"The stored schedule has used {granted!r} of {made.total} events; take an untouched copy.")
        made.granted, made._used = granted, granted
        while made._run < len(made._runs) and made._used >= made._runs[made._run][1]:
            made._used -= made._runs[made._run][1]
            made._run += 1
        return made
