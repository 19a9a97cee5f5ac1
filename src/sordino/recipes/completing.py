"""From what was given to a whole plan."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from sordino.data.schema import CLASSIFICATION
from sordino.errors import BadInput, one_of, positive
from sordino.methods import method
from sordino.models import build, paper_network
from sordino.plain import Json, Plain
from sordino.plan import Plan
from sordino.preparation import Preparation, preparation_from
from sordino.privacy.vocabulary import Observer, Unit
from sordino.recipes import client_unit, frontier
from sordino.recipes.choice import Choice
from sordino.recipes.facts import PublicFacts
from sordino.recipes.networks import fan_in, model_for
from sordino.recipes.settings import BY_SCHEME, Asked
from sordino.recipes.shares import share_for
from sordino.schemes import select

if TYPE_CHECKING:
    from torch import nn

EPSILON, DELTA = 4.0, 1e-5
# The noise on the statistics of a table's columns, and the share of the budget that they take. Even where they are hardly heard
# (120 records times epsilon) a table that was not scaled did worse.
HEARD, LEAST_SHARE, MOST_SHARE = 0.04, 0.05, 0.2
AUTO, NONE = "auto", "none"  # auto, the default: the recipe that was measured to win on such data, where one was
OTHERWISE = ("method", "model", "prepare", "multiplier", "mechanism", "options", "variant", "sampling")


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
    featured = recipe == AUTO and _frontier_wins(given, facts)
    against = _against_frontier(given) if featured else []
    if recipe == frontier.NAME or featured and not against:
        return _by_name(given, facts, pin, recipe)
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
        take(Choice("epsilon", EPSILON, "neither a budget nor a multiplier was given"))
    if unit is Unit.CLIENT and observer is not Observer.PUBLIC:
        take(Choice("sampling", "fixed", "who sees the messages sees who takes part: coins would gain nothing"))
    if facts is None:
        return settings, tuple(choices)
    if settings.get("epsilon") is not None:
        positive(epsilon=settings["epsilon"])
    scheme = select(chosen, unit, observer).name
    whole = scheme == "client" and not published
    if chosen.private and chosen.scheme is None and not published and _unlike_columns(facts, settings):
        take(_scaled(facts, settings, unit, observer))
    if whole and featured and not _against_features(given):
        against = []
        for choice in client_unit.features(
            facts, float(settings["epsilon"]), float(settings.get("delta") or DELTA), pin
        ):
            take(choice)
    signals = len(facts.shape) == 2
    if settings.get("prepare"):
        facts = facts.prepared(_preparation(settings["prepare"]))
    epsilon = float(settings.get("epsilon") or EPSILON)
    if network is None:
        if settings.get("model") == "auto":
            settings.pop("model")
        printed = paper_network(chosen.name, str(given.get("data", "digits"))) if published else None
        if printed is not None:
            take(Choice("model", printed, "the network that the paper trains on this data"))
        suited = _suited(facts, epsilon if chosen.private else None, whole)
        left = f"; recipe frontier is left out, since {' and '.join(against)} was given" if against else ""
        take(replace(suited, reason=suited.reason + left))
        network = build(settings["model"], facts.shape, facts.classes)
    optimizer = str(settings.get("server_optimizer") or "adam")
    weights = [(p.numel(), p.dim()) for p in network.parameters()]
    size, linear = sum(numbers for numbers, _ in weights), client_unit.is_linear(axes for _, axes in weights)
    asked = Asked(facts, chosen, published, epsilon, fan_in(network), optimizer, size, linear, settings, signals)
    for choice in BY_SCHEME[scheme](asked):
        take(choice)
    return settings, tuple(choices)


def network_of(plan: Plan, facts: PublicFacts) -> str:
    """The network of a plan that leaves it open, as the recipe would choose it."""
    if plan.model != AUTO:
        return plan.model
    whole = plan.scheme.name == "client" and plan.variant != "published"
    epsilon = (plan.epsilon or EPSILON) if plan.method_spec.private else None
    return str(_suited(facts.prepared(plan.preparation), epsilon, whole).value)


def _suited(facts: PublicFacts, epsilon: float | None, whole: bool) -> Choice:
    """The network that suits the data; `whole`: clients are the units. `epsilon` None: no privacy."""
    return client_unit.model(facts, epsilon) if whole else model_for(facts, epsilon)


def _frontier_wins(given: Plain, facts: PublicFacts | None) -> bool:
    """Whether the recipe was measured to win on such data."""
    classes = given.get("task", CLASSIFICATION) == CLASSIFICATION
    return classes and facts is not None and frontier.wins(facts.shape, given.get("epsilon") or EPSILON)


def _against_frontier(given: Plain) -> list[str]:
    """What was given that the recipe cannot keep. Rounds, batches, rates and bounds it takes as they are given."""
    found = [name for name in OTHERWISE if given.get(name) is not None]
    found += ["unit"] if given.get("unit", Unit.EXAMPLE) != Unit.EXAMPLE else []
    return found + (["observer"] if given.get("observer") == Observer.SERVER else [])


def _against_features(given: Plain) -> bool:
    """Whether something was given that features in the client unit cannot keep; other methods and samplings they can."""
    return any(given.get(name) is not None for name in ("model", "prepare", "mechanism", "multiplier"))


def _by_name(given: Plain, facts: PublicFacts | None, pin: bool, recipe: str) -> tuple[Json, tuple[Choice, ...]]:
    """The settings of the recipe that is named, with what was given over them."""
    rest = {name: value for name, value in given.items() if name != "recipe" and value is not None}
    if facts is None:
        raise BadInput("recipe frontier follows from the shape of the data, which is not here; get the data first.")
    if rest.get("unit", "example") != "example" or rest.get("observer") == "server":
        raise BadInput(
            "recipe frontier is for the example unit pooled (observer public or secagg-server); leave --recipe out."
        )
    found = frontier.settings(facts.shape, facts.records, rest.get("epsilon", EPSILON), rest.get("delta", DELTA), pin)
    settings: Json = {"clients": facts.clients, "epsilon": EPSILON, **found, **rest}
    reason = "recipe frontier, for this shape, number of records and epsilon"
    if recipe == AUTO:
        reason += "; it was measured to beat every network here on such data (--recipe none for a network)"
    return settings, tuple(Choice(name, value, reason) for name, value in found.items() if name not in rest)


def _unlike_columns(facts: PublicFacts, settings: Plain) -> bool:
    """A table that no schema scales."""
    table = facts.table and settings.get("schema") is None
    plain = settings.get("mechanism", "gaussian") == "gaussian" and not settings.get("canaries")
    return table and plain


def _scaled(facts: PublicFacts, settings: Plain, unit: Unit, observer: Observer) -> Choice:
    """The scale of columns, found with as much of the budget as few units ask for."""
    units: float = facts.clients if unit is Unit.CLIENT else facts.records
    if observer is Observer.SERVER:  # each client adds all of the noise
        units /= math.sqrt(facts.clients)
    epsilon, delta = float(settings.get("epsilon") or EPSILON), float(settings.get("delta") or DELTA)
    share = share_for(facts.features, units, epsilon, delta, HEARD, LEAST_SHARE, MOST_SHARE)
    value: str | Json = "standard" if share == LEAST_SHARE else {"kind": "standard", "share": share}
    return Choice(
        "prepare", value, f"columns have units of their own; {100 * share:.2g}% of the budget finds their scale"
    )


def _preparation(asked: Plain | str) -> Preparation | None:
    if asked == "none":
        return None
    return preparation_from({"kind": asked} if isinstance(asked, str) else asked)
