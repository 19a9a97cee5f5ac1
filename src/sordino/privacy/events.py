"""What was released, as data: builders of dp-accounting events, and a stable JSON form of them.

Accountants, the filter and the ledger see nothing else of a round than these objects. A multiplier is always the
standard deviation of the noise (the scale, for Laplace) divided by the bound of one contribution; what a relation makes
of it is for the accountants to say.

The events are dp-accounting's own classes, but importing that package costs a second, nearly all of it for scipy
modules that describing an event does not need. So the one small file that defines the classes is loaded by itself,
under its own name; if the whole package is imported later, it finds the same classes in place.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from sordino import errors
from sordino.errors import BadInput

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent as Event
else:
    Event = object  # signatures can name it without the import

_WITHOUT_NOISE = "a value was released without noise"


@cache
def types() -> ModuleType:
    """The module ``dp_accounting.dp_event``, without the rest of its package."""
    name = "dp_accounting.dp_event"
    if name in sys.modules:
        return sys.modules[name]
    package = importlib.util.find_spec("dp_accounting")  # finds it, does not run it
    for folder in (package.submodule_search_locations or ()) if package else ():
        file = Path(folder) / "dp_event.py"
        spec = importlib.util.spec_from_file_location(name, file) if file.is_file() else None
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            try:
                spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[name]
                raise
            return module
    return importlib.import_module(name)


@cache
def _nonprivate_class() -> type:
    import attr

    @attr.s(frozen=True, auto_attribs=True)
    class NonPrivate(types().NonPrivateDpEvent):  # type: ignore[misc]
        """A value left without noise, and why. Every accountant answers infinity."""

        reason: str = ""

    return NonPrivate


# --- builders ---------------------------------------------------------------------------------------------------------


def gaussian(multiplier: float) -> Event:
    """A sum released with Gaussian noise of standard deviation `multiplier` times the L2 bound."""
    errors.positive(multiplier=multiplier)
    return types().GaussianDpEvent(float(multiplier))


def joint(*multipliers: float) -> Event:
    """Several Gaussian queries on one cohort: one Gaussian event, 1/z^2 adding up (Andrew et al. 2021, theorem 1).

    Later queries may depend on earlier noisy answers. Sampling is put around the joint event, never around its parts:
    the parts share the cohort.

    >>> round(joint(3.0, 4.0).noise_multiplier, 12)
    2.4
    """
    if not multipliers:
        raise BadInput("A joint event needs at least one multiplier; none was given.")
    for multiplier in multipliers:
        errors.positive(multiplier=multiplier)
    return gaussian(1 / math.hypot(*(1 / z for z in multipliers)))


def laplace(multiplier: float) -> Event:
    """A sum released with Laplace noise of scale `multiplier` times the L1 bound."""
    errors.positive(multiplier=multiplier)
    return types().LaplaceDpEvent(float(multiplier))


def zcdp(rho: float, xi: float = 0.0) -> Event:
    """RDP at most `xi + rho * order` at every order, for one contribution of zero-out sensitivity (discrete noises)."""
    errors.at_least(0.0, rho=rho, xi=xi)
    return types().ZCDpEvent(float(rho), float(xi))


def poisson(rate: float, event: Event) -> Event:
    """`event` on a cohort that each unit enters by its own secret coin."""
    errors.rate(rate=rate)
    return types().PoissonSampledDpEvent(float(rate), event)


def without_replacement(population: int, cohort: int, event: Event) -> Event:
    """`event` on a secret cohort of exactly `cohort` out of `population` units."""
    errors.whole(1, population=population, cohort=cohort)
    if cohort > population:
        raise BadInput(f"cohort must be at most the population of {population}, not {cohort}.")
    return types().SampledWithoutReplacementDpEvent(population, cohort, event)


def repeated(event: Event, count: int) -> Event:
    """`event`, `count` times over."""
    errors.whole(1, count=count)
    return event if count == 1 else types().SelfComposedDpEvent(event, count)


def composed(events: Iterable[Event]) -> Event:
    """All of `events`, equal neighbours folded; a single one stands for itself."""
    folded: list[Event] = []
    runs: list[int] = []
    for event in events:
        if folded and folded[-1] == event:
            runs[-1] += 1
        else:
            folded.append(event)
            runs.append(1)
    if not folded:
        return nothing()
    parts = [repeated(event, count) for event, count in zip(folded, runs)]
    return parts[0] if len(parts) == 1 else types().ComposedDpEvent(parts)


def nothing() -> Event:
    """Nothing that depends on the data was released."""
    return types().NoOpDpEvent()


def nonprivate(reason: str) -> Event:
    """A value left without noise; `reason` is printed in the statement and epsilon is infinite from here on."""
    if not reason:
        raise BadInput("A non-private event needs a reason that the statement can print; none was given.")
    return _nonprivate_class()(reason)


def parts(event: Event) -> list[Event]:
    """The events that `event` samples from, repeats or puts together; none if it is a release by itself."""
    together, one = (
        getattr(event, "events", None),
        getattr(event, "event", None),
    )  # of dp-accounting's classes, all of them
    return list(together) if together else [] if one is None else [one]


def _reason(event: Event) -> str:
    return getattr(event, "reason", "") or _WITHOUT_NOISE  # dp-accounting's own class has none


def reasons(event: Event) -> list[str]:
    """Why `event` is not private: the reasons of every non-private part, each once, in order."""
    t = types()
    found: list[str] = []
    if isinstance(event, t.NonPrivateDpEvent):
        found.append(_reason(event))
    elif isinstance(event, (t.GaussianDpEvent, t.LaplaceDpEvent)) and event.noise_multiplier == 0:
        found.append(_WITHOUT_NOISE)
    for part in parts(event):
        found.extend(reasons(part))
    return list(dict.fromkeys(found))


# --- JSON -------------------------------------------------------------------------------------------------------------

# kind -> (class of dp_event, {name in JSON: attribute})
_FORM: dict[str, tuple[str, dict[str, str]]] = {
    "nothing": ("NoOpDpEvent", {}),
    "gaussian": ("GaussianDpEvent", {"multiplier": "noise_multiplier"}),
    "laplace": ("LaplaceDpEvent", {"multiplier": "noise_multiplier"}),
    "zcdp": ("ZCDpEvent", {"rho": "rho", "xi": "xi"}),
    "poisson": ("PoissonSampledDpEvent", {"rate": "sampling_probability", "event": "event"}),
    "without-replacement": (
        "SampledWithoutReplacementDpEvent",
        {"population": "source_dataset_size", "cohort": "sample_size", "event": "event"},
    ),
    "repeated": ("SelfComposedDpEvent", {"count": "count", "event": "event"}),
    "composed": ("ComposedDpEvent", {"events": "events"}),
}

_BUILD = {
    "nothing": lambda: nothing(),
    "gaussian": gaussian,
    "laplace": laplace,
    "zcdp": zcdp,
    "poisson": poisson,
    "without-replacement": without_replacement,
    "repeated": lambda count, event: types().SelfComposedDpEvent(event, _checked_count(count)),
    "composed": lambda events: types().ComposedDpEvent(list(events)),
    "nonprivate": nonprivate,
}


def _checked_count(count: int) -> int:
    errors.whole(1, count=count)
    return count


def to_json(event: Event) -> dict[str, object]:
    """`event` as plain data with a fixed order of keys, fit to be hashed and to be read by people."""
    if isinstance(event, types().NonPrivateDpEvent):
        return {"kind": "nonprivate", "reason": _reason(event)}
    for kind, (name, fields) in _FORM.items():
        if type(event).__name__ == name:
            row: dict[str, object] = {"kind": kind}
            for key, attribute in fields.items():
                value = getattr(event, attribute)
                if key == "event":
                    value = to_json(value)
                elif key == "events":
                    value = [to_json(e) for e in value]
                row[key] = value
            return row
    raise BadInput(f"An event of type {type(event).__name__} has no JSON form here; use the builders of this module.")


def from_json(row: Mapping[str, object]) -> Event:
    """The event that `to_json` wrote; anything else is refused with what is wrong."""
    if not isinstance(row, Mapping) or row.get("kind") not in _BUILD:
        raise BadInput(f"An event must be an object whose kind is one of {', '.join(_BUILD)}, not {row!r}.")
    kind = str(row["kind"])
    wanted = ["reason"] if kind == "nonprivate" else list(_FORM[kind][1])
    given = {key: value for key, value in row.items() if key != "kind"}
    if sorted(given) != sorted(wanted):
        raise BadInput(f"An event of kind {kind} has the fields {wanted}, not {sorted(given)}.")
    if "event" in given:
        given["event"] = from_json(cast(Mapping[str, object], given["event"]))
    if "events" in given:
        if not isinstance(given["events"], list):
            raise BadInput(f"The events of a composed event must be a list, not {given['events']!r}.")
        given["events"] = [from_json(e) for e in given["events"]]
    return _BUILD[kind](**given)  # type: ignore[operator]
