"""Models that the attacker trains: by the same plan and on the same engine as the target, on data of its own choosing.

Two kinds. *Reference* models (Carlini et al. 2022; Zarifzadeh et al. 2024) train on the target's population with half
of the attacked records exchanged: each attacked record is in one of every pair of them. A record that stays keeps its
client, and one that comes in takes a place of its own label where there is one, so that the partition stays what it
was. *Shadow* models (Shokri et al. 2017; Salem et al. 2019) train on half of the population records, and never see an
attacked one.

Models are independent of one another, so they train side by side, each in a process with one thread. Their weights are
kept in the run folder and found again.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from sordino.attacks.protocol import AttackSplit
from sordino.data.schema import CLASSIFICATION
from sordino.errors import BadInput, SordinoError
from sordino.federation.population import Federation
from sordino.files import write_atomically
from sordino.plan import Plan
from sordino.privacy.randomness import SERVER, stream

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

    from torch import nn

Say = Callable[[str, int, int], None]  # what is being done, how far it is, of how much
Make = Callable[[int], "nn.Module"]  # a fresh model, initialised from a seed


def quiet(what: str, done: int, total: int) -> None:
    """For those who do not want to be told."""


@dataclass(frozen=True, eq=False)
class Job:
    """One model to train."""

    name: str
    seed: int
    build: Callable[[], Federation]


# ---- which data ------------------------------------------------------------------------------------------------------


def reference_sides(cast: AttackSplit, count: int, seed: int) -> np.ndarray:
    """bool [count, attacked]: which attacked records each reference model trains on. Pairs complement each other."""
    total = len(cast.row)
    inside = np.zeros((count, total), bool)
    for pair in range((count + 1) // 2):
        chosen = stream(seed, pair, SERVER, "attack-reference-side").permutation(total)[: total // 2]
        inside[2 * pair, chosen] = True
        if 2 * pair + 1 < count:
            inside[2 * pair + 1] = ~inside[2 * pair]
    return inside


def reference_federation(cast: AttackSplit, inside: np.ndarray, rng: np.random.Generator) -> Federation:
    """The target's population with attacked members that are out replaced by attacked non-members that are in."""
    federation, test = cast.federation, cast.federation.raw_test
    assert federation.x is not None and federation.y is not None and test is not None
    vacant = cast.row[cast.member & ~inside]
    coming = cast.row[~cast.member & inside]
    labels, theirs = np.asarray(federation.y), np.asarray(test[1])
    alike = match if federation.task == CLASSIFICATION else any_place
    places = alike(labels[vacant], theirs[coming], rng)
    x, y = np.array(federation.x), np.array(federation.labels(labels))
    x[vacant[places]], y[vacant[places]] = np.asarray(test[0])[coming], theirs[coming]
    return _like(federation, x, y, federation.offsets)


def match(vacant: np.ndarray, coming: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A place for each coming label: one of the same label while there are any, the rest at random.

    >>> rng = np.random.Generator(np.random.PCG64(0))
    >>> int(match(np.array([7, 5, 5]), np.array([5, 6, 5]), rng)[1])
    0
    """
    if len(vacant) != len(coming):
        raise BadInput(f"{len(coming)} records do not fit {len(vacant)} places.")
    places = np.full(len(coming), -1)
    free: list[int] = []
    waiting: list[int] = []
    for label in np.union1d(vacant, coming):
        here, there = rng.permutation(np.flatnonzero(vacant == label)), np.flatnonzero(coming == label)
        both = min(len(here), len(there))
        places[there[:both]] = here[:both]
        free.extend(here[both:])
        waiting.extend(there[both:])
    places[np.array(waiting, np.int64)] = rng.permutation(np.array(free, np.int64))
    return places


def any_place(vacant: np.ndarray, coming: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Where labels are numbers, no two are alike."""
    if len(vacant) != len(coming):
        raise BadInput(f"{len(coming)} records do not fit {len(vacant)} places.")
    return rng.permutation(len(vacant))


def shadow_sides(cast: AttackSplit, count: int, seed: int) -> np.ndarray:
    """bool [count, population]: which population records each shadow model trains on; at most as many as the target."""
    total = len(cast.population)
    size = min(total // 2, cast.federation.examples)
    if size < max(cast.federation.clients, 2):
        raise BadInput(
            f"{total} population records are too few to train a shadow model for {cast.federation.clients} clients on "
            "half of them; use data with a larger test split, or an attack without shadow models."
        )
    inside = np.zeros((count, total), bool)
    for k in range(count):
        inside[k, stream(seed, k, SERVER, "attack-shadow-side").permutation(total)[:size]] = True
    return inside


def shadow_federation(cast: AttackSplit, inside: np.ndarray, rng: np.random.Generator) -> Federation:
    """Population records dealt out in the target's proportions."""
    federation, test = cast.federation, cast.federation.raw_test
    assert federation.sizes is not None and test is not None
    rows = rng.permutation(cast.population[inside])
    sizes = np.maximum(1, np.floor(federation.sizes * (len(rows) / federation.examples)).astype(np.int64))
    while sizes.sum() != len(rows):  # whole numbers: give or take one at the largest
        sizes[np.argmax(sizes)] += 1 if sizes.sum() < len(rows) else -1
    x, y = np.asarray(test[0])[rows], federation.labels(np.asarray(test[1])[rows])
    return _like(federation, x, y, np.concatenate([[0], np.cumsum(sizes)]))


def _like(federation: Federation, x: np.ndarray, y: np.ndarray, offsets: np.ndarray | None) -> Federation:
    return Federation(
        name=federation.name,
        clients=federation.clients,
        classes=federation.classes,
        x=x,
        y=y,
        offsets=offsets,
        normalise=federation.normalise,
        task=federation.task,
    )


# ---- training --------------------------------------------------------------------------------------------------------


def reference_jobs(cast: AttackSplit, inside: np.ndarray, seed: int) -> list[Job]:
    """The trainings of models with and without the judged records."""
    return [_job(cast, "reference", reference_federation, side, k, seed) for k, side in enumerate(inside)]


def shadow_jobs(cast: AttackSplit, inside: np.ndarray, seed: int) -> list[Job]:
    """The trainings of models on the attacker's own records."""
    return [_job(cast, "shadow", shadow_federation, side, k, seed) for k, side in enumerate(inside)]


def _job(cast: AttackSplit, kind: str, build: Callable, side: np.ndarray, k: int, seed: int) -> Job:
    rng = stream(seed, k, SERVER, f"attack-{kind}")
    own_seed = int(rng.integers(2**31))
    return Job(f"{kind}-{k:03d}", own_seed, lambda: build(cast, side, rng))


def train_all(
    jobs: Sequence[Job], make: Make, plan: Plan, folder: Path, workers: int, say: Say = quiet
) -> list[np.ndarray]:
    """The weights of every job's model, from `folder` where they lie already."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{job.name}.safetensors" for job in jobs]
    todo = [(job, file) for job, file in zip(jobs, files) if not file.exists()]
    what = f"{jobs[0].name.rsplit('-', 1)[0]} models" if jobs else "models"
    done = len(jobs) - len(todo)
    say(what, done, len(jobs))
    for _ in _trained(todo, make, plan, workers):
        done += 1
        say(what, done, len(jobs))
    from safetensors.numpy import load_file

    return [load_file(file)["theta"] for file in files]


def _trained(todo: list[tuple[Job, Path]], make: Make, plan: Plan, workers: int) -> Iterator[None]:
    """Train side by side; yields once for each model that is done."""
    if not todo:
        return
    with tempfile.TemporaryDirectory(dir=todo[0][1].parent, prefix=".") as scratch:
        if workers < 2 or len(todo) < 2 or sys.platform != "linux":
            for job, file in todo:
                _train(job, file, make, plan, Path(scratch))
                yield
        else:
            yield from _side_by_side(todo, make, plan, workers, Path(scratch))


def _side_by_side(todo: list[tuple[Job, Path]], make: Make, plan: Plan, workers: int, scratch: Path) -> Iterator[None]:
    context = multiprocessing.get_context("fork")
    waiting = list(todo)
    running: dict[int, tuple[ForkProcess, Job, Path]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                job, file = waiting.pop(0)
                process = context.Process(target=_child, args=(job, file, make, plan, scratch), daemon=True)
                process.start()
                running[process.sentinel] = (process, job, file)
            for sentinel in wait(list(running)):
                process, job, file = running.pop(cast(int, sentinel))
                process.join()
                if not file.exists():
                    raise SordinoError(
                        f"training {job.name} for the attack failed: {_why(scratch / job.name, process.exitcode)}"
                    )
                yield
    finally:
        for process, _, _ in running.values():
            process.kill()
        for process, _, _ in running.values():
            process.join()  # or it would go on writing to what is about to be thrown away


def _child(job: Job, file: Path, make: Make, plan: Plan, scratch: Path) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption is for the parent, which ends its children
    torch.set_num_threads(1)  # forked: no other number is safe
    try:
        _train(job, file, make, plan, scratch)
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 - the parent tells
        (scratch / f"{job.name}.failed").write_text(f"{error}\n{traceback.format_exc()}")
        os._exit(1)


def _why(run: Path, code: int | None) -> str:
    told = run.with_suffix(".failed")
    if not told.exists():
        return f"its process ended with code {code}, most likely because memory ran out; use fewer workers."
    return told.read_text().split("\n", 1)[0]


def _train(job: Job, file: Path, make: Make, plan: Plan, scratch: Path) -> None:
    """One whole run in a folder that is thrown away; only its weights are kept."""
    from sordino.engines import EngineOptions
    from sordino.gradients.flat import Flat
    from sordino.training import train

    speed = EngineOptions("in-process", evaluate_every=plan.rounds, checkpoint_every=plan.rounds)
    own = plan.replace(seed=job.seed, canaries=0)
    result = train(make(job.seed), job.build(), own, out=scratch / job.name, options=speed)
    made = scratch / job.name / file.name
    save_theta(made, Flat(result.model).vector().numpy())
    os.replace(made, file)  # whole or not at all: a process may be ended while it writes
    shutil.rmtree(scratch / job.name, ignore_errors=True)


def save_theta(file: Path, theta: np.ndarray) -> None:
    """Keep the weights of one model. They are on disk when this returns."""
    from safetensors.numpy import save

    write_atomically(file, save({"theta": np.ascontiguousarray(theta)}), durable=True)


def digest(plan: Plan, cast: AttackSplit, kind: str, seed: int) -> str:
    """What the weights in a folder depend on, the number of models aside: a folder's name."""
    facts = [plan.digest(), cast.federation.fingerprint(), kind, seed]
    made = hashlib.sha256(json.dumps(facts).encode())
    for part in (cast.row, cast.member, cast.population):
        made.update(np.ascontiguousarray(part).tobytes())
    return made.hexdigest()[:12]
