"""What is checked: every method in every unit, towards every observer, under every sampling that it supports.

Every case has the same budget, epsilon 2 at a delta of 0.1. A proof holds at every delta; at a large one few runs
suffice to tell the noise that is due from two thirds of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sordino.audit.script import JUST_WITHIN, Script
from sordino.audit.statistics import NAMES
from sordino.audit.worlds import Stage
from sordino.methods import METHODS, Method
from sordino.plain import Json, Plain
from sordino.plan import Plan
from sordino.privacy.vocabulary import Unit

BASE: Json = {
    "data": "two worlds",
    "clients": 2,
    "method": "dp-fedavg",
    "unit": "client",
    "observer": "public",
    "sampling": "none",
    "epsilon": 2.0,
    "delta": 0.1,
    "rounds": 2,
    "batch_size": 9,
    "lr": 1.0,
    "bound": 1.0,
}

HALF = {"cohort": 1}  # of the two clients
ONE = Script(single=True)
TRAINS = Script(trains=True)
# Where a unit can stand: (unit, observer, sampling, what else the plan needs).
Place = tuple[str, str, str, Json]
PLACES: tuple[Place, ...] = (
    ("client", "public", "none", {}),
    ("client", "public", "poisson", HALF),
    ("client", "public", "fixed", HALF),
    ("client", "secagg-server", "fixed", {}),
    ("client", "server", "fixed", {}),
    ("example", "public", "none", {}),
    ("example", "public", "poisson", {"batch_size": 1}),
    ("example", "secagg-server", "none", {}),
    ("example", "secagg-server", "poisson", {"batch_size": 1}),
    ("example", "server", "none", {"clients": 1, "rounds": 1, "local_epochs": 2}),
    ("example", "server", "poisson", {"clients": 1, "rounds": 1, "batch_size": 1}),
)


IN_TURNS: Json = {"sampling": "poisson", "cohort": 1, "rounds": 4, "options": {"bands": 2}}
EPOCHS = {"method": "noise-gamma", "observer": "server", "sampling": "fixed", "local_epochs": 2}


@dataclass(frozen=True)
class Case:
    """A plan, how the target behaves in it, and which statistics the observer may use (None: all)."""

    settings: Plain = field(default_factory=dict)
    script: Script = Script()
    resumes: bool = False
    dimension: int = 16
    only: tuple[str, ...] | None = None
    note: str = ""

    def plan(self) -> Plan:
        """The plan of this case: the common settings, and those that are its own."""
        return Plan(**(BASE | dict(self.settings)))

    def stage(self) -> Stage:
        """The stage on which the two worlds of this case are played."""
        return Stage(self.plan(), self.script, self.dimension, self.resumes)

    @property
    def name(self) -> str:
        """The settings that tell this case from others, in words."""
        plan = {**BASE, **self.settings}
        method = plan["method"]
        words = [
            method.name if isinstance(method, Method) else method,
            plan["unit"],
            plan["observer"],
            plan["sampling"],
        ]
        words += [str(plan[key]) for key in ("relation", "mechanism") if key in self.settings]
        words += ["as published"] if plan.get("variant") == "published" else []
        return ", ".join(words + ([self.note] if self.note else []))

    @property
    def statistics(self) -> list[int]:
        """Which statistics an attack may choose from, as columns."""
        return [i for i, name in enumerate(NAMES) if self.only is None or name in self.only]


def private_methods() -> list[Method]:
    """The methods whose guarantee the suite must find to hold."""
    return [method for method in METHODS.values() if method.private]


def places(method: Method) -> list[Place]:
    """Where the method can run."""
    return [place for place in PLACES if place[0] in method.units and place[1] in method.observers]


def certified(small: bool = False) -> list[Case]:
    """Every method in every place. The small form goes round the places, so that each method is seen in both units."""
    methods = private_methods()
    if not small:
        everywhere = [_case(method, place) for method in methods for place in places(method)]
        return everywhere + list(_more())
    chosen = []
    for i, method in enumerate(methods):
        for unit in method.units:
            there = [place for place in places(method) if place[0] == unit]
            chosen.append(_case(method, there[i % len(there)]))
    return chosen + list(_more())[:12]


def _case(method: Method, place: Place, note: str = "", **more: Any) -> Case:
    unit, observer, sampling, extra = place
    return Case(
        {"method": method.name, "unit": unit, "observer": observer, "sampling": sampling, **extra, **more}, note=note
    )


def _more() -> Iterator[Case]:
    """What the table of places leaves out: other relations, Laplace noise, targets within the bound, resumed runs."""
    yield Case({"mechanism": "laplace"}, ONE)
    yield Case({"sampling": "poisson", "relation": "replace-one", **HALF})
    yield Case({"method": "quantile", "options": {"share": 0.9}}, Script(length=JUST_WITHIN), note="within the bound")
    yield Case({"method": "adact", "options": {"share": 0.9, "opening": 0.9}}, note="mostly histogram")
    yield Case({"method": "adact", "options": {"tau": 0.5, "share": 0.9, "opening": 0.9}}, note="the paper's quantile")
    yield Case(resumes=True, note="resumed")
    yield Case({"unit": "example", "mechanism": "laplace"}, ONE)
    yield Case({"method": "dp-bandmf", **IN_TURNS}, Script(turns=False), note="in turns")
    yield Case(EPOCHS, note="released by epoch")
    yield Case(EPOCHS | {"mechanism": "laplace"}, ONE, note="released by epoch")
    yield Case({"method": "fed-dpa", "observer": "server", "sampling": "fixed"}, TRAINS, note="masks and all")
    yield Case({"method": "fed-dpa", "relation": "replace-one"}, TRAINS, note="a neighbour with another mask")
    yield Case({"method": "fed-dpa", "observer": "secagg-server", "sampling": "fixed"}, TRAINS, note="masks and all")
    yield Case({"method": "fed-dpa"}, TRAINS, note="masks and all")
    yield Case({"relation": "replace-one"})
    yield Case({"method": "quantile", "relation": "replace-one", "options": {"share": 0.5}})
    yield Case({"unit": "example", "relation": "replace-one"})
    yield Case({"mechanism": "laplace", "sampling": "poisson", **HALF}, ONE)
    yield Case({"method": "noise-gamma", "mechanism": "laplace"}, ONE)
    yield Case({"method": "dp-fedamvc", "mechanism": "laplace"}, ONE)
    yield Case({"method": "adact", "options": {"previous": 1, "share": 0.5}}, note="bits of the rounds before")
    yield Case(
        {"method": "quantile", "observer": "server", "sampling": "fixed"},
        Script(length=JUST_WITHIN),
        note="within the bound",
    )
    yield Case({"method": "dp-fedagnc", "options": {"share": 0.9}}, note="mostly the mean norm")
    for method in private_methods():
        if Unit.CLIENT not in method.units:
            continue
        for settings in ({}, {"unit": "example"})[: len(method.units)]:
            plan = Case({"method": method.name, "variant": "published", **settings}).plan()
            if method.published is not None and method.provable(plan):
                yield Case({"method": method.name, "variant": "published", **settings})


# Methods as printed, on federations built to show what their papers' accounting leaves out.
PUBLISHED = (
    Case({"method": "adact", "variant": "published"}, note="norms and bound seen"),
    Case({"method": "adact", "variant": "published"}, only=("energy, bound unknown",), note="models alone seen"),
    Case({"method": "dp-fedacn", "variant": "published"}, note="bits and bound seen"),
    Case({"method": "dp-fedacn", "variant": "published"}, only=("energy, bound unknown",), note="models alone seen"),
    Case({"method": "dp-fedagnc", "variant": "published"}, only=("energy, bound unknown",), note="models alone seen"),
    Case({"method": "geyer", "variant": "published"}, only=("energy, bound unknown",), note="models alone seen"),
    Case({"method": "noise-gamma", "variant": "published", "mechanism": "laplace"}, dimension=64),
)
