"""From the names in a plan to objects: the data set or folder, the partition, the network; and settings that nobody gave."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sordino import recipes
from sordino.data.catalogue import ENTRIES
from sordino.data.ingest import SUFFIXES, Source
from sordino.data.schema import CLASSIFICATION
from sordino.data.schema_file import load_schema
from sordino.data.sets import status, unknown
from sordino.errors import BadInput
from sordino.federation.held_out import hold_out
from sordino.federation.origin import given, is_given
from sordino.federation.population import Federation
from sordino.plain import Json, Plain
from sordino.plan import Plan
from sordino.preparation import Features, Fourier, Standard

if TYPE_CHECKING:
    from torch import nn

    from sordino.recipes import Choice

# Plain that say which population there is; the others say what is done with it.
POPULATION = (
    *("data", "clients", "partition", "alpha", "classes", "seed", "partition_seed"),
    *("client_column", "label", "test", "schema", "ignore", "task"),
)


def complete(given: Plain) -> Json:
    """Fill in what was not given, from public facts of the data that is named (`sordino.recipes`).

    A server across machines may know the data by name only. It settles what needs no facts; the network follows when all
    data holders have said the shape of their records.
    """
    given = _with_owners(given)
    data = str(given.get("data", "digits"))
    here = status(data).present != "no" if data in ENTRIES else Path(data).exists()
    return recipes.complete(given, recipes.PublicFacts.of(_named(given)) if here else None)[0]


def plan_for(federation: Federation, network: nn.Module | None = None, **given: Any) -> Plan:
    """The plan that `sordino train` would make for this population: what is given, and settings from public facts.

    `network` is the module that will be trained, where it is none of the catalogue: the learning rate follows from it.

    >>> plan = plan_for(Federation.from_dataset("digits", "iid", 5), epsilon=2.0)
    >>> plan.clients, plan.model, plan.batch_size
    (5, 'head', 144)
    """
    return recipes.resolve({"data": federation.name, **given}, recipes.PublicFacts.of(federation), network)[0]


def prepare(given: Plain) -> tuple[nn.Module, Federation, Plan, tuple[Choice, ...]]:
    """The network, the population and the plan of a short command, and what was chosen for it."""
    given = _with_owners(given)
    federation = _named(given)
    plan, choices = recipes.resolve(given, recipes.PublicFacts.of(federation))
    model, federation, plan = assemble(plan, federation)
    return model, federation, plan, choices


def assemble(plan: Plan, federation: Federation | None = None) -> tuple[nn.Module, Federation, Plan]:
    """The model and the population of a plan. A folder decides the number of clients by itself."""
    from sordino.models import build

    federation = population(plan) if federation is None else federation
    plan = _scaled(plan, federation)
    model = build(_network(plan, federation), input_shape(plan, federation), federation.classes, plan.seed)
    return model, federation, as_trained(plan, federation, model)


def _network(plan: Plan, federation: Federation) -> str:
    """The plan's, or what suits the records."""
    return recipes.network_of(plan, recipes.PublicFacts.of(federation))


def input_shape(plan: Plan, federation: Federation) -> tuple[int, ...]:
    """The shape of what the model sees: that of a record, or of what the plan's preparation makes of one."""
    shape = federation.input_shape
    return shape if plan.preparation is None else plan.preparation.stages(shape).shape


def population(plan: Plan) -> Federation:
    """All that the plan's data names; what the plan holds out is put aside (`Federation.held_out`)."""
    return held_apart(everyone(plan), plan)


def held_apart(federation: Federation, plan: Plan) -> Federation:
    """The population without the share that the plan tests on, if it asks for one that is not put aside yet."""
    if plan.holdout is None or federation.held_out is not None:
        return federation
    return hold_out(federation, plan.holdout, plan.seed)


def everyone(plan: Plan) -> Federation:
    """All records of all clients. A name of the catalogue means that data set, also where a folder happens to be called so (`./mnist` is the folder)."""
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
    source = Source(
        plan.data,
        plan.client_column,
        plan.label,
        plan.test,
        plan.schema,
        told_task(plan),
        plan.classes,
        plan.ignore,
    )
    return Federation.from_source(source, plan.partition, plan.clients, plan.alpha, seed)


def as_trained(plan: Plan, federation: Federation, model: nn.Module) -> Plan:
    """The plan with what follows from the population and the module that are really trained."""
    if federation.origin is not None:
        changes = federation.origin.settings()
        if plan.holdout is not None:
            del changes["test"]  # of arrays and frames the origin knows of no test
        if changes["partition_seed"] == plan.seed:
            changes["partition_seed"] = None
        if federation.clients != plan.clients:
            changes |= {
                "clients": federation.clients,
                "cohort": None if plan.cohort_size == plan.clients else plan.cohort,
            }
        plan = plan.replace(**changes)
    plan = _scaled(plan, federation)
    return plan.replace(model=_name_of(model, plan, federation))


def _scaled(plan: Plan, federation: Federation) -> Plan:
    """Private statistics scale the columns that no schema scales: not words, not what has a public range."""
    schema, made = federation.schema, plan.preparation
    if schema is None or made is None:
        return plan
    if schema.gaps and isinstance(made, Features):
        raise BadInput(
            f'the schema says missing = "fill", and preparation {made.kind} takes no record with gaps: use prepare standard, or '
            "fill the cells in."
        )
    scales = isinstance(made, Standard) or isinstance(made, Fourier) and made.scaling > 0
    if not scales or plan.prepare.get("columns") is not None:
        return plan
    asked, columns = plan.prepare, [k for k, name in enumerate(schema.inputs) if name in schema.unscaled]
    if not columns:
        without = "give scaling 0" if isinstance(made, Fourier) else "leave prepare standard (--scale private) out"
        raise BadInput(f"the schema scales every column already: {without}.")
    return plan if len(columns) == len(schema.inputs) else plan.replace(prepare={**asked, "columns": columns})


def _name_of(module: nn.Module, plan: Plan, federation: Federation) -> str:
    """The name by which this module can be built again, with its weights; if there is none, its class in angle brackets."""
    import torch

    from sordino.models import build

    name = _network(plan, federation)
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
    of_tables = {
        "client_column": plan.client_column,
        "label": plan.label,
        "test": plan.test if plan.holdout is None else None,
        "schema": plan.schema,
        "ignore": plan.ignore,
    }
    for name, value in of_tables.items():
        if value is not None:
            raise BadInput(
                f"{name} {value!r} is about tables of your own, and {plan.data} is a data set: leave it out."
            )


def _with_owners(given: Plain) -> Plain:
    """Data whose records have owners is dealt out by them, unless a partition was given. Without classes all are dealt alike."""
    if given.get("partition") is None and _task_of(given) != CLASSIFICATION:
        return {**given, "partition": "iid"}
    entry = ENTRIES.get(str(given.get("data", "")))
    if entry is None or not entry.natural or given.get("partition") is not None:
        return given
    known = {"clients": entry.owners} if entry.owners and status(entry.name).present == "no" else {}
    return {**known, **given, "partition": "natural"}


def _task_of(given: Plain) -> str:
    """As it was given, or as the schema says."""
    if given.get("task") is not None or given.get("schema") is None:
        return str(given.get("task") or CLASSIFICATION)
    return load_schema(str(given["schema"])).task


def _named(given: Plain) -> Federation:
    """The population that these settings name. All natural clients are taken, unless a number was given."""
    who = {name: given[name] for name in POPULATION if given.get(name) is not None}
    if who.get("partition") == "natural" and "clients" not in who:
        return Federation.from_dataset(who.get("data", "digits"), "natural")
    return population(Plan(method="dp-fedavg", epsilon=1.0, **who))
