"""Inverting the messages of a finished run: a run folder in, a table out.

Some records are drawn. For each, the message that its client would have sent in the run's first round, and on the trained model, is made
by the client's own code (`message`) and attacked. The control is the same client without clipping and noise, on the same records and the
same model: an attack that fails there (SSIM below 0.5) shows nothing by failing here, and its line says so. A run with a heuristic
defence is attacked twice: as the attack was published, and by an attacker that knows the defence (`adaptive`).

    RUN/inversion.json          the table, with pictures if they were asked for; lines whose settings have not changed are taken from it
    RUN/attack/inversion/       where attacks stand that were interrupted
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sordino.attacks.inversion import message as messages
from sordino.attacks.inversion import metrics, robustness
from sordino.attacks.inversion.attack import MessageAttack, Say
from sordino.attacks.inversion.classes import class_row
from sordino.attacks.inversion.ked_mi import KedMI
from sordino.attacks.inversion.observed import Make, ObservedMessage, Victim
from sordino.attacks.inversion.pictures import encoded
from sordino.attacks.inversion.progress import Progress
from sordino.attacks.inversion.verdict import NEAR, notes, verdict
from sordino.attacks.table import Entry
from sordino.errors import BadInput, one_of, whole
from sordino.plain import Json
from sordino.plan import Plan
from sordino.privacy.randomness import SERVER, stream

if TYPE_CHECKING:
    from sordino.federation.population import Federation

FORMAT = 3  # of what is kept; a change makes older lines void
MODELS = ("first", "trained")
POPULATION, GUESSES, PUBLIC = 200, 8, 64  # test images behind kappa, guesses tried, and images that GI knows


@dataclass(frozen=True)
class InversionSettings:
    """How messages are attacked."""

    batch: int = 1  # records behind one message
    images: int = 2  # messages
    models: tuple[str, ...] = MODELS
    public: str = ""  # data set of KED-MI's public images
    control: bool = True
    seed: int = 0
    fresh: bool = False
    steps: int | None = None  # of each attack; None: the attack's own number
    pictures: bool = False  # keep originals and reconstructions, which show private records

    def __post_init__(self) -> None:
        whole(1, batch=self.batch, images=self.images, steps=1 if self.steps is None else self.steps)
        whole(0, seed=self.seed)
        for one in self.models:
            one_of(MODELS, models=one)

    def changes(self, one: Entry, adaptive: bool = False) -> Json:
        """The settings of one attack that differ from its defaults."""
        own: Json = {"seed": self.seed}
        if adaptive:
            own["adaptive"] = True
        if self.steps is not None:
            own |= {"recovery": self.steps, "epochs": 1} if one.name == "ked-mi" else {"steps": self.steps}
        return own


@dataclass(frozen=True, eq=False)
class Inverted:
    """A run that is attacked: its plan, population and weights. `theta` is None while there is no trained model."""

    plan: Plan
    federation: Federation
    make: Make
    theta: np.ndarray
    rounds: int
    epsilon: float  # proven; infinite if nothing is
    delta: float
    key: str


def invert(
    run: Inverted, folder: Path, chosen: Sequence[Entry], settings: InversionSettings, say: Say = lambda *_: None
) -> Json:
    """The table of these attacks as plain data, also kept in `folder`."""
    kept = {} if settings.fresh else {line.get("key"): line for line in _read(folder).get("results", [])}
    rows: list[Json] = []
    refused: list[dict[str, str]] = []
    study = _Study(run, folder, settings, say)
    for one in chosen:
        for model, adaptive in _kinds(run.plan, one, settings):
            key = _line_key(run, one, model, settings, adaptive)
            line = kept.get(key)
            if line is None or (settings.pictures and not line.get("pictures")):
                try:
                    line = {**study.line(one, model, key, adaptive), "key": key}
                except BadInput as error:
                    refused.append({"attack": one.name, "model": model, "why": str(error)})
                    continue
            rows.append(line if settings.pictures else {**line, "pictures": None})
            _write(folder, rows, refused)  # at once: an interruption costs one attack at most
    return {"run": str(folder), "results": rows, "refused": refused, "verdict": verdict(rows)}


def _kinds(plan: Plan, one: Entry, settings: InversionSettings) -> list[tuple[str, bool]]:
    """Which models are attacked, and whether the attacker knows the defence."""
    if one.name == "ked-mi":
        return [("trained", False)]
    ways = (False,) if plan.defence is None else (False, True)
    return [(model, adaptive) for model in settings.models for adaptive in ways]


@dataclass(frozen=True, eq=False)
class _Attacked:
    """What an attack made of the messages of one plan."""

    found: list[metrics.Likeness]
    originals: np.ndarray
    drawn: np.ndarray
    labels_right: float
    seconds: float
    seen: ObservedMessage


class _Study:
    """What the lines of one table share."""

    def __init__(self, run: Inverted, folder: Path, settings: InversionSettings, say: Say) -> None:
        self.run, self.folder, self.settings, self.say = run, folder, settings, say
        self._ceiling: tuple[float, float] | None = None

    def line(self, one: Entry, model: str, key: str, adaptive: bool) -> Json:
        if one.name == "ked-mi":
            inversion = KedMI(**{**one.options, **self.settings.changes(one)})
            progress = Progress(self.folder / "attack" / "inversion" / f"{key}-classes.safetensors")
            return class_row(self.run, inversion, self.settings.public, self.settings.pictures, progress, self.say)
        victim = Victim.of(self.run.federation, self.run.make, self.run.plan.seed)
        attack = one.build(**self.settings.changes(one, adaptive))
        why = messages.refusal(self.run.plan, self._round(model))
        if why is not None:
            raise BadInput(why)
        here = self._attacked(self.run.plan, attack, victim, model, key)
        control = self._control(attack, victim, model, key)
        row: Json = {"kind": "inversion", "attack": one.name, "model": model, "batch": self.settings.batch}
        row |= {"defence": self.run.plan.defence, "adaptive": adaptive}
        row |= metrics.average(here.found).to_json()
        row |= {"images": [each.to_json() for each in here.found], "window": metrics.window(victim.shape)}
        mean = None if control is None else metrics.average(control.found)
        row |= {
            "control_ssim": None if mean is None else mean.ssim,
            "control_psnr": None if mean is None else mean.psnr,
            "informative": None if mean is None else mean.ssim >= NEAR,
        }
        kappa, ceiling = self.ceiling(victim)
        alone = messages.one_message(self.run.plan, here.seen, math.isfinite(self.run.epsilon))
        shown = None
        if self.settings.pictures:
            beside = {} if control is None else {"undefended": control.drawn}
            shown = encoded(original=here.originals, drawn=here.drawn, **beside)
        row |= {
            "reconstructed": float(np.mean([each.ssim >= NEAR for each in here.found])),
            "prior_chance": kappa,
            "reconstruction_bound": ceiling,
            "message_bound": robustness.reconstruction_bound(alone, kappa) if alone is not None else 1.0,
            "labels_right": here.labels_right,
            "bound": here.seen.bound,
            "multiplier": here.seen.multiplier,
            "view": messages.view_of(self.run.plan),
            "seconds": round(here.seconds, 3),
            "pictures": shown,
        }
        row["notes"] = notes(row)
        return row

    def _round(self, model: str) -> int:
        return 1 if model == "first" else self.run.rounds

    def _attacked(self, plan: Plan, attack: MessageAttack, victim: Victim, model: str, key: str) -> _Attacked:
        federation, found, right, seconds = self.run.federation, [], [], 0.0
        shown: list[tuple[np.ndarray, np.ndarray]] = []
        seen: ObservedMessage | None = None
        for i, (client, records) in enumerate(self.victims()):
            theta = None if model == "first" else self.run.theta
            seen = messages.observe(plan, self.run.make, federation, client, records, theta, self._round(model))
            progress = Progress(self.folder / "attack" / "inversion" / f"{key}-{i}.safetensors")
            made = attack(victim, seen, progress, public=self.public(), say=self.say)
            x, y = federation[client]
            originals = victim.pixels(x[records])
            each, rows = metrics.compare(originals, victim.pixels(made.images))
            found += each
            shown.append((originals, victim.pixels(made.images)[rows]))
            right.append(float(np.mean(np.sort(made.labels) == np.sort(y[records]))))
            seconds += made.seconds
        for i in range(self.settings.images):  # all of them are part of the line now
            (self.folder / "attack" / "inversion" / f"{key}-{i}.safetensors").unlink(missing_ok=True)
        assert seen is not None
        originals, made_images = (np.concatenate(part) for part in zip(*shown))
        return _Attacked(found, originals, made_images, float(np.mean(right)), seconds, seen)

    def _control(self, attack: MessageAttack, victim: Victim, model: str, key: str) -> _Attacked | None:
        """The same attack without the defence; None where there is none to compare with, or nobody asked."""
        plan = self.run.plan
        if not self.settings.control or not messages.defended(plan):
            return None
        return self._attacked(messages.undefended(plan), attack, victim, model, f"{key}-control")

    def victims(self) -> list[tuple[int, np.ndarray]]:
        """Clients and the places of the attacked records there, the same for every attack."""
        rng, federation = stream(self.settings.seed, 0, SERVER, "inversion-records"), self.run.federation
        enough = [k for k in range(federation.clients) if federation.size(k) >= self.settings.batch]
        if not enough:
            raise BadInput(f"no client holds {self.settings.batch} records; ask for a smaller --batch.")
        picked = [int(k) for k in rng.choice(enough, self.settings.images)]
        return [(k, np.sort(rng.choice(federation.size(k), self.settings.batch, replace=False))) for k in picked]

    def public(self) -> np.ndarray | None:
        test = self.run.federation.raw_test
        return None if test is None else self.run.federation.prepare(np.asarray(test[0][:PUBLIC]))

    def ceiling(self, victim: Victim) -> tuple[float, float]:
        """kappa, and the largest probability of a reconstruction that the proof allows."""
        if self._ceiling is None:
            test = self.run.federation.raw_test
            kappa = 1.0
            if test is not None and len(test[0]) > 1:
                some = victim.pixels(self.run.federation.prepare(np.asarray(test[0][:POPULATION])))
                kappa = robustness.prior_chance(some, NEAR, GUESSES)
            event = messages.released(self.run.plan, self.run.federation)
            if event is not None:
                allowed = robustness.reconstruction_bound(event[0], kappa, event[1])
            else:
                allowed = robustness.bound_from_epsilon(self.run.epsilon, self.run.delta, kappa)
            self._ceiling = (kappa, allowed)
        return self._ceiling


def _line_key(run: Inverted, one: Entry, model: str, settings: InversionSettings, adaptive: bool) -> str:
    facts = [FORMAT, run.key, run.plan.digest(), one.name, model, repr(one.build(**settings.changes(one, adaptive)))]
    facts += [str(asdict(settings) | {"fresh": False, "models": (), "pictures": False})]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _read(folder: Path) -> Json:
    try:
        found = json.loads((folder / "inversion.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(folder: Path, rows: list[Json], refused: list[dict[str, str]]) -> None:
    """Keep these lines in place of older ones of the same attack, model and batch; the verdict is on all that are kept."""
    from sordino.federation.checkpoint import write_atomically

    place = lambda row: (row["attack"], row.get("model"), row.get("batch"), row.get("adaptive", False))  # noqa: E731
    here = {place(row) for row in rows}
    kept = [*rows, *(row for row in _read(folder).get("results", []) if place(row) not in here)]
    table = {"run": str(folder), "results": kept, "refused": refused, "verdict": verdict(kept)}
    write_atomically(folder / "inversion.json", (json.dumps(table, indent=2) + "\n").encode())
