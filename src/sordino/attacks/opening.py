"""Opening a finished run to attack it: its plan, its data, its network and its weights, and what was proven of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino.attacks.protocol import Protocol, deal
from sordino.attacks.rows import Guarantee
from sordino.attacks.shadows import Make, Say
from sordino.attacks.table import Entry
from sordino.attacks.target import Target
from sordino.errors import BadInput, whole
from sordino.plain import Json
from sordino.plan import Plan
from sordino.privacy.vocabulary import Observer, Relation, Unit

if TYPE_CHECKING:
    from sordino.federation.population import Federation


@dataclass(frozen=True)
class Settings:
    """How a run is attacked."""

    protocol: Protocol = field(default_factory=Protocol)
    references: int | None = None  # reference models of lira and rmia; None: the attack's own number
    shadows: int | None = None  # shadow models of shadow-lr
    control: str = "auto"  # auto, none, or the folder of a run
    workers: int = 0
    fresh: bool = False  # do not take lines from an earlier table

    def __post_init__(self) -> None:
        whole(0, workers=self.workers)
        whole(2, references=2 if self.references is None else self.references)
        whole(1, shadows=1 if self.shadows is None else self.shadows)

    def changes(self, one: Entry) -> Json:
        """The settings of one attack that differ from its defaults."""
        if one.models == "reference" and self.references is not None:
            return {"models": self.references}
        if one.name == "shadow-lr" and self.shadows is not None:
            return {"shadows": self.shadows}
        return {}


@dataclass(frozen=True, eq=False)
class Finished:
    """What a finished run has: data, network and weights as the rounds had them, and what was proven."""

    plan: Plan
    make: Make
    federation: Federation
    theta: np.ndarray
    rounds: int
    guarantee: Guarantee
    key: str  # of what was trained


def finished(plan: Plan, make: Make | None, federation: Federation | None, folder: Path) -> Finished:
    """The run in `folder`, which `plan` began."""
    from sordino.federation.checkpoint import load_weights
    from sordino.gradients.flat import Flat

    weights, statement = ended(folder)
    plan, make, federation = assembled(*after_prelude(plan, make, federation, folder, statement))
    module = make(plan.seed)
    load_weights(module, weights)
    theta, key = Flat(module).vector().numpy(), hashlib.sha256(weights.read_bytes()).hexdigest()
    return Finished(plan, make, federation, theta, int(statement["rounds"]), guarantee_of(statement), key)


@dataclass(frozen=True, eq=False)
class Opened:
    """A run folder, ready for attacks on membership."""

    target: Target
    guarantee: Guarantee
    key: str


def open_run(folder: Path, make: Make | None, federation: Federation | None, settings: Settings, say: Say) -> Opened:
    """Deal members and non-members, and say where the attacker's own models are kept."""
    from sordino.federation import checkpoint
    from sordino.federation.folder import RunFolder

    place = RunFolder.reopen(folder)
    run = finished(Plan.load(place.plan), make, federation, folder)
    target = Target(
        plan=run.plan,
        cast=deal(run.federation, settings.protocol),
        make=run.make,
        theta=run.theta,
        rounds=run.rounds,
        kept=lambda: checkpoint.kept(place.models),
        folder=folder / "attack",
        workers=settings.workers,
        seed=settings.protocol.seed,
        say=say,
    )
    return Opened(target, run.guarantee, run.key)


def ended(folder: Path) -> tuple[Path, Json]:
    """The weights and the statement of a run that has ended."""
    weights, said = folder / "model.safetensors", folder / "statement.json"
    if not weights.exists() or not said.exists():
        raise BadInput(f"the run in {folder} has not ended; finish it with sordino train --resume {folder}.")
    return weights, json.loads(said.read_text())


def after_prelude(
    plan: Plan, make: Make | None, federation: Federation | None, folder: Path, statement: Json
) -> tuple[Plan, Make | None, Federation | None]:
    """The rounds alone. What the prelude released is public: attackers use it, and train their models with it too.

    Records that were held out are not members: where there is no public test set, they are the non-members.
    """
    from sordino.assembly import held_apart, population
    from sordino.schemes import prelude

    if plan.preparation is None and plan.holdout is None:
        return plan, make, federation
    raw = population(plan) if federation is None else held_apart(federation, plan)
    rest = plan.replace(prepare={}, test=None, clients=raw.clients)
    if statement["multiplier"] is not None:
        rest = rest.replace(epsilon=None, multiplier=statement["multiplier"])
    if plan.preparation is not None:
        raw = raw.mapped(prelude.model_input(folder, plan, raw.input_shape))
    return rest, make, raw if raw.test is not None or raw.held_out is None else raw.tested_on(raw.held_out)


def assembled(plan: Plan, make: Make | None, federation: Federation | None) -> tuple[Plan, Make, Federation]:
    """The network and the data that the plan names, where they are not given."""
    from sordino.assembly import assemble
    from sordino.models import build

    if make is not None and federation is not None:
        _check_labels(federation)
        return plan, make, federation
    if federation is None or plan.model == "auto":
        _, found, plan = assemble(plan)
        population = found if federation is None else federation
    else:
        population = federation
    _check_labels(population)

    def fresh(seed: int) -> Any:
        return build(plan.model, population.input_shape, population.classes, seed)

    return plan, make or fresh, population


def _check_labels(federation: Federation) -> None:
    if federation.by_position:
        raise BadInput(
            f"attacks look at the one class of a record, and records of {federation.name} have one at every position; there is no "
            "attack for them yet."
        )


def guarantee_of(statement: Json) -> Guarantee:
    """What the statement proves; nothing of a run that is not private."""
    if statement["epsilon"] == "inf" or not statement.get("proven", True):
        return Guarantee()
    return Guarantee(
        epsilon=float(statement["epsilon"]),
        delta=float(statement["delta"]),
        unit=Unit(statement["unit"]),
        relation=Relation(statement["relation"]),
        observer=Observer(statement["observer"]),
    )
