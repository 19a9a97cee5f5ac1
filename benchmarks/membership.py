"""Membership inference against an over-fitted model and a certified one, of the same size, on the same records.

    python benchmarks/membership.py --out runs/membership [--small] [--seed 1] [--json] [--page]
    python benchmarks/membership.py --speed

The over-fitted model is trained without privacy on few CIFAR-10 records for many epochs; every attack should succeed on
it, and it is the control of the certified one (example unit, epsilon 4), on which none should. `--small` does the same
on the embedded digits with a hundred records, of which many have wrong labels, in about a minute. `--speed` times rf,
gb and dt on 20,000 records, queries included. `--seed` deals the same records out in another way: who is known, judged
and outside. Models that the attacks train stay in the folder, so a second call is quick. `--page` puts the tables on
docs/attacks.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from page import fill

from sordino import EngineOptions, Federation, Plan, train
from sordino.attacks.protocol import Protocol, deal
from sordino.attacks.rows import Guarantee, play
from sordino.attacks.runs import Settings, attack_run
from sordino.attacks.table import TABLE, entry
from sordino.data.sets import load
from sordino.models import build
from sordino.privacy.randomness import SERVER, stream

CLIENTS = 5
# Beside the table: RMIA and LiRA offline by the number of models that are trained; half of them lack a record.
PAIRS = (("rmia", 2), ("rmia", 4), ("rmia", 8), ("lira-offline", 8), ("lira-offline", 16))


@dataclass(frozen=True)
class Study:
    """One data set, one network, two plans."""

    data: str
    model: str
    members: int
    test: int
    open: dict[str, Any]
    certified: dict[str, Any]
    references: int = 16
    wrong: float = 0.0  # share of labels, of members and non-members alike, that are drawn at random

    def federation(self) -> Federation:
        """Few records to train on, and a test split to take non-members and population records from."""
        data, rng = load(self.data), stream(0, 0, SERVER, "study")
        test_x, test_y = (data.x, data.y) if data.test_x is None or data.test_y is None else (data.test_x, data.test_y)
        labels, test_y = self._labels(data.y, data.classes), self._labels(test_y, data.classes)
        rows, held = rng.permutation(len(data.y)), rng.permutation(len(test_y))[: self.test]
        parts = np.array_split(rows[: self.members], CLIENTS)
        return Federation.from_arrays(
            [(data.x[part], labels[part]) for part in parts],
            test=(np.asarray(test_x)[held], test_y[held]),
            classes=data.classes,
            name=f"{self.data}-{self.members}",
            normalise=data.normalise,
        )

    def _labels(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Wrong labels cannot be learnt from others, only by heart: the digits are too easy without."""
        rng = stream(0, len(labels), SERVER, "study-labels")
        return np.where(rng.random(len(labels)) < self.wrong, rng.integers(0, classes, len(labels)), labels)

    def plan(self, **settings: Any) -> Plan:
        return Plan(data=f"{self.data}-{self.members}", clients=CLIENTS, model=self.model, **settings)


BARE = {"method": "fedavg", "variant": "published", "unit": "client", "observer": "public", "sampling": "none"}
FULL = Study(
    "cifar10",
    "lenet",
    members=2500,
    test=10_000,
    open={**BARE, "rounds": 20, "local_epochs": 5, "batch_size": 25, "lr": 0.002, "optimizer": "adam"},
    certified={
        "method": "dp-fedavg",
        "epsilon": 4.0,
        "rounds": 40,
        "batch_size": 500,
        "lr": 0.5,
        "bound": 0.3,
        "server_optimizer": "momentum",
    },
)
SMALL = Study(
    "digits",
    "dense",
    members=100,
    test=360,
    open={**BARE, "rounds": 15, "local_epochs": 6, "batch_size": 10, "lr": 0.01, "optimizer": "adam"},
    certified={"method": "dp-fedavg", "epsilon": 4.0, "rounds": 30, "batch_size": 40, "lr": 0.5},
    references=4,
    wrong=0.4,
)


def network(study: Study, federation: Federation) -> Any:
    """A maker of fresh models. The digits are too small for the papers' networks, so they get two dense layers."""
    if study.model != "dense":
        return lambda seed: build(study.model, federation.input_shape, federation.classes, seed)
    import torch

    def make(seed: int) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            width = int(np.prod(federation.input_shape))
            return torch.nn.Sequential(
                torch.nn.Flatten(),
                torch.nn.Linear(width, 128),
                torch.nn.ReLU(),
                torch.nn.Linear(128, federation.classes),
            )

    return make


def run(study: Study, out: Path, names: list[str], workers: int, seed: int = 0) -> dict[str, Any]:
    federation = study.federation()
    make = network(study, federation)
    settings = Settings(Protocol(seed=seed), references=study.references, workers=workers)
    found: dict[str, Any] = {}
    for kind, given in (("open", study.open), ("certified", study.certified)):
        folder, plan = out / kind, study.plan(**given)
        if not (folder / "model.safetensors").exists():
            speed = EngineOptions("auto", workers, keep_models=max(1, plan.rounds // 20), checkpoint_every=plan.rounds)
            result = train(make(plan.seed), federation, plan, out=folder, options=speed)
            print(f"{kind}: accuracy {result.accuracy:.3f}, epsilon {result.epsilon:.3f}", file=sys.stderr, flush=True)
        control = "none" if kind == "open" else str(out / "open")
        found[kind] = attack_run(
            folder, names, replace(settings, control=control), make=make, federation=federation, say=told
        )
    found["by models"] = [
        {**attack_run(out / "open", [name], replace(settings, references=count), make=make, federation=federation)["results"][0],
         "references": count}
        for name, count in PAIRS if study.references >= count
    ]  # fmt: skip
    return found


def told(what: str, done: int, total: int) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what} {done}/{total}", file=sys.stderr, flush=True)


def speed() -> dict[str, float]:
    """Seconds of rf, gb and dt on 20,000 records: 10,000 that the attacker knows and 10,000 that are judged."""
    from sordino.attacks.target import Target
    from sordino.gradients.flat import Flat

    study = replace(FULL, members=10_000, test=10_000)
    federation = study.federation()
    make = network(study, federation)
    cast = deal(federation, Protocol(population=1e-9))
    plan = study.plan(**study.open)
    target = Target(plan, cast, make, Flat(make(0)).vector().numpy(), plan.rounds)
    started = time.perf_counter()
    seconds = {name: play(target, entry(name), Guarantee())["seconds"] for name in ("rf", "gb", "dt")}
    return {"records": len(cast.row), **seconds, "together": time.perf_counter() - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/membership")
    parser.add_argument("--small", action="store_true", help="digits, about a minute")
    parser.add_argument("--speed", action="store_true", help="only time rf, gb and dt")
    parser.add_argument("--attack", default=",".join(one.name for one in TABLE if one.kind == "membership"))
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0, help="which records are attacked, known and judged")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", action="store_true", help="put the tables on docs/attacks.md")
    args = parser.parse_args()
    if args.speed:
        print(json.dumps(speed()))
        return
    out = Path(args.out) / ("small" if args.small else "full")
    found = run(SMALL if args.small else FULL, out, args.attack.split(","), args.workers, args.seed)
    told = "\n".join([*by_attack(found), "", *by_models(found)])
    if args.page:
        fill("attacks.md", f"membership{' small' if args.small else ''} {args.seed}", told)
    print(json.dumps(found) if args.json else told)


def by_attack(found: dict[str, Any]) -> Iterator[str]:
    yield "| attack | open: AUC | 95% | TPR at 1% FPR | certified: AUC | 95% | at most |"
    yield "|---|---|---|---|---|---|---|"
    certified = {row["attack"]: row for row in found["certified"]["results"]}
    for row in found["open"]["results"]:
        other = certified[row["attack"]]
        yield (
            f"| `{row['attack']}` | {row['auc']:.3f} | {_interval(row)} | {row['tpr_at_1pct']:.1%} "
            f"| {other['auc']:.3f} | {_interval(other)} | {other['auc_ceiling']:.3f} |"
        )


def by_models(found: dict[str, Any]) -> Iterator[str]:
    yield "| models trained, half of them without a record | AUC | TPR at 1% FPR |"
    yield "|---|---|---|"
    for row in found["by models"]:
        yield f"| `{row['attack']}`, {row['references']} | {row['auc']:.3f} | {row['tpr_at_1pct']:.1%} |"


def _interval(row: dict[str, Any]) -> str:
    low, high = row["auc_ci"]
    return f"{low:.3f} to {high:.3f}"


if __name__ == "__main__":
    main()
