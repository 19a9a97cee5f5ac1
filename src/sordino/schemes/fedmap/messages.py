"""FedMAP's tasks and reports as plain data: what a client may spend and keeps, and what it says afterwards.

Everything in them is released or public; see `sordino.schemes.fedmap.client`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sordino.errors import BadInput
from sordino.plain import Json, Plain
from sordino.schemes.fedmap.client import ClientState, ClientTask, Report
from sordino.schemes.fedmap.published import RawReport

Parts = tuple[Json, dict[str, np.ndarray]]
_SUMS = ("bound", "unspent", "granted", "spent", "turns")


def task_to_plain(task: ClientTask) -> Parts:
    own, arrays = state_to_plain(task.own)
    said = {
        "client": task.client,
        "round_budget": task.round_budget,
        "later": task.later,
        "turns": task.turns,
        "own": own,
    }
    return said, arrays


def task_from_plain(said: Plain, arrays: Mapping[str, np.ndarray]) -> ClientTask:
    try:
        own = state_from_plain(said["own"], arrays)
        return ClientTask(
            int(said["client"]), float(said["round_budget"]), float(said["later"]), int(said["turns"]), own
        )
    except (KeyError, TypeError, ValueError):
        raise BadInput("a task cannot be read: both sides need the same version.") from None


def report_to_plain(report: Report | RawReport) -> Parts:
    """A client's report as plain data and arrays."""
    own, arrays = state_to_plain(report.own)
    said: dict[str, object] = {"client": report.client, "own": own}
    if isinstance(report, Report):
        said |= {"bounds": list(report.bounds), "multipliers": list(report.multipliers)}
    else:
        said |= {"weight": report.weight, "sigma": report.sigma, "bound": report.bound}
        said |= {"multiplier": report.multiplier}
    return said, arrays


def report_from_plain(said: Plain, arrays: Mapping[str, np.ndarray]) -> Report | RawReport:
    try:
        client, own = int(said["client"]), state_from_plain(said["own"], arrays)
        if "sigma" in said:
            numbers = (float(said[name]) for name in ("sigma", "bound", "multiplier"))
            return RawReport(client, own, int(said["weight"]), *numbers)
        return Report(client, own, tuple(map(float, said["bounds"])), tuple(map(float, said["multipliers"])))
    except (KeyError, TypeError, ValueError):
        raise BadInput("a report cannot be read: both sides need the same version.") from None


def state_to_plain(own: ClientState) -> Parts:
    said = {name: getattr(own, name) for name in _SUMS} | {"width": own.rows.shape[1]}
    arrays = {"own.net": own.net.astype(np.float32), "own.rows": own.rows.astype(np.float32).reshape(-1)}
    return said, {name: array for name, array in arrays.items() if array.size}


def state_from_plain(said: Plain, arrays: Mapping[str, np.ndarray]) -> ClientState:
    """The state that `state_to_plain` described."""
    none = np.zeros(0, np.float32)
    rows = arrays.get("own.rows", none).reshape(-1, int(said["width"]))
    sums = {name: (int if name == "turns" else float)(said[name]) for name in _SUMS}
    return ClientState(arrays.get("own.net", none), rows, **sums)  # type: ignore[arg-type]
