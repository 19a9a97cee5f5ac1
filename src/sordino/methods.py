"""The table of methods: a published name, and what stands behind it.

A method is a rule, a mechanism and defaults under the name of its paper. Each has a `certified` variant, made private with
the whole budget accounted, and a `published` one, as printed. To add a method, write one rule file and add one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sordino.errors import BadInput
from sordino.privacy.words import Unit, Variant
from sordino.rules.base import Rule
from sordino.rules.fixed import Fixed

if TYPE_CHECKING:
    from sordino.plan import Plan

BOTH = (Unit.CLIENT, Unit.EXAMPLE)


@dataclass(frozen=True)
class Setting:
    """The public facts of a run that a rule may be built from."""

    plan: Plan
    sizes: tuple[int, ...]  # length of each parameter tensor, in order
    units: float  # expected number of units in a round

    @property
    def dimension(self) -> int:
        return sum(self.sizes)


@dataclass(frozen=True)
class Method:
    """One line of the table."""

    name: str
    paper: str
    rule: Callable[[Setting], Rule]
    published: Callable[[Setting], Rule] | None = None  # None: the published rule is the certified one
    units: tuple[Unit, ...] = BOTH
    reasons: tuple[str, ...] = ()  # why the published variant is not private; empty if it is
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    published_defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    # Relative multipliers of T rounds, for methods that spend unevenly by a public schedule.
    schedule: Callable[[Plan], list[float]] | None = None
    claim: Callable[[Plan, float], float | None] | None = None  # (plan, multiplier) -> the epsilon the paper would print
    private: bool = True  # False for the non-private baseline

    @property
    def private_as_published(self) -> bool:
        return self.private and not self.reasons

    def build(self, setting: Setting) -> Rule:
        printed = setting.plan.variant == Variant.PUBLISHED and self.published is not None
        return (self.published if printed else self.rule)(setting)  # type: ignore[misc]

    def reasons_for(self, variant: Variant) -> tuple[str, ...]:
        return self.reasons if variant == Variant.PUBLISHED or not self.private else ()


def fixed(setting: Setting) -> Rule:
    return Fixed(setting.plan.bound)


TABLE = (
    Method(
        "fedavg",
        "McMahan et al. 2017, Communication-efficient learning of deep networks from decentralized data",
        fixed,
        reasons=("Updates are averaged without clipping or noise.",),
        private=False,
    ),
    Method(
        "dp-fedavg",
        "McMahan et al. 2018, Learning differentially private recurrent language models",
        fixed,
    ),
)

METHODS: Mapping[str, Method] = MappingProxyType({m.name: m for m in TABLE})


def method(name: str) -> Method:
    """Look a method up by its published name."""
    try:
        return METHODS[name]
    except KeyError:
        raise BadInput(f"method {name!r} is not known; choose one of {', '.join(METHODS)}.") from None
