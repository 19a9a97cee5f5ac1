"""Grants or refuses a release before any data is touched, so that a budget cannot be exceeded.

A filter sees events only, never data, and its state is a function of what was asked: it may be shown to anyone who may
see the requests. Which filter is sound depends on what was settled before round one:

* `ScheduleFilter`: every event was settled. Ordinary composition holds, so the total may be computed by any accountant,
  the privacy loss distribution included; the filter then only counts off the list. Stopping early is free.
* `RdpFilter`: multipliers, rates or the stopping time may depend on what was released. Renyi divergence at one order,
  committed in advance, adds up along any adaptive path (Feldman and Zrnic 2021, theorem 3.1 and its filter).
* `GdpFilter`: the same for Gaussian releases without sampling: the sum of 1/z^2 against mu^2 (Koskela et al. 2023).
* `NoBudget`: grants everything and only counts. For runs that are not private, or whose clients each keep a budget.

Composing privacy loss distributions along the realised path and stopping at the target is not a sound filter, and
taking the best Renyi order after an adaptive run is not covered by the theorem; neither can be expressed here.

Sums are exact (see `exact`): a request is granted only if the true sum of the costs stays within the budget.
"""

from __future__ import annotations

from sordino.errors import BadInput
from sordino.privacy.filter.base import Filter, FilterJson
from sordino.privacy.filter.schedule import ScheduleFilter
from sordino.privacy.filter.sums import GdpFilter, RdpFilter
from sordino.privacy.filter.without import NoBudget

__all__ = ["Filter", "GdpFilter", "NoBudget", "RdpFilter", "ScheduleFilter", "from_json"]


def from_json(data: FilterJson) -> Filter:
    """The filter that `to_json` wrote, in the state it was in."""
    kinds: dict[str, type[Filter]] = {made.kind: made for made in (RdpFilter, GdpFilter, ScheduleFilter, NoBudget)}
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind not in kinds:
        raise BadInput(f"filter must be one of {', '.join(kinds)}, not {kind!r}.")
    try:
        return kinds[kind].from_json(data)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BadInput(f"The stored {kind} filter is incomplete ({error!r}); take an untouched copy.") from error
