"""From what was given to a whole plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sordino.errors import BadInput, one_of, positive
from sordino.methods import method
from sordino.models import build, paper_network
from sordino.plan import Plan
from sordino.preparation import Preparation, preparation_from
from sordino.privacy.vocabulary import Observer, Unit
from sordino.recipes import frontier
from sordino.recipes.choice import Choice
from sordino.recipes.facts import PublicFacts
from sordino.recipes.networks import fan_in, model_for
from sordino.recipes.settings import BY_SCHEME, Asked
from sordino.schemes import select

if TYPE_CHECKING:
    from torch import nn

EPSILON = 4.0
AUTO = "auto"  # the recipe that was measured to win on such data, where one was


def resolve(
    given: Mapping[str, Any], facts: PublicFacts, network: nn.Module | None = None
) -> tuple[Plan, tuple[Choice, ...]]:
    """The plan, and what was chosen for it."""
    settings, choices = complete(given, facts, network)
    return Plan.from_json(settings), choices


def complete(
    given: Mapping[str, Any], facts: PublicFacts | None, network: nn.Module | None = None
) -> tuple[dict[str, Any], tuple[Choice, ...]]:
    """The settings of a plan: what was given, over the method's own defaults, over what public facts suggest.

    Without facts the network stays open, and what would follow from them stays at the plan's own defaults. `recipe` names a
    recipe whose settings are taken instead.
    """
    if given.get("recipe") == AUTO:
        given = {**given, "recipe": frontier.NAME if _open_to_frontier(given, facts) else None}
    if given.get("recipe") is not None:
        return _by_name(given, facts)
    given = {name: value for name, value in given.items() if name != "recipe"}
    chosen = method(given.get("method", "adact"))
    published = given.get("variant") == "published"
    own = {**chosen.defaults, **(chosen.published_defaults(given) if published else {})}
    settings: dict[str, Any] = {**own, **given}
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
    if settings.get("prepare"):
        facts = facts.prepared(_preparation(settings["prepare"]))
    epsilon = float(settings.get("epsilon") or EPSILON)
    if network is None:
        if settings.get("model") == "auto":
            settings.pop("model")
        printed = paper_network(chosen.name, str(given.get("data", "digits"))) if published else None
        if printed is not None:
            take(Choice("model", printed, "the network that the paper trains on this data"))
        take(model_for(facts, epsilon if chosen.private else None))
        network = build(settings["model"], facts.shape, facts.classes)
    optimizer = str(settings.get("server_optimizer") or "adam")
    asked = Asked(facts, chosen, published, epsilon, fan_in(network), optimizer)
    for choice in BY_SCHEME[select(chosen, unit, observer).name](asked):
        take(choice)
    return settings, tuple(choices)


def _open_to_frontier(given: Mapping[str, Any], facts: PublicFacts | None) -> bool:
    """Whether nothing that was given stands against the recipe, and it was measured to win on such data."""
    fixed = (
        "method",
        "model",
        "prepare",
        "multiplier",
        "bound",
        "lr",
        "server_optimizer",
        "mechanism",
        "options",
        "variant",
    )
    pooled = given.get("unit", "example") == "example" and given.get("observer") != "server"
    if facts is None or not pooled or any(given.get(name) is not None for name in fixed):
        return False
    return frontier.wins(facts.shape, facts.records, given.get("epsilon") or EPSILON)


def _by_name(given: Mapping[str, Any], facts: PublicFacts | None) -> tuple[dict[str, Any], tuple[Choice, ...]]:
    """The settings of the recipe that is named, with what was given over them."""
    one_of((AUTO, frontier.NAME), recipe=given["recipe"])
    rest = {name: value for name, value in given.items() if name != "recipe" and value is not None}
    if facts is None:
        raise BadInput("recipe frontier follows from the shape of the data, which is not here; get the data first.")
    if rest.get("unit", "example") != "example" or rest.get("observer") == "server":
        raise BadInput(
            "recipe frontier is for the example unit pooled (observer public or secagg-server); leave --recipe out."
        )
    found = frontier.settings(facts.shape, facts.records, rest.get("epsilon", EPSILON), rest.get("delta", 1e-5))
    settings: dict[str, Any] = {"clients": facts.clients, "epsilon": EPSILON, **found, **rest}
    reason = "recipe frontier, for this shape, number of records and epsilon"
    return settings, tuple(Choice(name, value, reason) for name, value in found.items() if name not in rest)


def _preparation(asked: Mapping[str, Any] | str) -> Preparation | None:
    if asked == "none":
        return None
    return preparation_from({"kind": asked} if isinstance(asked, str) else asked)
