"""From what was given to a whole plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sordino.data.schema import CLASSIFICATION
from sordino.errors import BadInput, one_of, positive
from sordino.methods import method
from sordino.models import build, paper_network
from sordino.plain import Json, Plain
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
HEARD = 3_000  # records times epsilon, from which on the scale of columns is heard through its noise
AUTO, NONE = (
    "auto",
    "none",
)  # the recipe that was measured to win on such data, where one was (the default); none by name


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
    if recipe == frontier.NAME or recipe == AUTO and _open_to_frontier(given, facts):
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
    if scheme == "pooled" and not published and _unlike_columns(facts, settings):
        take(
            Choice(
                "prepare", "standard", "columns have units of their own; a twentieth of the budget finds their scale"
            )
        )
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
    for choice in BY_SCHEME[scheme](asked):
        take(choice)
    return settings, tuple(choices)


def _open_to_frontier(given: Plain, facts: PublicFacts | None) -> bool:
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
        "rounds",
        "batch_size",
        "sampling",
    )
    pooled = given.get("unit", "example") == "example" and given.get("observer") != "server"
    classes = given.get("task", CLASSIFICATION) == CLASSIFICATION
    if facts is None or not pooled or not classes or any(given.get(name) is not None for name in fixed):
        return False
    return frontier.wins(facts.shape, facts.records, given.get("epsilon") or EPSILON)


def _by_name(given: Plain, facts: PublicFacts | None, pin: bool, recipe: str) -> tuple[Json, tuple[Choice, ...]]:
    """The settings of the recipe that is named, with what was given over them."""
    rest = {name: value for name, value in given.items() if name != "recipe" and value is not None}
    if facts is None:
        raise BadInput("recipe frontier follows from the shape of the data, which is not here; get the data first.")
    if rest.get("unit", "example") != "example" or rest.get("observer") == "server":
        raise BadInput(
            "recipe frontier is for the example unit pooled (observer public or secagg-server); leave --recipe out."
        )
    found = frontier.settings(facts.shape, facts.records, rest.get("epsilon", EPSILON), rest.get("delta", 1e-5), pin)
    settings: Json = {"clients": facts.clients, "epsilon": EPSILON, **found, **rest}
    reason = "recipe frontier, for this shape, number of records and epsilon"
    if recipe == AUTO:
        reason += "; it was measured to beat every network here on such data (--recipe none for a network)"
    return settings, tuple(Choice(name, value, reason) for name, value in found.items() if name not in rest)


def _unlike_columns(facts: PublicFacts, settings: Plain) -> bool:
    """A table that no schema scales, with records enough to hear the scale of its columns through noise."""
    table = len(facts.shape) == 1 and not facts.tokens and settings.get("schema") is None
    plain = settings.get("mechanism", "gaussian") == "gaussian" and not settings.get("canaries")
    return table and plain and facts.records * float(settings.get("epsilon") or EPSILON) >= HEARD


def _preparation(asked: Plain | str) -> Preparation | None:
    if asked == "none":
        return None
    return preparation_from({"kind": asked} if isinstance(asked, str) else asked)
