"""The best accuracy at a proven epsilon on two cores: features that need no data, a private mean, a linear head.

    python benchmarks/frontier.py --data cifar10 --epsilon 4 --seeds 0 1 2            on the test set
    python benchmarks/frontier.py --data cifar10 --epsilon 4 --validate               on the last 10,000 training records
    python benchmarks/frontier.py --data cifar10 --epsilon 4 --validate --set head.lr=40 damped=200
    python benchmarks/frontier.py --all --write                                       docs/results/frontier.json

The head is trained by a small simulation of the pooled example unit: 10 clients (Dirichlet 1), each record by its own coin,
clipped gradients, one sum, Gaussian noise, momentum. All noise leaves through `sordino.privacy.mechanisms`, and epsilon is
that of the events which the mechanisms returned, the mean among them. `--validate` is for choosing settings: noise is that of
the whole training set, brought down to the part that trains.

Settings are those of `sordino.features.recipe`; docs/features.md says how they were chosen. Seeds differ in coins and noise; the
partition and the synthetic pictures stay the same.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from sordino.data import partition, sets
from sordino.features import cache, examples, statistics
from sordino.features.extractor import Extractor, extractor
from sordino.features.recipe import Head, Recipe, recipe_for
from sordino.privacy import accounting, events, mechanisms
from sordino.privacy.bounds import Flat
from sordino.privacy.mechanisms import FixedPoint, Sum
from sordino.privacy.randomness import SERVER, stream
from sordino.privacy.release import Private

CLIENTS, ALPHA, DELTA = 10, 1.0, 1e-5
HELD_OUT = 10_000
CASES = [("cifar10", 1.0), ("cifar10", 4.0), ("fashion-mnist", 3.0), ("mnist", 1.0), ("mnist", 3.0)]
RESULTS = Path(__file__).parent.parent / "docs" / "results" / "frontier.json"
_SOME = 128  # rows of a batch at a time: they stay in the cache between the two products


@dataclass(frozen=True)
class Row:
    """One run."""

    data: str
    epsilon: float
    accuracy: float
    seed: int
    seconds: float
    epsilon_lower: float | None
    delta: float
    multiplier: float
    dimension: int
    features_seconds: float
    memory_mb: int
    validation: bool


@dataclass(frozen=True, eq=False)
class Task:
    """Features of a data set: clients' rows one after another, their labels, and rows to score on."""

    rows: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray
    score_rows: np.ndarray
    score_labels: np.ndarray
    classes: int
    seconds: float
    """Of computing or reading the features."""

    def clients(self) -> list[np.ndarray]:
        return [self.rows[low:high] for low, high in zip(self.offsets[:-1], self.offsets[1:])]


def prepare(data: str, made: Extractor, validate: bool, threads: int) -> Task:
    """Every client's features, from its own cache, and those of the records to score on."""
    start = time.perf_counter()
    known = sets.load(data)
    owned = partition.split(known, "dirichlet", clients=CLIENTS, alpha=ALPHA, seed=0).indices
    which = np.concatenate(owned)
    rows = np.empty((len(which), made.dimension), np.float16)
    at = 0
    for mine in owned:
        rows[at : at + len(mine)] = cache.features(made, np.asarray(known.x[mine]), threads)
        at += len(mine)
    labels, owner = np.asarray(known.y, np.int64)[which], np.repeat(np.arange(CLIENTS), [len(mine) for mine in owned])
    if validate:
        held = which >= len(which) - HELD_OUT
        scored, answers = rows[held], labels[held]
        rows, labels, owner = rows[~held], labels[~held], owner[~held]
    else:
        assert known.test_x is not None and known.test_y is not None
        scored, answers = cache.features(made, np.asarray(known.test_x), threads), np.asarray(known.test_y, np.int64)
    offsets = np.searchsorted(owner, np.arange(CLIENTS + 1))
    return Task(rows, labels, offsets, scored, answers, known.classes, time.perf_counter() - start)


def train(
    rows: np.ndarray, labels: np.ndarray, offsets: np.ndarray, classes: int, head: Head, multiplier: float, seed: int
):
    """Softmax regression by pooled DP-SGD. Returns weights (classes, d + 1) and the events of every step."""
    x, n = torch.from_numpy(rows), len(rows)
    targets = torch.nn.functional.one_hot(torch.from_numpy(labels), classes).float()
    lengths = torch.sqrt(x.square().sum(dim=1) + head.bias**2)
    room = torch.empty(_SOME, rows.shape[1])
    bound = Flat(head.clip)
    grid = FixedPoint.for_bound(bound, n)
    weights = torch.zeros(classes, rows.shape[1] + 1)
    moving, average, kept, charged = torch.zeros_like(weights), torch.zeros_like(weights), 0, []
    for step in range(head.steps):
        drawn = []
        for k, (low, high) in enumerate(zip(offsets[:-1], offsets[1:])):
            drawn.append(low + np.flatnonzero(stream(seed, step, k, "records").random(high - low) < head.rate))
        total = torch.zeros_like(weights)
        for some in torch.from_numpy(np.concatenate(drawn)).split(_SOME):
            batch = torch.index_select(x, 0, some, out=room[: len(some)])
            slope = (
                torch.softmax(torch.addmm(head.bias * weights[:, -1], batch, weights[:, :-1].T), dim=1) - targets[some]
            )
            norms = slope.norm(dim=1) * lengths[some]
            slope *= torch.from_numpy(bound.factors(norms.numpy()).astype(np.float32))[:, None]
            total[:, :-1].addmm_(slope.T, batch)
            total[:, -1] += head.bias * slope.sum(dim=0)
        private = Private(Sum(grid.encode(total.numpy().ravel()), grid), bound=bound)
        noisy, event = mechanisms.gaussian(private, bound, multiplier, stream(seed, step, SERVER, "noise"))
        charged.append(event if head.rate == 1 else events.poisson(head.rate, event))
        moving.mul_(head.momentum).add_(
            torch.from_numpy(noisy.value.astype(np.float32)).view_as(weights) / (head.rate * n)
        )
        weights = weights - head.lr * moving
        if step >= head.steps * (1 - head.averaged):
            average, kept = average + weights, kept + 1
    return (average / kept if kept else weights), charged


def score(weights: torch.Tensor, rows: np.ndarray, labels: np.ndarray, bias: float) -> float:
    scores = torch.from_numpy(rows) @ weights[:, :-1].T + bias * weights[:, -1]
    return float((scores.argmax(dim=1).numpy() == labels).mean())


def run(data: str, made: Extractor, task: Task, recipe: Recipe, epsilon: float, seed: int, validate: bool) -> Row:
    """One seed: mean, features finished, head. Epsilon is computed again from what the mechanisms charged."""
    start = time.perf_counter()
    multiplier = recipe.multiplier_for(epsilon, DELTA)
    # A part of the training set has fewer records under the same noise; to choose settings the noise is scaled with it.
    part = len(task.rows) / (len(task.rows) + HELD_OUT) if validate else 1.0
    norm = 1 / cache.scale(made)
    asked = statistics.Mean(recipe.mean_multiplier * part, made.dimension)
    parts = [_Scaled(rows, norm) for rows in task.clients()]
    mean, first = statistics.release(asked, parts, stream(seed, 0, SERVER, "mean"))  # type: ignore[arg-type]
    ready = made.finished(_Scaled(task.rows, norm), mean.value)  # type: ignore[arg-type]
    weights, charged = train(ready, task.labels, task.offsets, task.classes, recipe.head, multiplier * part, seed)
    seconds = time.perf_counter() - start
    ready = made.finished(_Scaled(task.score_rows, norm), mean.value)  # type: ignore[arg-type]
    spent = accounting.epsilon(events.composed([first, *charged]), DELTA).epsilon
    assert validate or spent <= epsilon, f"{spent} was spent of {epsilon}"
    return Row(
        data, epsilon if validate else spent, score(weights, ready, task.score_labels, recipe.head.bias), seed, seconds, None,
        DELTA, multiplier, made.dimension, task.seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, validate,
    )  # fmt: skip


class _Scaled:
    """Kept rows as rows of unit length, a slice at a time."""

    def __init__(self, rows: np.ndarray, norm: float) -> None:
        self.rows, self.norm, self.shape = rows, np.float32(norm), rows.shape

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> np.ndarray:
        return examples.unit(self.rows[part].astype(np.float32) * self.norm)


def changed(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """A recipe with settings such as head.lr=40, damped=200 or block.0.filters=400; block.1=none leaves a block out."""
    for setting in settings:
        name, _, text = setting.partition("=")
        first, _, rest = name.partition(".")
        value = None if text == "none" else json.loads(text)
        if first == "head":
            recipe = replace(recipe, head=replace(recipe.head, **{rest: value}))
        elif first == "block":
            number, _, field = rest.partition(".")
            blocks = list(recipe.blocks)
            if value is None:
                del blocks[int(number)]
            else:
                blocks[int(number)] = replace(blocks[int(number)], **{field: value})
            recipe = replace(recipe, blocks=tuple(blocks))
        else:
            recipe = replace(recipe, **{first: value})
    return recipe


def write(rows: Sequence[Row]) -> None:
    """Rows into the committed results, in place of those of the same data, epsilon and seed."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    table = {(row["data"], round(row["epsilon"]), row["seed"]): row for row in [*kept, *map(asdict, rows)]}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([table[at] for at in sorted(table)], indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[4.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--validate", action="store_true", help="score on training records that are kept out")
    parser.add_argument("--set", nargs="*", default=[], help="settings of the recipe to change", metavar="NAME=VALUE")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="every row of the table, seeds 0, 1 and 2")
    parser.add_argument("--write", action="store_true", help="write docs/results/frontier.json")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    cases = CASES if args.all else [(args.data, epsilon) for epsilon in args.epsilon]
    seeds = [0, 1, 2] if args.all else args.seeds
    made: Extractor | None = None
    at: tuple[str, str, int] | None = None
    for data, epsilon in cases:
        shape = tuple(sets.load(data).x.shape[1:])
        recipe = changed(recipe_for(shape, epsilon), args.set)
        now = (data, recipe.features_digest, recipe.damped)
        if made is None or at != now:
            made = extractor(recipe, shape, args.threads)
            task = prepare(data, made, args.validate, args.threads)
            at = now
        rows = []
        for seed in seeds:
            rows.append(run(data, made, task, recipe, epsilon, seed, args.validate))
            print(json.dumps(asdict(rows[-1])), flush=True)
            if args.write and not args.validate:
                write(rows)
        mean = np.mean([row.accuracy for row in rows])
        print(
            f"# {data} epsilon {epsilon:g}: {100 * mean:.2f}%, {rows[0].seconds:.0f} s, features {task.seconds:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
