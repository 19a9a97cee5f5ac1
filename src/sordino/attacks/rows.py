"""From a guess to a line of the table: what was achieved, with intervals, beside what the proof allows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sordino.attacks import metrics
from sordino.attacks.ceilings import Ceiling, ceiling_for_record
from sordino.attacks.game import Game, Guess
from sordino.attacks.protocol import AttackSplit
from sordino.attacks.replay import server_sees_messages
from sordino.attacks.table import EVERY_TASK, Entry
from sordino.attacks.target import Target
from sordino.data.schema import CLASSIFICATION
from sordino.errors import BadInput
from sordino.plain import Json
from sordino.plan import Plan
from sordino.privacy.vocabulary import Observer, Relation, Unit

CONTROL = 0.55  # the AUC that an attack must reach on an undefended model to tell anything about a defended one


@dataclass(frozen=True)
class Guarantee:
    """What is proven of the target. Epsilon is infinite if nothing is."""

    epsilon: float = math.inf
    delta: float = 0.0
    unit: Unit = Unit.EXAMPLE
    relation: Relation = Relation.ADD_REMOVE
    observer: Observer = Observer.PUBLIC

    @property
    def protected(self) -> str:
        """What the proof protects: the unit, or none where there is no finite epsilon."""
        return "none" if math.isinf(self.epsilon) else str(self.unit)

    def covers(self, entry: Entry, plan: Plan) -> bool:
        """Whether the proof speaks of an attacker with this view.

        Released models are within every proof, also for a client that tampers: what others send is protected whatever
        it does. Messages of single clients are within a proof towards the server only. A server that tampers is within
        a proof that does not trust it with the noise.
        """
        if entry.view == "client":
            return True
        if entry.active or server_sees_messages(plan):
            return self.observer == Observer.SERVER or (
                self.observer == Observer.SECAGG_SERVER and not server_sees_messages(plan)
            )
        return True

    def ceiling(self, entry: Entry, plan: Plan) -> Ceiling:
        """The most that this attack can reach against the run, if the proof covers what it attacks."""
        if not self.covers(entry, plan):
            return Ceiling(math.inf)
        return ceiling_for_record(self.epsilon, self.delta, self.unit, self.relation)


def play(target: Target, entry: Entry, guarantee: Guarantee, **changes: object) -> Json:
    """Let one attack play against the target; its line."""
    if target.plan.task != CLASSIFICATION and not entry.every_task:
        raise BadInput(
            f"{entry.name} looks at the classes that a model names, and this run is a {target.plan.task}; use {' or '.join(EVERY_TASK)}."
        )
    started = time.perf_counter()
    attack = entry.build(**changes)
    guess = attack.guess(Game(target, attack.reach))
    made = row(entry, guess, target.cast, guarantee, target.plan)
    made["seconds"] = round(time.perf_counter() - started, 3)
    return made


def row(entry: Entry, guess: Guess, cast: AttackSplit, guarantee: Guarantee, plan: Plan) -> Json:
    """One line, as plain data."""
    members, scores = cast.member[cast.judged], np.asarray(guess.scores, np.float64)
    ceiling = guarantee.ceiling(entry, plan)
    rate, interval = metrics.success_rate(scores, members, guess.threshold)
    found: Json = {
        "attack": entry.name,
        "auc": metrics.auc(scores, members),
        "auc_ci": list(metrics.auc_interval(scores, members)),
    }
    for name, false_rate in metrics.RATES.items():
        some = metrics.found_at(scores, members, false_rate)
        found |= {name: some.rate, f"{name}_ci": list(some.interval())}
    found |= {"asr": rate, "asr_ci": list(interval), "auc_ceiling": ceiling.auc}
    found |= {f"{name}_ceiling": ceiling.found_at(false_rate) for name, false_rate in metrics.RATES.items()}
    found |= {
        "asr_ceiling": ceiling.success_rate,
        "within_ceiling": found["auc_ci"][0] <= ceiling.auc,
        "members": int(members.sum()),
        "non_members": int((~members).sum()),
        "unit_attacked": "example",
        "unit_protected": guarantee.protected,
        "view": entry.view,
        "active": entry.active,
        "notes": [*guess.notes, *_notes(entry, guarantee, plan, int((~members).sum()), cast)],
    }
    return found


def _notes(entry: Entry, guarantee: Guarantee, plan: Plan, non_members: int, cast: AttackSplit) -> list[str]:
    said = []
    rough = [name for name, rate in metrics.RATES.items() if non_members * rate < metrics.ENOUGH]
    if rough:
        need = math.ceil(metrics.ENOUGH / min(metrics.RATES[name] for name in rough))
        said.append(
            f"{', '.join(rough)} rest on few false alarms: {non_members} non-members were judged, {need} would do."
        )
    if entry.view == "server" and not server_sees_messages(plan):
        said.append("The server sees sums only here, so it learns what the released models tell.")
    if math.isfinite(guarantee.epsilon) and not guarantee.covers(entry, plan):
        said.append(f"The proof, towards observer {guarantee.observer}, does not cover this attacker.")
    if math.isfinite(guarantee.epsilon) and guarantee.unit == Unit.CLIENT:
        twice = "" if guarantee.relation == Relation.REPLACE_ONE else ", for which epsilon counts twice"
        said.append(
            f"A record is attacked and clients are protected: the ceiling is for a change of one client's data{twice}."
        )
    if cast.repeated:
        said.append(
            f"{cast.repeated} test records were left out: the training data, or the test split itself, repeats them."
        )
    return said


def with_control(
    rows: Sequence[dict[str, object]], control: Sequence[dict[str, object]] | None
) -> list[dict[str, object]]:
    """Each line with what the same attack achieved on the undefended control, and whether it tells anything."""
    reached = {line["attack"]: line for line in control or ()}
    out = []
    for line in rows:
        found = reached.get(line["attack"])
        control_auc = None if found is None else found["auc"]
        out.append({**line, "control_auc": control_auc, "informative": None if found is None else succeeds(found)})
    return out


def succeeds(line: Json) -> bool:
    """Clearly above chance: the interval, and by more than a trace."""
    return line["auc_ci"][0] > 0.5 and line["auc"] >= CONTROL


def ranked(entries: Sequence[Entry]) -> list[Entry]:
    """Cheap attacks first; those that train models last, so that an interruption costs least."""
    cost: Callable[[Entry], int] = lambda one: (one.active or one.view == "server") + 2 * bool(one.models)  # noqa: E731
    return sorted(entries, key=cost)


def private(guarantee: Guarantee) -> bool:
    """Whether a finite epsilon is proven."""
    return math.isfinite(guarantee.epsilon)
