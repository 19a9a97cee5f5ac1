"""Attacking a finished run: a run folder in, a table out. `attack_run` asks who was a member, `invert_run` draws pictures.

Members come from the run's federation, non-members from its test split. What the attacker trains, it trains by the
run's own plan. For a private run an undefended control is trained on the same data (the same network and number of
passes, no clipping and no noise) and attacked alike: an attack that fails there shows nothing by failing here.

    RUN/attack.json            the table; lines whose settings have not changed are taken from it
    RUN/attack/reference-*/    weights of models that the attacker trained
    RUN/attack/control/        the undefended control, a run folder of its own
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sordino.attacks.metrics import average_success
from sordino.attacks.protocol import Protocol, deal
from sordino.attacks.rows import Guarantee, play, private, ranked, with_control
from sordino.attacks.shadows import Make, Say, quiet
from sordino.attacks.table import Entry, entry
from sordino.attacks.target import Target
from sordino.data.schema import CLASSIFICATION
from sordino.errors import BadInput, whole
from sordino.files import write_atomically
from sordino.plain import Json
from sordino.plan import Plan
from sordino.privacy.vocabulary import Observer, Relation, Unit, Variant
from sordino.report import attacked
from sordino.schemes.pooled import Pooled

if TYPE_CHECKING:
    from sordino.attacks.inversion.runs import InversionSettings
    from sordino.federation.population import Federation

CONTROLS = ("auto", "none")
FORMAT = 1  # of what is kept; a change makes older lines void


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
        if one.models == "reference" and self.references is not None:
            return {"models": self.references}
        if one.name == "shadow-lr" and self.shadows is not None:
            return {"shadows": self.shadows}
        return {}


def attack_run(
    folder: str | Path,
    attacks: Sequence[str | Entry],
    settings: Settings | None = None,
    *,
    make: Make | None = None,
    federation: Federation | None = None,
    say: Say = quiet,
) -> Json:
    """Attack the run in `folder`; the table as plain data, also kept there.

    An attack that this run does not allow (its view was not kept and cannot be had again) is named under `refused`, with
    the reason; it is an error if no attack is left.

    Runs of your own model or data need them again: `make(seed)` gives a fresh model, `federation` is the population.
    """
    settings = settings or Settings()
    folder = Path(folder)
    chosen = ranked([one if isinstance(one, Entry) else entry(one) for one in attacks])
    for one in chosen:
        if one.kind != "membership":
            raise BadInput(f"{one.name} is an attack of kind {one.kind}; call invert_run for it.")
    run = _open(folder, make, federation, settings, say)
    rows, refused = _rows(run, folder, chosen, settings)
    if not rows:
        raise BadInput(refused[0]["why"])
    left = [one for one in chosen if one.name in {line["attack"] for line in rows}]
    control = _control(run, folder, left, settings, say)
    rows = with_control(rows, rows if not private(run.guarantee) else control)
    table = {
        "run": str(folder),
        "results": rows,
        "refused": refused,
        "verdict": attacked.verdict(rows),
        "aasr": average_success({str(row["attack"]): cast(float, row["asr"]) for row in rows}),
        "epsilon": run.guarantee.epsilon if private(run.guarantee) else "inf",
        "delta": run.guarantee.delta,
        "unit_attacked": "example",
        "unit_protected": run.guarantee.protected,
        "observer": str(run.guarantee.observer),
        "control": control,
    }
    _keep(folder, table)
    return table


def invert_run(
    folder: str | Path,
    attacks: Sequence[str | Entry],
    settings: InversionSettings | None = None,
    *,
    make: Make | None = None,
    federation: Federation | None = None,
    say: Say = quiet,
) -> Json:
    """Attack the messages, or the classes, of the run in `folder`; the table as plain data, also kept there as inversion.json.

    As in `attack_run`, what this run does not allow is named under `refused`; it is an error if nothing is left.
    """
    from sordino.attacks.inversion.runs import InversionSettings, Inverted, invert
    from sordino.federation.folder import RunFolder
    from sordino.gradients.flat import Flat

    settings, folder = settings or InversionSettings(), Path(folder)
    chosen = [one if isinstance(one, Entry) else entry(one) for one in attacks]
    for one in chosen:
        if one.kind != "inversion":
            raise BadInput(f"{one.name} is an attack of kind {one.kind}; call attack_run for it.")
    plan = Plan.load(RunFolder.reopen(folder).plan)
    weights, statement = _ended(folder)
    if plan.task != CLASSIFICATION:
        raise BadInput(
            f"inversion takes a message apart by classes, and this run is a {plan.task}; there is none for it yet."
        )
    if plan.preparation is not None:
        raise BadInput(
            f"the model of this run takes what preparation {plan.preparation.kind} makes of a record, and inversion looks for "
            "records; attack a run without a preparation."
        )
    plan, make, federation = _assembled(*_after_prelude(plan, make, federation, folder, statement))
    module = make(plan.seed)
    _load(module, weights)
    proven = _guarantee(statement)
    run = Inverted(
        plan=plan,
        federation=federation,
        make=make,
        theta=Flat(module).vector().numpy(),
        rounds=int(statement["rounds"]),
        epsilon=proven.epsilon,
        delta=proven.delta,
        key=hashlib.sha256(weights.read_bytes()).hexdigest(),
    )
    table = invert(run, folder, chosen, settings, say)
    if not table["results"]:
        raise BadInput(table["refused"][0]["why"])
    _redraw(folder)
    return table


@dataclass(frozen=True, eq=False)
class Opened:
    """A run folder, ready to be attacked."""

    target: Target
    guarantee: Guarantee
    key: str  # of what was trained


def _open(folder: Path, make: Make | None, federation: Federation | None, settings: Settings, say: Say) -> Opened:
    from sordino.federation import checkpoint
    from sordino.federation.folder import RunFolder
    from sordino.gradients.flat import Flat

    run = RunFolder.reopen(folder)
    plan = Plan.load(run.plan)
    weights, statement = _ended(folder)
    plan, make, federation = _assembled(*_after_prelude(plan, make, federation, folder, statement))
    module = make(plan.seed)
    _load(module, weights)
    target = Target(
        plan=plan,
        cast=deal(federation, settings.protocol),
        make=make,
        theta=Flat(module).vector().numpy(),
        rounds=int(statement["rounds"]),
        kept=lambda: checkpoint.kept(run.models),
        folder=folder / "attack",
        workers=settings.workers,
        seed=settings.protocol.seed,
        say=say,
    )
    key = hashlib.sha256(weights.read_bytes()).hexdigest()
    return Opened(target, _guarantee(statement), key)


def _ended(folder: Path) -> tuple[Path, Json]:
    """The weights and the statement of a run that has ended."""
    weights, said = folder / "model.safetensors", folder / "statement.json"
    if not weights.exists() or not said.exists():
        raise BadInput(f"the run in {folder} has not ended; finish it with sordino train --resume {folder}.")
    return weights, json.loads(said.read_text())


def _after_prelude(
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
    if plan.private and statement["multiplier"] is not None:
        rest = rest.replace(epsilon=None, multiplier=statement["multiplier"])
    if plan.preparation is not None:
        raw = raw.mapped(prelude.model_input(folder, plan, raw.input_shape))
    return rest, make, raw if raw.test is not None or raw.held_out is None else raw.tested_on(raw.held_out)


def _assembled(plan: Plan, make: Make | None, federation: Federation | None) -> tuple[Plan, Make, Federation]:
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


def _load(module: Any, weights: Path) -> None:
    from sordino.federation.checkpoint import load_weights

    load_weights(module, weights)


def _guarantee(statement: Json) -> Guarantee:
    if statement["epsilon"] == "inf" or not statement.get("proven", True):
        return Guarantee()
    return Guarantee(
        epsilon=float(statement["epsilon"]),
        delta=float(statement["delta"]),
        unit=Unit(statement["unit"]),
        relation=Relation(statement["relation"]),
        observer=Observer(statement["observer"]),
    )


# ---- lines, and where they are kept ----------------------------------------------------------------------------------


def _rows(
    run: Opened, folder: Path, chosen: Sequence[Entry], settings: Settings
) -> tuple[list[Json], list[dict[str, str]]]:
    """A line for each attack that could be played, and the reasons of those that could not."""
    kept = {} if settings.fresh else {line.get("key"): line for line in _read(folder).get("results", [])}
    rows, refused = [], []
    for i, one in enumerate(chosen):
        run.target.say("attacks", i, len(chosen))
        key = _line_key(run, one, settings)
        line = kept.get(key)
        if line is None:
            try:
                line = play(run.target, one, run.guarantee, **settings.changes(one)) | {"key": key}
            except BadInput as error:
                refused.append({"attack": one.name, "why": str(error)})
                continue
            _write(folder, _merged(folder, [line]))  # at once: an interruption costs one attack
        rows.append({name: value for name, value in line.items() if name not in ("control_auc", "informative")})
    run.target.say("attacks", len(chosen), len(chosen))
    return rows, refused


def _line_key(run: Opened, one: Entry, settings: Settings) -> str:
    """What a line depends on."""
    facts = [FORMAT, run.key, run.target.plan.digest(), asdict(settings.protocol), one.name, asdict(run.guarantee)]
    facts.append(repr(one.build(**settings.changes(one))))
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _read(folder: Path) -> Json:
    try:
        found = json.loads((folder / "attack.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _keep(folder: Path, table: Json) -> None:
    """Write the table, with lines of other attacks that were there, and redraw the report."""
    _write(folder, {**table, "results": _merged(folder, table["results"])["results"]})
    _redraw(folder)


def _redraw(folder: Path) -> None:
    from sordino.report.run import write_report

    write_report(folder)


def _merged(folder: Path, lines: list[Json]) -> Json:
    """What is kept, with these lines in place of older ones of the same attacks."""
    kept, here = _read(folder), {line["attack"] for line in lines}
    older = [line for line in kept.get("results", []) if line.get("attack") not in here]
    return {**kept, "results": [*lines, *older]}


def _write(folder: Path, table: Json) -> None:
    write_atomically(folder / "attack.json", json.dumps(table, indent=2) + "\n", durable=True)


# ---- the undefended control ------------------------------------------------------------------------------------------


def _control(run: Opened, folder: Path, chosen: Sequence[Entry], settings: Settings, say: Say) -> list[Json] | None:
    """What the same attacks achieve on the control; None where there is none."""
    if settings.control == "none" or not private(run.guarantee):
        return None
    where = folder / "attack" / "control" if settings.control == "auto" else Path(settings.control)
    if settings.control == "auto" and not (where / "model.safetensors").exists():
        _train_control(run.target, where, settings, say)
    target = run.target
    opened = _open(
        where, target.make, target.cast.federation, settings, lambda *told: say(f"control: {told[0]}", *told[1:])
    )
    if private(opened.guarantee):
        raise BadInput(
            f"the control {where} is private itself; give the run of a method without noise, such as fedavg."
        )
    rows, _ = _rows(opened, where, chosen, settings)
    _keep(where, {"run": str(where), "results": rows})
    return rows


def _train_control(target: Target, where: Path, settings: Settings, say: Say) -> None:
    import shutil

    from sordino.engines import EngineOptions
    from sordino.training import train

    shutil.rmtree(where, ignore_errors=True)  # one that was cut short
    plan = control_plan(target.plan, target.cast.federation.examples)
    speed = EngineOptions("auto", settings.workers, keep_models=max(1, plan.rounds // 20), checkpoint_every=plan.rounds)
    model = target.make(plan.seed)
    seen = lambda progress: say("control", progress.round, progress.rounds)  # noqa: E731
    train(model, target.cast.federation, plan, out=where, options=speed, on_round=seen)


def control_plan(plan: Plan, examples: int) -> Plan:
    """The plan without its defence: as many passes over the data, averaged without clipping or noise.

    Clients that sent single gradients take local steps instead, with Adam: steps that were tuned for clipped gradients
    need not suit whole ones.
    """
    bare: Json = {
        "method": "fedavg", "variant": Variant.PUBLISHED, "mechanism": "gaussian", "options": {}, "unit": Unit.CLIENT,
        "observer": Observer.PUBLIC, "relation": None, "epsilon": None, "multiplier": None, "weights": "size",
        "weight_cap": None, "canaries": 0, "secure": False, "defence": None, "personal": None, "steps": "mean",
        "lr_schedule": "constant",
    }  # fmt: skip
    if not isinstance(plan.scheme, Pooled):
        return plan.replace(**bare)
    rate = 1.0 if plan.sampling == "none" else min(1.0, plan.batch_size / examples)
    own = {"optimizer": "adam", "lr": 1e-3, "batch_size": 32, "local_epochs": 1, "sampling": "none", "cohort": None}
    server = {"server_optimizer": "sgd", "server_lr": 1.0, "rounds": max(1, math.ceil(plan.rounds * rate))}
    return plan.replace(**bare, **own, **server)
