"""The plan of recipe `frontier`: features that need no data and a linear head, for records in one sum.

Pictures and signals take the features of `frontier`, tables those of `tables`. It is the default where it was measured to beat every
network here; what is given stays, and what it cannot keep leaves it out.
"""

from __future__ import annotations

from dataclasses import fields

from sordino.data.schema import CLASSIFICATION
from sordino.errors import BadInput, positive
from sordino.methods import method
from sordino.plain import Json, Plain
from sordino.plan import Plan
from sordino.preparation import preparation_from
from sordino.privacy.vocabulary import Observer, Unit
from sordino.recipes import frontier, tables
from sordino.recipes.choice import Choice
from sordino.recipes.facts import PublicFacts
from sordino.schemes import select

EPSILON, DELTA = 4.0, 1e-5
OPEN = "auto"  # a network that is left open
FOUR = Choice("epsilon", EPSILON, "neither a budget nor a multiplier was given")
# Settings with which the recipe's rates were not measured; any other value than its own leaves it out.
OTHERWISE = ("method", "model", "prepare", "multiplier", "mechanism", "options", "variant", "observer", "unit")
USUAL = {field.name: field.default for field in fields(Plan)}


def wins(given: Plain, facts: PublicFacts | None) -> bool:
    """Whether it was measured to win on such data."""
    if facts is None or not tells_classes(given, facts):
        return False
    epsilon = given.get("epsilon") or EPSILON
    positive(epsilon=epsilon)
    return tables.wins(facts, epsilon) or frontier.wins(facts.shape, epsilon)


def tells_classes(given: Plain, facts: PublicFacts) -> bool:
    """Whether a record has one of several classes."""
    return (given.get("task") or facts.task) == CLASSIFICATION and facts.classes > 1


def against(given: Plain, facts: PublicFacts) -> list[str]:
    """What was given that the recipe cannot keep. Rounds, batches, rates and bounds it takes as they are given."""
    asked = {name: given[name] for name in OTHERWISE if given.get(name) not in (None, OPEN, {})}
    own = _found(facts, given, pin=False)
    found = {name for name, value in asked.items() if value != own.get(name, USUAL[name])}
    if asked.get("observer") == Observer.PUBLIC:
        found.discard("observer")
    if _undigested(asked.get("prepare")) == own["prepare"]:
        found.discard("prepare")
    if "method" in found and _one_bound(asked["method"]):
        found.discard("method")
    if asked.get("method", own["method"]) == "adact":  # whose options they are
        found.discard("options")
    return [name for name in OTHERWISE if name in found]


def _undigested(prepare: object) -> object:
    if not isinstance(prepare, dict):
        return prepare
    return {name: value for name, value in prepare.items() if name != "digest"}


def _one_bound(name: str) -> bool:
    """Whether a method clips records in one sum, so that rates for steps along mean / bound suit it."""
    found = method(name)
    pooled = found.private and select(found, Unit.EXAMPLE, Observer.SECAGG_SERVER).name == "pooled"
    return pooled and Unit.EXAMPLE in found.units and found.schedule is None


def settings(given: Plain, facts: PublicFacts | None, pin: bool) -> tuple[Json, tuple[Choice, ...]]:
    """The settings of the recipe with what was given over them, and what was chosen."""
    rest = {name: value for name, value in given.items() if name != "recipe" and value is not None}
    if rest.get("model") == OPEN:
        del rest["model"]
    if facts is None:
        raise BadInput("recipe frontier follows from the shape of the data, which is not here; get the data first.")
    if rest.get("unit", "example") != "example" or rest.get("observer") == "server":
        raise BadInput(
            "recipe frontier is for the example unit pooled (observer public or secagg-server); leave --recipe out."
        )
    if not tells_classes(rest, facts):
        raise BadInput("recipe frontier tells classes apart, and the task here is another one; leave --recipe out.")
    found = _found(facts, rest, pin)
    whole: Json = {"clients": facts.clients, "epsilon": EPSILON, **found, **rest}
    reasons = _reasons(facts, found)
    choices = [Choice(name, value, reasons[name]) for name, value in found.items() if name not in rest]
    return whole, tuple(choices if "epsilon" in rest else [FOUR, *choices])


def _found(facts: PublicFacts, given: Plain, pin: bool) -> Json:
    """The settings of the recipe itself."""
    epsilon, delta = given.get("epsilon") or EPSILON, given.get("delta") or DELTA
    if facts.table:
        return tables.settings(facts, epsilon, delta, unscaled(facts, given), pin)
    return frontier.settings(facts.shape, facts.records, epsilon, delta, pin)


def unscaled(facts: PublicFacts, given: Plain) -> int:
    """How many columns of a table have scales of their own."""
    if facts.unscaled is not None:
        return facts.unscaled
    return 0 if given.get("schema") is not None else facts.features


def _reasons(facts: PublicFacts, found: Json) -> dict[str, str]:
    made = preparation_from(found["prepare"])
    heard = (
        "what a round is asked about its norms is heard"
        if found["method"] == "adact"
        else "rows of length 1 need no other bound"
    )
    return {
        "prepare": f"for {facts.said}: with features that need no data most such data was learnt better than by a network (--recipe none trains one); "
        f"{100 * made.share:.2g}% of the budget finds {made.found}",
        "model": "features need a linear head only",
        "method": heard,
        "unit": "each record is protected",
        "bound": "about the length of gradients of such rows"
        + (", to begin with" if found["method"] == "adact" else ""),
        "steps": "a rate then means the same under every bound",
        "rounds": "more bring noise, not signal",
        "batch_size": f"of {facts.records:,} records; larger gains little at the same epsilon",
        "lr": "noise on a score at the end is then as large as paid off on other data of this kind",
        "server_optimizer": "the model is linear: steps add up, and so does their noise",
        "server_momentum": "the usual one",
        "average": tables.WHY_SETTLED,
    }
