"""From the names in a plan to objects: the data set or folder, the partition, the network; and defaults that suit them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sordino.data.sets import ENTRIES
from sordino.federation.population import Federation
from sordino.methods import method
from sordino.plan import Plan
from sordino.privacy.vocabulary import Observer, Unit
from sordino.schemes import select

if TYPE_CHECKING:
    from torch import nn

# What suits a data set and a way of working, found by trial; anything may be overridden.
SUITED: dict[tuple[str, str], dict[str, Any]] = {
    ("digits", "pooled"): {"rounds": 170, "batch_size": 256, "lr": 2.0, "server_optimizer": "momentum"},
    ("digits", "local"): {"rounds": 60, "batch_size": 32, "lr": 0.2},
    ("digits", "client"): {"rounds": 30, "batch_size": 32, "lr": 0.5, "local_epochs": 2},
    ("digits", "plain"): {"rounds": 170, "batch_size": 32, "lr": 2.0, "local_epochs": 2},
    ("mnist", "pooled"): {"lr": 0.5},
    ("fashion-mnist", "pooled"): {
        "model": "cnn-tanh", "rounds": 600, "batch_size": 2048, "bound": 0.1, "lr": 0.01, "server_optimizer": "adam",
    },
    ("fashion-mnist", "local"): {"model": "lenet", "rounds": 20, "batch_size": 64, "lr": 0.4},
    ("fashion-mnist", "client"): {"model": "lenet", "rounds": 60, "batch_size": 64, "lr": 0.1, "local_epochs": 4},
    ("fashion-mnist", "plain"): {"model": "lenet", "rounds": 60, "batch_size": 64, "lr": 0.1, "local_epochs": 4},
}  # fmt: skip
USUAL: dict[str, dict[str, Any]] = {  # for all other data
    "pooled": {
        "lr": 0.01,
        "server_optimizer": "adam",
    },  # a moving bound changes the length of gradients; Adam takes no notice
}
SUITED_OPTIONS: dict[tuple[str, str], dict[str, float]] = {("digits", "adact"): {"tau": 0.8}}
BUDGET = {"epsilon": 4.0}


def complete(given: dict[str, Any]) -> dict[str, Any]:
    """Fill in what was not given: the method's own defaults over what suits the data set."""
    name = given.get("method", "adact")
    chosen = method(name)
    published = given.get("variant") == "published"
    own = {**chosen.defaults, **(chosen.published_defaults(given) if published else {})}
    settings_so_far: dict[str, Any] = {"unit": Unit.EXAMPLE, "observer": Observer.SECAGG_SERVER} | own | given
    way = select(chosen, Unit(settings_so_far["unit"]), Observer(settings_so_far["observer"])).name
    usual = {} if {"lr", "server_optimizer"} & given.keys() else USUAL.get(way, {})  # they only suit each other
    settings = SUITED.get((given.get("data", "digits"), way), usual) | own
    options = SUITED_OPTIONS.get((given.get("data", "digits"), name), {})
    if options and not published:
        settings["options"] = options
    settings |= given
    if settings.get("partition") == "natural" and "clients" not in settings:
        settings["clients"] = Federation.from_dataset(settings.get("data", "digits"), "natural").clients
    if chosen.private and settings.get("epsilon") is None and settings.get("multiplier") is None:
        settings |= BUDGET
    if settings.get("unit") == "client" and settings.get("observer", "secagg-server") != "public":
        settings.setdefault("sampling", "fixed")  # whoever sees the messages sees who takes part: coins gain nothing
    return settings


def assemble(plan: Plan) -> tuple[nn.Module, Federation, Plan]:
    """The model and the population of a plan. A folder decides the number of clients by itself."""
    from sordino.models import build, default_for

    federation = population(plan)
    if federation.clients != plan.clients:
        whole = plan.cohort_size == plan.clients
        plan = plan.replace(clients=federation.clients, cohort=None if whole else plan.cohort)
    name = default_for(federation.name) if plan.model == "auto" else plan.model
    model = build(name, input_shape(plan, federation), federation.classes, plan.seed)
    return model, federation, plan.replace(model=name)


def input_shape(plan: Plan, federation: Federation) -> tuple[int, ...]:
    """The shape of what the model sees: that of a record, or of what the plan's preparation makes of one."""
    shape = federation.input_shape
    return shape if plan.preparation is None else plan.preparation.stages(shape).shape


def population(plan: Plan) -> Federation:
    """A name of the catalogue means that data set, also where a folder happens to be called so (`./mnist` is the folder)."""
    if plan.data not in ENTRIES and Path(plan.data).is_dir():
        return Federation.from_folder(plan.data, classes=plan.classes)
    return Federation.from_dataset(plan.data, plan.partition, plan.clients, plan.alpha, plan.seed)
