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
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

from sordino.attacks.metrics import average_success
from sordino.attacks.opening import Opened, Settings, ended, finished, open_run
from sordino.attacks.rows import play, private, ranked, with_control
from sordino.attacks.shadows import Make, Say, quiet
from sordino.attacks.table import Entry, entry
from sordino.attacks.target import Target
from sordino.data.schema import CLASSIFICATION
from sordino.errors import BadInput
from sordino.files import write_atomically
from sordino.plain import Json
from sordino.plan import Plan
from sordino.privacy.vocabulary import Observer, Unit, Variant
from sordino.report import attacked
from sordino.schemes.pooled import Pooled

if TYPE_CHECKING:
    from sordino.attacks.inversion.runs import InversionSettings
    from sordino.federation.population import Federation

CONTROLS = ("auto", "none")
FORMAT = 1  # of what is kept; a change makes older lines void


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
    run = open_run(folder, make, federation, settings, say)
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

    settings, folder = settings or InversionSettings(), Path(folder)
    chosen = [one if isinstance(one, Entry) else entry(one) for one in attacks]
    for one in chosen:
        if one.kind != "inversion":
            raise BadInput(f"{one.name} is an attack of kind {one.kind}; call attack_run for it.")
    plan = Plan.load(RunFolder.reopen(folder).plan)
    ended(folder)
    if plan.task != CLASSIFICATION:
        raise BadInput(
            f"inversion takes a message apart by classes, and this run is a {plan.task}; there is none for it yet."
        )
    if plan.preparation is not None:
        raise BadInput(
            f"the model of this run takes what preparation {plan.preparation.kind} makes of a record, and inversion looks for "
            "records; attack a run without a preparation (train --recipe none, or --prepare none)."
        )
    end = finished(plan, make, federation, folder)
    run = Inverted(
        plan=end.plan,
        federation=end.federation,
        make=end.make,
        theta=end.theta,
        rounds=end.rounds,
        epsilon=end.guarantee.epsilon,
        delta=end.guarantee.delta,
        key=end.key,
    )
    table = invert(run, folder, chosen, settings, say)
    if not table["results"]:
        raise BadInput(table["refused"][0]["why"])
    _redraw(folder)
    return table


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
    opened = open_run(
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
        "lr_schedule": "constant", "average": "none",
    }  # fmt: skip
    if not isinstance(plan.scheme, Pooled):
        return plan.replace(**bare)
    rate = 1.0 if plan.sampling == "none" else min(1.0, plan.batch_size / examples)
    own = {"optimizer": "adam", "lr": 1e-3, "batch_size": 32, "local_epochs": 1, "sampling": "none", "cohort": None}
    server = {"server_optimizer": "sgd", "server_lr": 1.0, "rounds": max(1, math.ceil(plan.rounds * rate))}
    return plan.replace(**bare, **own, **server)
