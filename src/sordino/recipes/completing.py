"""From what was given to a whole plan."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from sordino.errors import one_of, positive
from sordino.methods import method
from sordino.models import build, paper_network
from sordino.plain import Json, Plain
from sordino.plan import Plan
from sordino.preparation import FEATURES, Preparation, preparation_from
from sordino.privacy.vocabulary import Observer, Unit
from sordino.recipes import client_unit, featured_plan, frontier, tables
from sordino.recipes.choice import Choice
from sordino.recipes.facts import PublicFacts
from sordino.recipes.featured_plan import DELTA, EPSILON, FOUR
from sordino.recipes.networks import fan_in, model_for
from sordino.recipes.settings import BY_SCHEME, Asked, featured_rows
from sordino.schemes import select

if TYPE_CHECKING:
    from torch import nn

AUTO, NONE = "auto", "none"  # auto, the default: the recipe that was measured to win on such data, where one was
FEW = "so few clients cannot be asked along which directions they vary"


def resolve(
    given: Plain, facts: PublicFacts, network: nn.Module | None = None, pin: bool = True
) -> tuple[Plan, tuple[Choice, ...]]:
    """The plan, and what was chosen for it. Without `pin` features have no digest, which takes time to make: for forecasts."""
    settings, choices = complete(given, facts, network, pin)
    return Plan.from_json(settings), choices


def complete(
    given: Plain, facts: PublicFacts | None, network: nn.Module | None = None, pin: bool = True
) -> tuple[Json, tuple[Choice, ...]]:
    """The settings of a plan: what was given, over the method's own defaults, over what public facts suggest.

    Without facts the network stays open, and what would follow from them stays at the plan's own defaults. `recipe` names a
    recipe whose settings are taken instead.
    """
    recipe = given.get("recipe") or (AUTO if network is None else NONE)
    one_of((AUTO, frontier.NAME, NONE), recipe=recipe)
    featured = recipe == AUTO and featured_plan.wins(given, facts)
    against = featured_plan.against(given, facts) if featured and facts is not None else []
    if recipe == frontier.NAME or featured and not against:
        return featured_plan.settings(given, facts, pin)
    given = {name: value for name, value in given.items() if name != "recipe"}
    chosen = method(given.get("method", "adact"))
    published = given.get("variant") == "published"
    own = {**chosen.defaults, **(chosen.published_defaults(given) if published else {})}
    settings: Json = {**own, **given}
    if facts is not None:
        settings.setdefault("clients", facts.clients)
    unit, observer = (
        Unit(settings.get("unit", Unit.EXAMPLE)),
        Observer(settings.get("observer", Observer.SECAGG_SERVER)),
    )
    choices: list[Choice] = []

    def take(choice: Choice) -> None:
        if settings.get(choice.name) is None:
            settings[choice.name] = choice.value
            choices.append(choice)

    if chosen.private and settings.get("epsilon") is None and settings.get("multiplier") is None:
        take(FOUR)
    if unit is Unit.CLIENT and observer is not Observer.PUBLIC:
        take(Choice("sampling", "fixed", "who sees the messages sees who takes part: coins would gain nothing"))
    if facts is None:
        return settings, tuple(choices)
    if settings.get("epsilon") is not None:
        positive(epsilon=settings["epsilon"])
    scheme = select(chosen, unit, observer).name
    whole = scheme == "client" and not published
    if whole and featured and not _against_features(given):
        delta, unscaled = float(settings.get("delta") or DELTA), featured_plan.unscaled(facts, settings)
        found = client_unit.features(facts, float(settings["epsilon"]), delta, unscaled, pin)
        against = [] if found else [FEW]
        for choice in found:
            take(choice)
    if chosen.private and chosen.scheme is None and not published and _unlike_columns(facts, settings):
        take(_scaled(facts, settings, unit, observer))
    signals = len(facts.shape) == 2 or facts.table
    if settings.get("prepare"):
        facts = facts.prepared(_preparation(settings["prepare"]))
    epsilon = float(settings.get("epsilon") or EPSILON)
    if network is None:
        if settings.get("model") == "auto":
            settings.pop("model")
        printed = paper_network(chosen.name, str(given.get("data", "digits"))) if published else None
        if printed is not None:
            take(Choice("model", printed, "the network that the paper trains on this data"))
        if featured_rows(settings):
            take(Choice("model", "head", "rows of length 1 need a linear head only"))
        suited = _suited(facts, epsilon if chosen.private else None, whole)
        left = f"; features are left out, since {_left_out(against)}" if against else ""
        take(replace(suited, reason=suited.reason + left))
        network = build(settings["model"], facts.shape, facts.classes)
    optimizer = str(settings.get("server_optimizer") or "adam")
    weights = [(p.numel(), p.dim()) for p in network.parameters()]
    size, linear = sum(numbers for numbers, _ in weights), client_unit.is_linear(axes for _, axes in weights)
    asked = Asked(facts, chosen, published, epsilon, fan_in(network), optimizer, size, linear, settings, signals)
    for choice in BY_SCHEME[scheme](asked):
        take(choice)
    return settings, tuple(choices)


def _left_out(against: list[str]) -> str:
    """Why features are: what was given against them."""
    if against == [FEW]:
        return FEW
    return f"{' and '.join(against)} {'was' if len(against) == 1 and against != ['options'] else 'were'} given"


def network_of(plan: Plan, facts: PublicFacts) -> str:
    """The network of a plan that leaves it open, as the recipe would choose it."""
    if plan.model != AUTO:
        return plan.model
    if plan.preparation is not None and plan.preparation.kind in FEATURES:
        return "head"
    whole = plan.scheme.name == "client" and plan.variant != "published"
    epsilon = (plan.epsilon or EPSILON) if plan.method_spec.private else None
    return str(_suited(facts.prepared(plan.preparation), epsilon, whole).value)


def _suited(facts: PublicFacts, epsilon: float | None, whole: bool) -> Choice:
    """The network that suits the data; `whole`: clients are the units. `epsilon` None: no privacy."""
    return client_unit.model(facts, epsilon) if whole else model_for(facts, epsilon)


def _against_features(given: Plain) -> bool:
    """Whether something was given that features in the client unit cannot keep; other methods and samplings they can."""
    network = given.get("model") not in (None, AUTO, "head") or given.get("mechanism") not in (None, "gaussian")
    other = given.get("prepare") is not None and not featured_rows(given)
    return network or other or given.get("multiplier") is not None


def _unlike_columns(facts: PublicFacts, settings: Plain) -> bool:
    """A table that no schema scales."""
    plain = settings.get("mechanism", "gaussian") == "gaussian" and not settings.get("canaries")
    return facts.table and featured_plan.unscaled(facts, settings) > 0 and plain


def _scaled(facts: PublicFacts, settings: Plain, unit: Unit, observer: Observer) -> Choice:
    """The scale of columns, found with as much of the budget as few units ask for."""
    units: float = facts.clients if unit is Unit.CLIENT else facts.records
    if observer is Observer.SERVER:  # each client adds all of the noise
        units /= math.sqrt(facts.clients)
    epsilon, delta = float(settings.get("epsilon") or EPSILON), float(settings.get("delta") or DELTA)
    share = tables.scale_share(featured_plan.unscaled(facts, settings), units, epsilon, delta)
    value: str | Json = "standard" if share == tables.LEAST_SHARE else {"kind": "standard", "share": share}
    return Choice(
        "prepare", value, f"columns have units of their own; {100 * share:.2g}% of the budget finds their scale"
    )


def _preparation(asked: Plain | str) -> Preparation | None:
    if asked == "none":
        return None
    return preparation_from({"kind": asked} if isinstance(asked, str) else asked)
