"""From the names in a plan to objects: the data set or folder, the partition, the network; and defaults that suit them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sordino.data.ingest import SUFFIXES, Source
from sordino.data.schema import CLASSIFICATION
from sordino.data.sets import ENTRIES, Entry, unknown
from sordino.errors import BadInput
from sordino.federation.origin import given, is_given
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
NO_ENTRY = Entry("", "", "")


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
    if ENTRIES.get(str(given.get("data", "")), NO_ENTRY).natural:
        settings["partition"] = "natural"
    settings |= given
    if settings.get("partition") == "natural" and "clients" not in settings:
        settings["clients"] = _owners(settings.get("data", "digits"))
    if chosen.private and settings.get("epsilon") is None and settings.get("multiplier") is None:
        settings |= BUDGET
    if settings.get("unit") == "client" and settings.get("observer", "secagg-server") != "public":
        settings.setdefault("sampling", "fixed")  # whoever sees the messages sees who takes part: coins gain nothing
    return settings


def _owners(data: str) -> int:
    """How many natural clients a data set has; where it is not here, as many as its catalogue says."""
    try:
        return Federation.from_dataset(data, "natural").clients
    except BadInput:
        said = ENTRIES.get(data, NO_ENTRY).owners
        if not said:
            raise
        return said


def assemble(plan: Plan) -> tuple[nn.Module, Federation, Plan]:
    """The model and the population of a plan. A folder decides the number of clients by itself."""
    from sordino.models import build, default_for

    federation = population(plan)
    name = default_for(federation.name, plan.paper) if plan.model == "auto" else plan.model
    model = build(name, input_shape(plan, federation), federation.classes, plan.seed)
    return model, federation, as_trained(plan, federation, model)


def input_shape(plan: Plan, federation: Federation) -> tuple[int, ...]:
    """The shape of what the model sees: that of a record, or of what the plan's preparation makes of one."""
    shape = federation.input_shape
    return shape if plan.preparation is None else plan.preparation.stages(shape).shape


def population(plan: Plan) -> Federation:
    """A name of the catalogue means that data set, also where a folder happens to be called so (`./mnist` is the folder)."""
    seed = plan.seed if plan.partition_seed is None else plan.partition_seed
    if is_given(plan.data):
        raise BadInput(
            f"the plan's data {plan.data} was handed over in Python and has no name or path: call sordino.train with it again, "
            "or name other data (--data)."
        )
    if plan.data in ENTRIES:
        _nothing_of_tables(plan)
        return Federation.from_dataset(plan.data, plan.partition, plan.clients, plan.alpha, seed)
    path = Path(plan.data)
    if not path.exists():
        looks = "/" in plan.data or path.suffix in SUFFIXES
        raise BadInput(f"there is no file or folder {plan.data!r}: check the path.") if looks else unknown(plan.data)
    source = Source(plan.data, plan.client_column, plan.label, plan.test, plan.schema, told_task(plan), plan.classes)
    return Federation.from_source(source, plan.partition, plan.clients, plan.alpha, seed)


def as_trained(plan: Plan, federation: Federation, model: nn.Module) -> Plan:
    """The plan with what follows from the population and the module that are really trained."""
    if federation.origin is not None:
        changes = federation.origin.settings()
        if changes["partition_seed"] == plan.seed:
            changes["partition_seed"] = None
        if federation.clients != plan.clients:
            changes |= {
                "clients": federation.clients,
                "cohort": None if plan.cohort_size == plan.clients else plan.cohort,
            }
        plan = plan.replace(**changes)
    return plan.replace(model=_name_of(model, plan, federation))


def _name_of(module: nn.Module, plan: Plan, federation: Federation) -> str:
    """The name by which this very module, weights and all, can be built again; else its class in angle brackets."""
    import torch

    from sordino.models import build, default_for

    name = default_for(federation.name, plan.paper) if plan.model == "auto" else plan.model
    if not is_given(name):
        try:
            built = build(name, input_shape(plan, federation), federation.classes, plan.seed)
        except BadInput:
            return given(type(module).__name__)
        own, other = module.state_dict(), built.state_dict()
        alike = type(built) is type(module) and own.keys() == other.keys()
        if alike and all(torch.equal(own[key].cpu(), other[key].cpu()) for key in own):
            return name
    return given(type(module).__name__)


def told_task(plan: Plan) -> str | None:
    """A schema may say it too."""
    return None if plan.schema is not None and plan.task == CLASSIFICATION else plan.task


def _nothing_of_tables(plan: Plan) -> None:
    for name in ("client_column", "label", "test", "schema"):
        if (value := getattr(plan, name)) is not None:
            raise BadInput(
                f"{name} {value!r} is about tables of your own, and {plan.data} is a data set: leave it out."
            )
