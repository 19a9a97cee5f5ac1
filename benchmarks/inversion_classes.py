"""KED-MI on models without a defence: classes 0 to 4 are private, 5 to 9 public. A study of `inversion.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from inversion_rows import Row
from torch.nn import functional as F

from sordino import Federation
from sordino.attacks.inversion.classes import judge_accuracy, trained_judge
from sordino.attacks.inversion.ked_mi import KedMI, answers_of
from sordino.attacks.inversion.observed import Victim
from sordino.attacks.inversion.pictures import png, side_by_side
from sordino.attacks.inversion.progress import Progress
from sordino.attacks.networks import Lesson, answer, learn
from sordino.data.sets import load
from sordino.models import build
from sordino.privacy.randomness import SERVER, stream

PRIVATE = 5
BRIEF = Lesson(1e-3, 1, 64, held_out=0.1)  # to see that it runs
PUBLIC = 6400  # images that the generator learns from


@dataclass(frozen=True)
class Study:
    """How much the target and the judge learn, and how long the generator does."""

    model: str
    target: Lesson
    judge: Lesson
    records: int  # of the target; the judge has 10,000 others
    attack: KedMI


STUDIES = {
    "mnist": Study(
        "cnn-mnist", Lesson(1e-3, 3, 64, held_out=0), Lesson(1e-3, 3, 64, held_out=0.1), 4000, KedMI(epochs=6)
    ),
    "cifar10": Study(
        "cnn-cifar", Lesson(1e-3, 10, 64, held_out=0), Lesson(1e-3, 6, 64, held_out=0.1), 8000, KedMI(epochs=15, recovery=400),
    ),
}  # fmt: skip


def classes(name: str, out: Path, small: bool) -> Row:
    """The line of one data set. The target, the judge and the attacker see three sets of records without one in common."""
    study, data = STUDIES[name], load(name)
    assert data.normalise is not None
    y, rng = np.asarray(data.y).astype(np.int64), stream(0, 0, SERVER, "inversion-classes")
    mine, public = (rng.permutation(np.flatnonzero(side)) for side in (y < PRIVATE, y >= PRIVATE))
    shape = tuple(data.x.shape[1:])
    make = lambda seed: build(study.model, shape, PRIVATE, seed)  # noqa: E731
    attack = study.attack
    if small:
        attack, study = KedMI(epochs=1, recovery=10, seeds=1), replace(study, target=BRIEF, judge=BRIEF, records=1000)
    train, judged, test = np.split(mine, [study.records, study.records + (1000 if small else 10_000)])
    x = data.normalise(data.x[train])
    target = learn(lambda: make(0), [x], y[train], F.cross_entropy, study.target, rng)
    test = np.sort(test[:2000])
    right = float((answer(target, [data.normalise(data.x[test])]).argmax(1) == y[test]).mean())
    population = Federation.from_arrays(
        [(data.x[judged], y[judged])], classes=PRIVATE, normalise=data.normalise, test=(data.x[test], y[test])
    )
    victim = Victim.of(population, make)
    judge = trained_judge(population, victim, 0, study.judge)
    progress = Progress(out / f"classes-{name}.safetensors")
    found = attack(victim, answers_of(target), data.normalise(data.x[np.sort(public[:PUBLIC])]), judge, progress)
    progress.forget()
    likely = np.stack([population[0][0][np.flatnonzero(population[0][1] == c)[0]] for c in found.classes])
    both = side_by_side(victim.pixels(likely), victim.pixels(found.images[:, 0]))
    (out / f"classes-{name}.png").write_bytes(png(both))
    return {
        "name": f"classes-{name}", "data": name, "private": "0 to 4", "public": "5 to 9", "accuracy": right,
        "judge_accuracy": judge_accuracy(population, judge), "epochs": attack.epochs, "top1": found.top1, "top5": found.top5,
        "top1_by_seed": list(found.by_seed), "chance": found.chance, "times_chance": found.top1 / found.chance,
        "seconds": found.seconds,
    }  # fmt: skip


def by_class(rows: list[Row]) -> Iterator[str]:
    yield "| data | target right | judge right | judged right, top 1 | by seed | chance | times chance | seconds |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        seeds = ", ".join(f"{one:.0%}" for one in row["top1_by_seed"])
        seconds = "not recorded" if row["seconds"] is None else f"{row['seconds']:.0f}"
        yield (
            f"| {row['data']} {row['private']}, public {row['public']} | {row['accuracy']:.1%} | {row['judge_accuracy']:.1%} "
            f"| {row['top1']:.1%} | {seeds} | {row['chance']:.0%} | {row['times_chance']:.1f} | {seconds} |"
        )
    for row in rows:
        if row.get("imported"):
            yield f"\n{row['data']}: {row['imported']}."
