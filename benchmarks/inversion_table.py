"""The table of FedMAP: defence x attack, batches of 1 and 4, on one data set. A study of `inversion.py`.

Every line attacks the message that the client's own code makes in round one, of records that no setting was chosen on. `dlg` attacks the
sigmoid LeNet that it was shown on, `ig` and `gi` a ReLU network. Soteria and CENSOR are attacked twice: as the attacks were published, and by
an attacker that knows the defence.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from inversion_rows import Row, add, read

from sordino import Federation, Plan
from sordino.attacks.inversion import metrics, robustness
from sordino.attacks.inversion.attack import MessageAttack
from sordino.attacks.inversion.dlg import DLG
from sordino.attacks.inversion.gi import GI
from sordino.attacks.inversion.ig import IG
from sordino.attacks.inversion.message import observe, one_message, released
from sordino.attacks.inversion.observed import ObservedMessage, Victim
from sordino.attacks.inversion.pictures import png, side_by_side
from sordino.attacks.inversion.progress import Progress
from sordino.models import build
from sordino.privacy.randomness import SERVER, stream

CLIENTS, NEAR = 100, 0.5
BASE: dict[str, Any] = {"clients": CLIENTS, "partition": "iid", "rounds": 20, "batch_size": 64, "lr": 0.1}
OPEN: dict[str, Any] = {
    "method": "fedavg", "variant": "published", "unit": "client", "observer": "public", "sampling": "none",
}  # fmt: skip
DEFENCES: dict[str, dict[str, Any]] = {
    "none": OPEN,
    "dp": {"method": "dp-fedavg", "unit": "example", "observer": "server", "epsilon": 8.0},
    "soteria": {**OPEN, "defence": "soteria"},
    "censor": {**OPEN, "defence": "censor"},
    "fedmap": {"method": "fedmap", "unit": "example", "observer": "server", "epsilon": 8.0},
    "adact": {"method": "adact", "unit": "example", "observer": "secagg-server", "epsilon": 8.0},
}
NETWORKS = {"cifar10": "cnn-cifar", "cifar100": "cnn-cifar", "svhn": "cnn-cifar"}  # of ig and gi; else cnn-mnist
BATCHES = (1, 4)
ATTACKS: dict[str, MessageAttack] = {"dlg": DLG(), "ig": IG(), "gi": GI()}


@dataclass(frozen=True)
class Line:
    """One attack under one defence."""

    data: str
    defence: str
    attack: str
    batch: int
    adaptive: bool = False

    @property
    def network(self) -> str:
        return "lenet-sigmoid" if self.attack == "dlg" else NETWORKS.get(self.data, "cnn-mnist")

    @property
    def name(self) -> str:
        return f"{self.data}-{self.defence}-{self.attack}-{self.batch}" + ("-adaptive" if self.adaptive else "")


def lines(data: str) -> Iterator[Line]:
    for defence, settings in DEFENCES.items():
        for adaptive in (False, True) if "defence" in settings else (False,):
            for batch in BATCHES:
                for attack in ATTACKS:
                    yield Line(data, defence, attack, batch, adaptive)


def run(wanted: list[Line], results: Path, out: Path, small: bool) -> None:
    """A line that is there with the same settings is not attacked again; an attack that was interrupted goes on where it was."""
    federations: dict[str, Federation] = {}
    for line in sorted(wanted, key=lambda line: line.batch):
        attack = attack_of(line, small)
        if read(results).get(line.name, {}).get("settings") == repr(attack):
            continue
        if line.data not in federations:
            federations[line.data] = Federation.from_dataset(line.data, partition="iid", clients=CLIENTS, seed=0)
        print(f"{time.strftime('%H:%M:%S')} {line.name}", file=sys.stderr, flush=True)
        add(results, attacked(line, attack, federations[line.data], out))


def kept(data: str, results: Path) -> list[Row]:
    """The lines of a data set that are there, in the order of the table."""
    rows = read(results)
    return [rows[line.name] for line in lines(data) if line.name in rows]


def attack_of(line: Line, small: bool) -> MessageAttack:
    attack = replace(ATTACKS[line.attack], adaptive=line.adaptive)
    return replace(attack, steps=20) if small else attack  # type: ignore[call-arg]  # each of them has it


def attacked(line: Line, attack: MessageAttack, federation: Federation, out: Path) -> Row:
    make = lambda seed: build(line.network, federation.input_shape, federation.classes, seed)  # noqa: E731
    plan = Plan(data=line.data, model=line.network, **BASE, **DEFENCES[line.defence])
    victim = Victim.of(federation, make)
    public = federation.prepare(np.asarray(federation.raw_test[0][:64])) if federation.raw_test else None
    found, shown, seconds = [], [], 0.0
    for i, (client, records) in enumerate(victims(federation, line.batch, line.defence)):
        message = observe(plan, make, federation, client, records)
        progress = Progress(out / f"{line.name}-{i}.safetensors")
        made = attack(victim, message, progress, public=public)
        originals = victim.pixels(federation[client][0][records])
        each, rows = metrics.compare(originals, victim.pixels(made.images))
        found += each
        shown.append(side_by_side(originals, victim.pixels(made.images)[rows]))
        seconds += made.seconds
    for i in range(len(shown)):
        Progress(out / f"{line.name}-{i}.safetensors").forget()
    (out / f"{line.name}.png").write_bytes(png(np.concatenate(shown, 2)))
    return {
        "name": line.name, "settings": repr(attack), **asdict(line), "network": line.network, **metrics.average(found).to_json(),
        "images": [one.to_json() for one in found], "messages": len(shown), "seconds": seconds / len(shown), "bound": message.bound, "multiplier": message.multiplier,
        "epsilon": plan.epsilon, **ceiling(plan, federation, victim, message),
    }  # fmt: skip


def ceiling(plan: Plan, federation: Federation, victim: Victim, message: ObservedMessage) -> dict[str, float]:
    """What the proof allows any reconstruction from this message and over the whole run, SSIM of 0.5 counting as one."""
    test = federation.raw_test
    assert test is not None
    if federation.name not in _CHANCE:
        some = victim.pixels(federation.prepare(np.asarray(test[0][:200])))
        _CHANCE[federation.name] = robustness.prior_chance(some, NEAR, 8)
    kappa, event = _CHANCE[federation.name], released(plan, federation)
    if event is not None:
        allowed = robustness.reconstruction_bound(event[0], kappa, event[1])
    else:
        allowed = 1.0 if plan.epsilon is None else robustness.bound_from_epsilon(plan.epsilon, plan.delta, kappa)
    alone = one_message(plan, message, plan.private)  # the variants of this table that are private are certified
    from_message = 1.0 if alone is None else robustness.reconstruction_bound(alone, kappa)
    return {"prior_chance": kappa, "message_at_most": from_message, "at_most": allowed}


_CHANCE: dict[str, float] = {}


def victims(federation: Federation, batch: int, defence: str) -> list[tuple[int, np.ndarray]]:
    """Two messages of one record, one of four: the same for every defence and attack.

    Undefended batches of four are attacked in three messages, because these differ more than the attacks do.
    """
    more = (21, 22) if batch > 1 and defence == "none" else ()
    return [picked for seed in (7, *more) for picked in _messages(federation, batch, seed)]


def _messages(federation: Federation, batch: int, seed: int) -> list[tuple[int, np.ndarray]]:
    rng = stream(seed, batch, SERVER, "inversion-study")
    picked = [(int(rng.integers(10, federation.clients)), batch) for _ in range(2 if batch == 1 else 1)]
    return [(k, np.sort(rng.choice(federation.size(k), size, replace=False))) for k, size in picked]


def by_defence(found: list[Row]) -> Iterator[str]:
    control = {(row["attack"], row["batch"]): row["ssim"] for row in found if row["defence"] == "none"}
    yield "| defence | batch | attack | network | MSE | PSNR | SSIM | seconds | this message, at most | the run, at most | undefended control |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for row in found:
        said = "-"
        if row["defence"] != "none":
            reached = control.get((row["attack"], row["batch"]))
            said = "not attacked" if reached is None else f"SSIM {reached:.3f}"
            said += ": failed, tells nothing" if reached is not None and reached < NEAR else ""
        defence = row["defence"] + (", known to the attacker" if row["adaptive"] else "")
        yield (
            f"| {defence} | {row['batch']} | `{row['attack']}` | {row['network']} | {row['mse']:.4f} | {row['psnr']:.1f} "
            f"| {row['ssim']:.3f} | {row['seconds']:.0f} | {row['message_at_most']:.2g} | {row['at_most']:.2g} | {said} |"
        )
    whole = len(list(lines("")))
    if len(found) < whole:
        yield f"\n{len(found)} of {whole} lines; the others were not run."
