"""The table of methods: a published name, and what stands behind it.

A method is a rule, a mechanism and defaults under the name of its paper. Each has a `certified` variant, made private
with the whole budget accounted, and a `published` one, as printed: `paper_setting` is the setting that the paper trains in, the
defaults of a published run, and a run that departs from it says where. To add a method, write one rule file and add one line here.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from sordino import defences, own_code
from sordino.errors import BadInput, one_of
from sordino.privacy.vocabulary import Observer, Unit, Variant
from sordino.rules import (
    adaclip,
    adact,
    automatic,
    banded,
    claims,
    dp_fedacn,
    dp_fedagnc,
    dp_fedamvc,
    dp_fedddc,
    dp_fedggc,
    fed_dpa,
    fixed,
    geyer,
    noise_gamma,
    quantile,
)
from sordino.rules.base import Rule
from sordino.schemes import epochs, gradient_sum, turns
from sordino.schemes.base import Scheme
from sordino.schemes.fed_dpa import FedDpa
from sordino.schemes.fedmap import rule as fedmap
from sordino.schemes.fedmap.scheme import FedMapScheme

if TYPE_CHECKING:
    from sordino.plan import Plan

BOTH = (Unit.CLIENT, Unit.EXAMPLE)
# The server adds the mean as it is.
PLAIN_STEPS: dict[str, tuple[object, ...]] = {"server_optimizer": ("sgd",), "server_lr": (1.0,)}
# How the papers train. In DP-FedACN's experiments, and AdaCT's, each client clips its whole update and adds its own noise to it.
AT_CLIENTS: MappingProxyType[str, tuple[object, ...]] = MappingProxyType(
    {"unit": ("client",), "observer": ("server",), "sampling": ("fixed",), "weights": ("uniform",)} | PLAIN_STEPS
)
AT_SERVER: MappingProxyType[str, tuple[object, ...]] = MappingProxyType({"unit": ("client",), "observer": ("public",)})
DP_SGD: MappingProxyType[str, tuple[object, ...]] = MappingProxyType(
    {"unit": ("example",), "observer": ("public",), "sampling": ("poisson",)}
)
GAUSSIAN = ("gaussian",)
EITHER = ("gaussian", "laplace")


@dataclass(frozen=True)
class RuleContext:
    """The public facts of a run that a rule may be built from."""

    plan: Plan
    sizes: tuple[int, ...]  # length of each parameter tensor, in order
    units: float  # expected number of units in a round
    multiplier: float | None = None  # of a round, where it was calibrated and is not the plan's

    @property
    def dimension(self) -> int:
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
            settings = {name: settings[name] for name in ("unit", "observer") if name in settings}
        elif plan.cohort_size == plan.clients and (plan.unit == Unit.CLIENT or "fixed" in settings.get("sampling", ())):
            # All clients take part, however they are drawn.
            settings = {name: values for name, values in settings.items() if name != "sampling"}
        chosen = {name: getattr(plan, name) for name in settings}
        otherwise = (
            f"{name} is {chosen[name]}; {self.source} has {' or '.join(map(str, values))}."
            for name, values in settings.items()
            if chosen[name] not in values
        )
        return (*self.differs(plan), *otherwise)

    @property
    def variants(self) -> tuple[Variant, ...]:
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


TABLE = (
    Method(
        "fedavg",
        "McMahan et al. 2017, Communication-efficient learning of deep networks from decentralized data",
        fixed.certified,
        units=(Unit.CLIENT,),
        reasons=("Updates are averaged without clipping or noise.",),
        defaults={"unit": "client", "observer": "public", "sampling": "fixed", "weights": "size"},
        paper_setting={"sampling": ("fixed",), "weights": ("size",), "optimizer": ("sgd",)} | PLAIN_STEPS,
        private=False,
    ),
    Method(
        "dp-fedavg",
        "McMahan et al. 2018, Learning differentially private recurrent language models",
        fixed.certified,
        mechanisms=EITHER,
        paper_setting=AT_SERVER | {"sampling": ("poisson",), "optimizer": ("sgd",), "mechanism": GAUSSIAN},
        differs=fixed.differs,
    ),
    Method(
        "adact",
        "AdaCT-DPFL 2026, Differentially private federated learning with adaptive clipping thresholds",
        adact.certified,
        adact.published,
        reasons=adact.REASONS,
        claim=claims.rdp,
        reasons_of=adact.reasons_of,
        paper_setting=AT_CLIENTS | {"local_epochs": (4, 5)},
    ),
    Method(
        "dp-fedacn",
        "Zhang et al., Exploring the privacy-accuracy trade-off using adaptive gradient clipping in federated learning",
        dp_fedacn.certified,
        dp_fedacn.published,
        reasons=dp_fedacn.REASONS,
        claim=claims.label,
        reasons_of=dp_fedacn.reasons_of,
        paper_setting=AT_CLIENTS,
        own_scheme=gradient_sum.as_published,
    ),
    Method(
        "dp-fedagnc",
        "After van der Veen et al. 2018, Three tools for practical differential privacy",
        dp_fedagnc.certified,
        dp_fedagnc.published,
        reasons=dp_fedagnc.REASONS,
        claim=claims.rdp,
        reasons_of=dp_fedagnc.reasons_of,
        guess=dp_fedagnc.GUESS,
        source="DP-FedACN",
        paper_setting=AT_CLIENTS,
    ),
    Method(
        "dp-fedamvc",
        "After Yu et al. 2018, as described by Zhang et al. (DP-FedACN): linear decay",
        dp_fedamvc.certified,
        mechanisms=EITHER,
        guess=dp_fedamvc.GUESS,
        source="DP-FedACN",
        paper_setting=AT_CLIENTS | {"mechanism": GAUSSIAN},
    ),
    Method(
        "dp-fedddc",
        "Du et al. 2021, Dynamic differential-privacy preserving SGD",
        dp_fedddc.certified,
        reasons=dp_fedddc.REASONS,
        schedule=dp_fedddc.schedule,
        claim=dp_fedddc.claim,
        provable_as_published=lambda plan: True,
        paper_setting=DP_SGD,
    ),
    Method(
        "dp-fedggc",
        "After Liu et al. 2022, Differentially private learning with grouped gradient clipping",
        dp_fedggc.certified,
        dp_fedggc.published,
        guess=dp_fedggc.GUESS,
        source="DP-FedACN",
        paper_setting=AT_CLIENTS,
    ),
    Method(
        "noise-gamma",
        "Sartaj et al., Federated learning with differential privacy: decreasing noise mechanism",
        noise_gamma.certified,
        noise_gamma.published,
        reasons=noise_gamma.REASONS,
        claim=noise_gamma.claim,
        provable_as_published=lambda plan: plan.mechanism == "gaussian",
        mechanisms=EITHER,
        reasons_of=noise_gamma.reasons_of,
        paper_setting=AT_CLIENTS | {"bound": (0.1,)},
        own_scheme=epochs.own_scheme,
    ),
    Method(
        "quantile",
        "Andrew et al. 2021, Differentially private learning with adaptive clipping",
        quantile.certified,
        quantile.published,
        paper_setting=AT_SERVER | {"sampling": ("poisson",), "weights": ("uniform",)},
        differs=quantile.differs,
    ),
    Method(
        "geyer",
        "Geyer et al. 2017, Differentially private federated learning: a client level perspective",
        geyer.certified,
        geyer.published,
        reasons=geyer.REASONS,
        claim=claims.moments,
        reasons_of=geyer.reasons_of,
        paper_setting=AT_SERVER | {"sampling": ("fixed",), "weights": ("uniform",)} | PLAIN_STEPS,
        differs=geyer.differs,
    ),
    Method(
        "adaclip",
        "Pichapati et al. 2019, AdaCliP: adaptive clipping for private SGD",
        adaclip.certified,
        adaclip.published,
        paper_setting=DP_SGD,
    ),
    Method(
        "automatic",
        "Bu et al. 2023, Automatic clipping: differentially private deep learning made easier and stronger",
        automatic.certified,
        paper_setting=DP_SGD,
    ),
    Method(
        "dp-bandmf",
        "Choquette-Choo et al. 2023, (Amplified) banded matrix factorization: a unified approach to private training",
        banded.certified,
        units=(Unit.CLIENT,),
        observers=(Observer.PUBLIC,),
        defaults={
            "unit": "client",
            "observer": "public",
            "sampling": "poisson",
            "server_optimizer": "momentum",
            "lr_schedule": "constant",
        },  # fmt: skip
        paper_setting=AT_SERVER | {"sampling": ("poisson",)},
        differs=banded.differs,
        own_scheme=turns.own_scheme,
    ),
    Method(
        "fed-dpa",
        "Yang, Huang and Ye 2023, Dynamic personalized federated learning with adaptive differential privacy",
        fed_dpa.certified,
        units=(Unit.CLIENT,),
        published_observers=(Observer.PUBLIC, Observer.SECAGG_SERVER),
        reasons=fed_dpa.REASONS,
        reasons_of=fed_dpa.reasons_of,
        defaults={"unit": "client", **{name: values[0] for name, values in fed_dpa.PUBLIC_CODE.items()}},
        source="the public code",
        paper_setting=fed_dpa.PUBLIC_CODE,
        differs=fed_dpa.differs,
        schedule=fed_dpa.schedule,
        claim=claims.rdp,
        provable_as_published=lambda plan: True,
        own_scheme=lambda plan: FedDpa,
    ),
    Method(
        "fedmap",
        "FedMAP, Federated meta-driven adaptive privacy (under review, ICLR 2026)",
        fedmap.certified,
        fedmap.published,
        units=(Unit.EXAMPLE,),
        observers=(Observer.SERVER, Observer.SECAGG_SERVER),
        published_observers=(Observer.SERVER,),
        reasons=fedmap.REASONS,
        defaults={"unit": "example", "observer": "server"},
        reasons_of=fedmap.reasons_of,
        paper_setting={
            "unit": ("example",),
            "observer": ("server",),
            "sampling": ("fixed",),
            "local_epochs": (3, 8, 5),
            "batch_size": (64, 4),
            "lr": (0.01, 0.001, 0.1),
            "optimizer": ("sgd",),
        },
        differs=fedmap.differs,
        scheme=FedMapScheme,
    ),
)

METHODS: Mapping[str, Method] = MappingProxyType({m.name: m for m in TABLE})
_OWN: dict[str, Method] = {}  # methods that a program gave to a plan as objects


def method(name: str) -> Method:
    """Look a method up by its published name, or load one of your own by ``module:object``."""
    if name in METHODS:
        return METHODS[name]
    if name in _OWN:
        return _OWN[name]
    if own_code.is_reference(name):
        found = own_code.load(name, "method")
        if not isinstance(found, Method):
            raise BadInput(f"method {name!r} is a {type(found).__name__}; it must be a sordino.Method.")
        return found
    raise BadInput(
        f"method {name!r} is not known; choose one of {', '.join(METHODS)}, or name your own as module:object."
    )


def adopt(given: Method) -> str:
    """Make a method of one's own known to this process; its name, for a plan."""
    if given.name in METHODS and METHODS[given.name] is not given:
        raise BadInput(f"there is a method {given.name!r} already; give yours another name.")
    if given.name not in METHODS:
        _OWN[given.name] = given
    return given.name
