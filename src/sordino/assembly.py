"""From the names in a plan to objects: the data set or folder, the partition, the network; and settings that nobody gave."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sordino import recipes
from sordino.data.sets import ENTRIES, status
from sordino.federation.population import Federation
from sordino.plan import Plan

if TYPE_CHECKING:
    from torch import nn

    from sordino.recipes import Choice

# Settings that say which population there is; the others say what is done with it.
POPULATION = ("data", "clients", "partition", "alpha", "classes", "seed")


def complete(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in what was not given, from public facts of the data that is named (`sordino.recipes`).

    A server across machines may know the data by name only. It settles what needs no facts; the network follows when all
    data holders have said the shape of their records.
    """
    data = str(given.get("data", "digits"))
    here = status(data).present != "no" if data in ENTRIES else Path(data).exists()
    return recipes.complete(given, recipes.PublicFacts.of(_named(given)) if here else None)[0]


def plan_for(federation: Federation, network: nn.Module | None = None, **given: Any) -> Plan:
    """The plan that `sordino train` would make for this population: what is given, and settings from public facts.

    `network` is the module that will be trained, where it is none of the catalogue: the learning rate follows from it.

    >>> plan = plan_for(Federation.from_dataset("digits", "iid", 5), epsilon=2.0)
    >>> plan.clients, plan.model, plan.batch_size
    (5, 'std-linear', 239)
    """
    return recipes.resolve({"data": federation.name, **given}, recipes.PublicFacts.of(federation), network)[0]


def prepare(given: Mapping[str, Any]) -> tuple[nn.Module, Federation, Plan, tuple[Choice, ...]]:
    """The network, the population and the plan of a short command, and what was chosen for it."""
    federation = _named(given)
    plan, choices = recipes.resolve(given, recipes.PublicFacts.of(federation))
    model, federation, plan = assemble(plan, federation)
    return model, federation, plan, choices


def assemble(plan: Plan, federation: Federation | None = None) -> tuple[nn.Module, Federation, Plan]:
    """The model and the population of a plan. A folder decides the number of clients by itself."""
    from sordino.models import build

    federation = population(plan) if federation is None else federation
    if federation.clients != plan.clients:
        whole = plan.cohort_size == plan.clients
        plan = plan.replace(clients=federation.clients, cohort=None if whole else plan.cohort)
    if plan.model == "auto":
        facts = recipes.PublicFacts.of(federation).prepared(plan.preparation)
        plan = plan.replace(model=str(recipes.model_for(facts, plan.epsilon if plan.private else None).value))
    return build(plan.model, input_shape(plan, federation), federation.classes, plan.seed), federation, plan


def input_shape(plan: Plan, federation: Federation) -> tuple[int, ...]:
    """The shape of what the model sees: that of a record, or of what the plan's preparation makes of one."""
    shape = federation.input_shape
    return shape if plan.preparation is None else plan.preparation.stages(shape).shape


def population(plan: Plan) -> Federation:
    """A name of the catalogue means that data set, also where a folder happens to be called so (`./mnist` is the folder)."""
    if plan.data not in ENTRIES and Path(plan.data).is_dir():
        return Federation.from_folder(plan.data, classes=plan.classes)
    return Federation.from_dataset(plan.data, plan.partition, plan.clients, plan.alpha, plan.seed)


def _named(given: Mapping[str, Any]) -> Federation:
    """The population that these settings name. All natural clients are taken, unless a number was given."""
    who = {name: given[name] for name in POPULATION if given.get(name) is not None}
    if who.get("partition") == "natural" and "clients" not in who:
        return Federation.from_dataset(who.get("data", "digits"), "natural")
    return population(Plan(method="dp-fedavg", epsilon=1.0, **who))
