"""What a method is: a rule, a mechanism and defaults under the name of its paper, in two variants.

`certified` is made private, with the whole budget accounted; `published` is as printed. `paper_setting` is the setting that the
paper trains in: the defaults of a published run, and a run that departs from it says where. `sordino.methods` has the table.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from sordino import defences
from sordino.errors import BadInput, one_of
from sordino.privacy.vocabulary import Observer, Unit, Variant
from sordino.rules.base import Rule
from sordino.schemes.base import Scheme

if TYPE_CHECKING:
    from sordino.plan import Plan

BOTH = (Unit.CLIENT, Unit.EXAMPLE)
GAUSSIAN = ("gaussian",)
# Of a paper's setting, what also means something in another unit than the paper's.
IN_ANY_UNIT = ("unit", "observer", "mechanism", "server_optimizer", "server_lr", "lr_schedule", "steps", "average")


@dataclass(frozen=True)
class RuleContext:
    """The public facts of a run that a rule may be built from."""

    plan: Plan
    sizes: tuple[int, ...]  # length of each parameter tensor, in order
    units: float  # expected number of units in a round
    multiplier: float | None = None  # of a round, where it was calibrated and is not the plan's

    @property
    def dimension(self) -> int:
        """How many parameters are trained."""
        return sum(self.sizes)


@dataclass(frozen=True)
class Method:
    """One line of the table.

    `rule` and `published` take a setting; their keyword arguments are the options that a plan may give, with defaults.
    """

    name: str
    paper: str
    rule: Callable[..., Rule]
    published: Callable[..., Rule] | None = None  # None: the published rule is the certified one
    units: tuple[Unit, ...] = BOTH
    observers: tuple[Observer, ...] = tuple(Observer)
    published_observers: tuple[Observer, ...] | None = None  # None: those of the certified variant
    # Why the epsilon that the paper prints does not hold; empty if it does.
    reasons: tuple[str, ...] = ()
    # The reasons as they are true of one published run, whose unit, noise or sampling may not be the paper's; None: `reasons`.
    reasons_of: Callable[[Plan], tuple[str, ...]] | None = None
    source: str = "the paper"  # where the setting was read
    # What of the source was read, where that is less than its text: what is published here is then a guess, and says so.
    guess: str = ""
    defaults: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    # Settings that the paper fixes, each with the values that it uses; the first is the default of the published variant.
    paper_setting: Mapping[str, tuple[object, ...]] = field(default_factory=lambda: MappingProxyType({}))
    # Where every published run here differs from the paper, as far as it is true of a plan.
    differs: Callable[[Plan], tuple[str, ...]] = lambda plan: ()
    # Relative multipliers of T rounds, for methods that spend unevenly by a public schedule.
    schedule: Callable[[Plan], list[float]] | None = None
    # (plan, multiplier[, sampling rate, releases]) -> the epsilon that the paper would print; None: the proven one.
    claim: Callable[..., float | None] | None = None
    # Whether, for this plan, the reasons only concern the printed epsilon, and a larger one can be proven all the same.
    provable_as_published: Callable[[Plan], bool] = lambda plan: False
    # (plan, multiplier) -> the standard deviation of published noise that does not follow the bound; None: it follows.
    sigma: Callable[[Plan, float], float] | None = None
    mechanisms: tuple[str, ...] = GAUSSIAN
    private: bool = True  # False for the non-private baseline
    # A scheme of the method's own; None: by unit and observer (`schemes.select`).
    scheme: type[Scheme] | None = None
    # A scheme of the method's own for some plans; None for a plan: as above.
    own_scheme: Callable[[Plan], type[Scheme] | None] = lambda plan: None

    @property
    def private_as_published(self) -> bool | None:
        """None: the text was not read, so nobody here can tell."""
        if self.guess:
            return None
        return self.private and not self.reasons

    def published_defaults(self, given: Mapping[str, object]) -> Mapping[str, object]:
        """The paper's setting, for a plan in which these are given; of another unit only what does not depend on the unit."""
        first = {name: values[0] for name, values in self.paper_setting.items()}
        if given.get("unit", first.get("unit")) != first.get("unit"):
            first = {name: value for name, value in first.items() if name not in ("observer", "sampling", "weights")}
        return first

    def departures(self, plan: Plan) -> tuple[str, ...]:
        """Where a published run is not the paper's: what no run here does, and what this one is set to."""
        if plan.variant != Variant.PUBLISHED and self.private:
            return ()
        settings = self.paper_setting
        if "unit" in settings and plan.unit not in settings["unit"]:
            settings = {name: settings[name] for name in IN_ANY_UNIT if name in settings}
        elif plan.cohort_size == plan.clients and (plan.unit == Unit.CLIENT or "fixed" in settings.get("sampling", ())):
            # All clients take part, however they are drawn.
            settings = {name: values for name, values in settings.items() if name != "sampling"}
        chosen = {name: getattr(plan, name) for name in settings}
        otherwise = (
            f"{name} is {chosen[name]}; {self.source} has {' or '.join(map(str, values))}."
            for name, values in settings.items()
            if chosen[name] not in values
        )
        return (*self.differs(plan), *otherwise, *self._additions(plan))

    def _additions(self, plan: Plan) -> tuple[str, ...]:
        """What a plan adds that none of the sources has."""
        added = {
            "defence": plan.defence,
            "personal": plan.personal,
            "prepare": plan.prepare.get("kind"),
            "canaries": plan.canaries or None,
        }
        return tuple(f"{name} is {what}; {self.source} has none." for name, what in added.items() if what is not None)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants that the method has."""
        return (Variant.CERTIFIED, Variant.PUBLISHED) if self.private else (Variant.PUBLISHED,)

    def towards(self, variant: Variant) -> tuple[Observer, ...]:
        """The observers that a variant is offered for."""
        printed = variant == Variant.PUBLISHED and self.published_observers is not None
        return self.published_observers or () if printed else self.observers

    @property
    def options(self) -> Mapping[str, float | None]:
        """The options of either variant, with their defaults (None: worked out from the plan)."""
        return {**_keywords(self.published), **_keywords(self.rule)}

    def check(self, plan: Plan) -> None:
        """Refuse options and mechanisms that the method does not have."""
        one_of(self.mechanisms, **{f"mechanism of method {self.name}": plan.mechanism})
        for name, value in plan.options.items():
            if name in defences.own_options(plan):
                continue
            if name not in self.options:
                accepted = f"it has {', '.join(self.options)}" if self.options else "it has none"
                raise BadInput(f"method {self.name} has no option {name!r}; {accepted}{defences.hint(plan, name)}.")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise BadInput(f"option {name} of method {self.name} must be a number, not {value!r}.")

    def build(self, setting: RuleContext) -> Rule:
        """The rule of the plan's variant. Options that only the other variant has are left aside."""
        self.check(setting.plan)
        printed = setting.plan.variant == Variant.PUBLISHED and self.published is not None
        make = self.published if printed else self.rule
        assert make is not None
        return make(setting, **{k: v for k, v in setting.plan.options.items() if k in _keywords(make)})

    def provable(self, plan: Plan) -> bool:
        """Whether an epsilon can be proven for a run of this plan. It may be larger than the one that the paper prints."""
        return self.private and (
            plan.variant == Variant.CERTIFIED or not self.reasons or self.provable_as_published(plan)
        )

    def sigma_in(self, plan: Plan, multiplier: float) -> float | None:
        """The standard deviation of the noise of this plan, where it does not follow the bound."""
        return self.sigma(plan, multiplier) if self.sigma is not None and plan.published else None

    def guess_in(self, plan: Plan) -> str:
        """What of this plan's published variant is a guess, since the original was not read."""
        return self.guess if plan.variant == Variant.PUBLISHED else ""

    def reasons_in(self, plan: Plan) -> tuple[str, ...]:
        """Why a run of this plan is not private: reasons that are true of it."""
        if plan.variant != Variant.PUBLISHED and self.private:
            return ()
        return self.reasons if self.reasons_of is None else self.reasons_of(plan)


def _keywords(make: Callable[..., Rule] | None) -> dict[str, float | None]:
    if make is None:
        return {}
    found = inspect.signature(make).parameters.values()
    return {p.name: p.default for p in found if p.kind is inspect.Parameter.KEYWORD_ONLY}
