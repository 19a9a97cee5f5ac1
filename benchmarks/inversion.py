"""Inversion of messages under several defences (FedMAP's table 1), KED-MI on MNIST, and the speed of the gradient-matching step.

    python benchmarks/inversion.py --out runs/inversion [--small] [--json] [--page]
    python benchmarks/inversion.py --out runs/inversion --classes [--page]      KED-MI
    python benchmarks/inversion.py --speed [--json]

Every line attacks the message that the client's own code makes in round one, of records that no setting was chosen on. `dlg` attacks the
sigmoid LeNet that it was shown on, `ig` and `gi` a ReLU network. Lines are kept in the folder, and an attack that was interrupted goes on where
it was. `--small` takes few steps, to see that all of it runs. `--page` puts the tables on docs/attacks.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from page import fill
from torch.nn import functional as F

from sordino import Federation, Plan
from sordino.attacks.inversion import metrics, robustness
from sordino.attacks.inversion.classes import trained_judge
from sordino.attacks.inversion.dlg import DLG
from sordino.attacks.inversion.gi import GI
from sordino.attacks.inversion.gradient import Matcher, squared
from sordino.attacks.inversion.ig import IG
from sordino.attacks.inversion.ked_mi import KedMI, answers_of
from sordino.attacks.inversion.message import observe, one_message, released
from sordino.attacks.inversion.observed import ObservedMessage, Victim
from sordino.attacks.inversion.pictures import png, side_by_side
from sordino.attacks.inversion.progress import Progress
from sordino.attacks.networks import Lesson, answer, learn
from sordino.data.sets import load
from sordino.gradients.flat import Flat
from sordino.models import build
from sordino.privacy.randomness import SERVER, stream

CLIENTS, NEAR = 100, 0.5
BASE: dict[str, Any] = {"clients": CLIENTS, "partition": "iid", "rounds": 20, "batch_size": 64, "lr": 0.1}
DEFENCES: dict[str, dict[str, Any]] = {
    "none": {"method": "fedavg", "variant": "published", "unit": "client", "observer": "public", "sampling": "none"},
    "dp": {"method": "dp-fedavg", "unit": "example", "observer": "server", "epsilon": 8.0},
    "adact": {"method": "adact", "unit": "example", "observer": "secagg-server", "epsilon": 8.0},
    "fedmap": {"method": "fedmap", "unit": "example", "observer": "server", "epsilon": 8.0},
}
NETWORKS = {"dlg": "lenet-sigmoid", "ig": "cnn-cifar", "gi": "cnn-cifar"}
ATTACKS: dict[str, Any] = {"dlg": DLG(), "ig": IG(), "gi": GI()}


@dataclass(frozen=True)
class Line:
    """One attack under one defence."""

    data: str
    defence: str
    attack: str
    batch: int


def lines(data: str, defences: list[str]) -> Iterator[Line]:
    for defence in defences:
        for batch in (1, 4):
            for attack in ATTACKS:
                yield Line(data, defence, attack, batch)


def run(data: str, defences: list[str], out: Path, small: bool) -> list[dict[str, Any]]:
    federation = Federation.from_dataset(data, partition="iid", clients=CLIENTS, seed=0)
    found = []
    for line in lines(data, defences):
        path = out / f"{line.data}-{line.defence}-{line.attack}-{line.batch}.json"
        if not path.exists():
            told(f"{line.data} {line.defence} {line.attack} batch {line.batch}")
            row = attacked(line, federation, out, small)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(row))
        found.append(json.loads(path.read_text()))
    return found


def attacked(line: Line, federation: Federation, out: Path, small: bool) -> dict[str, Any]:
    name = NETWORKS[line.attack]
    make = lambda seed: build(name, federation.input_shape, federation.classes, seed)  # noqa: E731
    plan = Plan(data=line.data, model=name, **BASE, **DEFENCES[line.defence])
    victim = Victim.of(federation, make)
    attack = replace(ATTACKS[line.attack], steps=20) if small else ATTACKS[line.attack]
    public = federation.prepare(np.asarray(federation.raw_test[0][:64])) if federation.raw_test else None
    found, shown, seconds = [], [], 0.0
    for i, (client, records) in enumerate(victims(federation, line.batch)):
        message = observe(plan, make, federation, client, records)
        progress = Progress(out / f"{line.defence}-{line.attack}-{line.batch}-{i}.safetensors")
        made = attack(victim, message, progress, public=public)
        originals = victim.pixels(federation[client][0][records])
        each, rows = metrics.compare(originals, victim.pixels(made.images))
        found += each
        shown.append(side_by_side(originals, victim.pixels(made.images)[rows]))
        seconds += made.seconds
        progress.forget()
    (out / f"{line.data}-{line.defence}-{line.attack}-{line.batch}.png").write_bytes(png(np.concatenate(shown, 2)))
    return {
        **vars(line), "network": name, **metrics.average(found).to_json(), "ssim_each": [one.ssim for one in found],
        "messages": len(shown), "seconds": seconds / len(shown), "bound": message.bound, "multiplier": message.multiplier,
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
    alone = one_message(plan, message)
    from_message = 1.0 if alone is None else robustness.reconstruction_bound(alone, kappa)
    return {"prior_chance": kappa, "message_at_most": from_message, "at_most": allowed}


_CHANCE: dict[str, float] = {}


def victims(federation: Federation, batch: int) -> list[tuple[int, np.ndarray]]:
    """Two messages of one record, one of four: the same for every defence and attack."""
    rng = stream(7, batch, SERVER, "inversion-study")
    picked = [(int(rng.integers(10, federation.clients)), batch) for _ in range(2 if batch == 1 else 1)]
    return [(k, np.sort(rng.choice(federation.size(k), size, replace=False))) for k, size in picked]


# ---- KED-MI ------------------------------------------------------------------------------------------------------------


def classes(small: bool) -> dict[str, Any]:
    """MNIST: digits 0 to 4 are private, 5 to 9 public. The target is trained without a defence."""
    data, private = load("mnist"), 5
    assert data.normalise is not None
    y, rng = np.asarray(data.y).astype(np.int64), stream(0, 0, SERVER, "inversion-classes")
    mine, public = (rng.permutation(np.flatnonzero(side)) for side in (y < private, y >= private))
    train, judged, test = mine[:4000], mine[4000:14000], mine[14000:16000]
    x = data.normalise(data.x[train])
    lesson = Lesson(1e-3, 3, 64, held_out=0)
    target = learn(lambda: build("cnn-mnist", (1, 28, 28), private), [x], y[train], F.cross_entropy, lesson, rng)
    right = float((answer(target, [data.normalise(data.x[test])]).argmax(1) == y[test]).mean())
    population = Federation.from_arrays([(data.x[judged], y[judged])], classes=private, normalise=data.normalise)
    victim = Victim.of(population, lambda seed: build("cnn-mnist", (1, 28, 28), private, seed))
    judge = trained_judge(population, victim, 0)
    attack = KedMI(epochs=1, recovery=10, seeds=1) if small else KedMI(epochs=6)
    found = attack(victim, answers_of(target), data.normalise(data.x[np.sort(public[:6400])]), judge)
    return {
        "data": "mnist", "private": "0 to 4", "public": "5 to 9", "accuracy": right, "top1": found.top1, "top5": found.top5,
        "top1_by_seed": list(found.by_seed), "chance": found.chance, "times_chance": found.top1 / found.chance,
        "seconds": found.seconds,
    }  # fmt: skip


# ---- speed -------------------------------------------------------------------------------------------------------------


def published_step(module: torch.nn.Module, target: list[torch.Tensor]) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """DLG's pseudo-code in plain PyTorch: the gradient with its graph, the distance, and backward through both."""

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        x.grad = y.grad = None
        module.zero_grad()
        loss = torch.mean(torch.sum(-F.softmax(y, -1) * F.log_softmax(module(x), -1), 1))
        made = torch.autograd.grad(loss, list(module.parameters()), create_graph=True)
        sum(((a - b) ** 2).sum() for a, b in zip(made, target)).backward()  # type: ignore[union-attr]

    return step


def speed(repeats: int = 100) -> list[dict[str, Any]]:
    """Milliseconds of processor time of one step on one core, the median."""
    torch.set_num_threads(1)
    cases = ((1, 1), (1, 4), (4, 1))
    return [timed(name, *case, repeats) for name in ("lenet-sigmoid", "cnn-cifar", "lenet") for case in cases]


def timed(name: str, seeds: int, batch: int, repeats: int) -> dict[str, Any]:
    """The published step and the fast one in turn, so that a busy machine disturbs both alike.

    Several seeds are one pass of the fast step. The published one takes them one after another.
    """
    make = lambda seed: build(name, (3, 32, 32), 10, seed)  # noqa: E731
    ends = np.zeros((3, 1, 1), np.float32), np.ones((3, 1, 1), np.float32)
    victim, flat = Victim(make, (3, 32, 32), 10, *ends), Flat(make(0))
    rng = stream(0, batch, SERVER, "inversion-speed")
    wanted = (rng.standard_normal(flat.size) * 0.01).astype(np.float32)
    matcher = Matcher(victim, ObservedMessage(wanted, "gradient", flat.vector().numpy(), batch))
    assert matcher.fast
    distance = squared(matcher.target)
    x = torch.from_numpy(rng.random((seeds, batch, 3, 32, 32)).astype(np.float32))
    y = torch.from_numpy(rng.standard_normal((seeds, batch, 10)).astype(np.float32))
    plain = published_step(make(0), [part.clone() for part in flat.split(matcher.target)])
    free = [(a.clone().requires_grad_(), b.clone().requires_grad_()) for a, b in zip(x, y)]
    roads: list[Callable[[], object]] = [
        lambda: [plain(*one) for one in free],
        lambda: matcher.step(x, F.softmax(y, -1), distance),
    ]
    taken: list[list[float]] = [[], []]
    for _ in range(repeats):
        for mine, road in zip(taken, roads):
            started = time.thread_time()  # of this thread alone: other processes on the machine do not count
            road()
            mine.append(1e3 * (time.thread_time() - started))
    plain_ms, fast_ms = (float(np.median(mine)) for mine in taken)
    found = {"network": name, "seeds": seeds, "batch": batch, "plain": plain_ms, "fast": fast_ms}
    return {**found, "times": plain_ms / fast_ms}


# ---- pages -------------------------------------------------------------------------------------------------------------


def by_defence(found: list[dict[str, Any]]) -> Iterator[str]:
    control = {(row["attack"], row["batch"]): row["ssim"] for row in found if row["defence"] == "none"}
    yield "| defence | batch | attack | network | MSE | PSNR | SSIM | this message, at most | the run, at most | undefended control |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in found:
        said = "-"
        if row["defence"] != "none":
            reached = control[row["attack"], row["batch"]]
            said = f"SSIM {reached:.3f}" + ("" if reached >= NEAR else ": failed, tells nothing")
        yield (
            f"| {row['defence']} | {row['batch']} | `{row['attack']}` | {row['network']} | {row['mse']:.4f} | {row['psnr']:.1f} "
            f"| {row['ssim']:.3f} | {row['message_at_most']:.2g} | {row['at_most']:.2g} | {said} |"
        )


def by_speed(found: list[dict[str, Any]]) -> Iterator[str]:
    yield "| network | seeds | batch | published, ms | fast, ms | times as fast |"
    yield "|---|---|---|---|---|---|"
    for row in found:
        yield f"| {row['network']} | {row['seeds']} | {row['batch']} | {row['plain']:.2f} | {row['fast']:.2f} | {row['times']:.1f} |"


def by_class(row: dict[str, Any]) -> Iterator[str]:
    yield "| target | accuracy | judged right, top 1 | by seed | chance | times chance |"
    yield "|---|---|---|---|---|---|"
    seeds = ", ".join(f"{one:.0%}" for one in row["top1_by_seed"])
    yield (
        f"| MNIST {row['private']}, public {row['public']} | {row['accuracy']:.1%} | {row['top1']:.1%} | {seeds} "
        f"| {row['chance']:.0%} | {row['times_chance']:.1f} |"
    )


def told(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/inversion")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--defence", default=",".join(DEFENCES), help="which; none is the control of the others")
    parser.add_argument("--small", action="store_true", help="few steps: only to see that it runs")
    parser.add_argument("--classes", action="store_true", help="only KED-MI")
    parser.add_argument("--speed", action="store_true", help="only the gradient-matching step")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", action="store_true", help="put the table on docs/attacks.md")
    args = parser.parse_args()
    out = Path(args.out) / ("small" if args.small else "full")
    out.mkdir(parents=True, exist_ok=True)
    found: Any
    if args.speed:
        found, name = speed(), "inversion speed"
        table = by_speed(found)
    elif args.classes:
        path = out / "classes.json"
        if not path.exists():
            path.write_text(json.dumps(classes(args.small)))
        found, name = json.loads(path.read_text()), "inversion classes"
        table = by_class(found)
    else:
        found, name = run(args.data, args.defence.split(","), out, args.small), f"inversion {args.data}"
        table = by_defence(found)
    text = "\n".join(table)
    if args.page:
        fill("attacks.md", name, text)
    print(json.dumps(found) if args.json else text)


if __name__ == "__main__":
    main()
