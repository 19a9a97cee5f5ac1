"""What each ingredient of the recipe `frontier` buys, on training records of CIFAR-10 that are kept out.

    python benchmarks/frontier_ablation.py --write        every line, docs/results/frontier_ablation.json; goes on where it stopped
    python benchmarks/frontier_ablation.py --only shifted --write
    python benchmarks/frontier_ablation.py --page         the table of docs/features.md

20,000 training records train and the last 10,000 score; noise is brought down to what 50,000 would get. 200 filters instead of 800, so that a line takes
a minute or two. Three noise seeds share their coins. This is a simulation of the pooled unit for comparing ingredients: noise is drawn in floats and nothing is
released. Figures of the recipe itself come from `frontier.py`, through `sordino.train`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sordino.data import sets
from sordino.features import examples
from sordino.features.blocks import Block
from sordino.features.extractor import Extractor, extractor
from sordino.features.generator import images
from sordino.features.recipe import Recipe
from sordino.privacy import calibration
from sordino.recipes import frontier

TRAIN, OUT, WHOLE, SEEDS, BIAS = 20_000, 10_000, 50_000, 3, 0.3
EPSILONS = (1.0, 4.0)
DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "results" / "frontier_ablation.json"
WEIGHTS = Path(__file__).parent / "results" / "pretrained.npz"  # what `pretrained.py` makes; not part of the package


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    words: str
    blocks: tuple[Block, ...] = (Block(200),)
    power: float = 0.5
    damped: int = 400
    shifted: int = (
        0  # features are averaged over pictures moved by so many pixels in four directions, and the picture itself
    )
    network: bool = False  # features of the pre-trained network beside those of the filters
    bound: float = 1.0  # times the recipe's
    noise: float = 1.0  # times the recipe's noise on scores
    rounds: float = 1.0  # times the recipe's
    tail: float = 0.0  # the mean of the iterates of this last part of the rounds
    falling: bool = False  # the rate falls to 0 in a line


LINES = {
    "plain": Line("features as they are, private mean", power=1.0, damped=0),
    "root": Line("+ square root", damped=0),
    "recipe": Line("+ top 400 *synthetic* directions damped: **the recipe**"),
    "power3": Line("power 0.3 instead of 0.5", power=0.3),
    "power7": Line("power 0.7", power=0.7),
    "damped200": Line("200 directions damped", damped=200),
    "damped800": Line("800 directions damped", damped=800),
    "filters400": Line("400 filters", (Block(400),)),
    "filters100": Line("100 filters", (Block(100),)),
    "half": Line("+ 200 filters at half the size", (Block(200), Block(200, shrink=2))),
    "cells3": Line("3 x 3 cells instead of 2 x 2", (Block(200, cells=3),)),
    "threshold7": Line("threshold 0.7 instead of 1", (Block(200, threshold=0.7),)),
    "patch8": Line("patches of 8 x 8 instead of 6 x 6", (Block(200, 8),)),
    "shifted": Line("augmentation: features averaged over 5 shifts by 2 pixels", shifted=2),
    "unmirrored": Line("no averaging with the mirror image", (Block(200, mirror=False),)),
    "network": Line("+ features of a network pre-trained on synthetic pictures", network=True),
    "small bound": Line("half the bound", bound=0.5),
    "large bound": Line("twice the bound", bound=2.0),
    "slower": Line("two thirds of the rate", noise=0.67),
    "faster": Line("one and a half times the rate", noise=1.5),
    "half rounds": Line("half the rounds", rounds=0.5),
    "averaged": Line("mean of the iterates of the last half", tail=0.5),
    "falling": Line("a falling rate, one and a half times as high at first", falling=True, noise=1.5),
}


def features(line: Line, made: Extractor, x: np.ndarray) -> np.ndarray:
    """What the map gives, before blocks are brought to unit length and joined; augmented if the line says so."""
    raw = made.map(x)
    for axis in (2, 3) if line.shifted else ():
        for way in (-line.shifted, line.shifted):
            raw += made.map(moved(x, way, axis))
    if line.network:
        from pretrained import Network

        raw = np.concatenate([raw, Network.load(WEIGHTS)(x)], axis=1)
    return raw


def moved(x: np.ndarray, way: int, axis: int) -> np.ndarray:
    """Pictures moved by `way` pixels; the border is repeated."""
    room = [(0, 0)] * x.ndim
    room[axis] = (max(way, 0), max(-way, 0))
    start = max(-way, 0)
    return np.take(np.pad(x, room, mode="edge"), range(start, start + x.shape[axis]), axis)


def joined(line: Line, made: Extractor, raw: np.ndarray) -> np.ndarray:
    sizes = [*made.map.sizes, *([raw.shape[1] - sum(made.map.sizes)] if line.network else [])]
    return examples.joined(raw, sizes, line.power)


def prepared(line: Line, x: np.ndarray) -> np.ndarray:
    """Rows that the head takes, with a mean that has the noise of the recipe at epsilon 4."""
    made = extractor(Recipe(line.blocks, line.power, 0), x.shape[1:])
    rows = joined(line, made, features(line, made, x))
    noise = np.random.default_rng(0).standard_normal(rows.shape[1]) * 15 / WHOLE
    mean = rows[:TRAIN].mean(axis=0, dtype=np.float64) + noise
    rows = examples.centred(rows, mean)
    if line.damped:
        pictures = images(made.recipe.pictures, x.shape[1:], made.recipe.seed, made.recipe.leaves)
        public = joined(line, made, features(line, made, pictures))
        rows = examples.damping(examples.centred(public, public.mean(axis=0)), line.damped)(rows)
    return np.concatenate([rows, np.full((len(rows), 1), BIAS, np.float32)], axis=1)


def accuracies(line: Line, rows: torch.Tensor, y: torch.Tensor, epsilon: float) -> list[float]:
    """Softmax regression under noise, for every seed at once."""
    told = frontier.settings((3, 32, 32), WHOLE, epsilon, pin=False)
    rounds, rate = round(told["rounds"] * line.rounds), told["batch_size"] / WHOLE
    z, bound = calibration.multiplier_for(epsilon, 1e-5, rounds, rate), told["bound"] * line.bound
    momentum = told["server_momentum"]
    lr = line.noise * frontier.NOISE["colour"] * (1 - momentum) * rate * WHOLE / (math.sqrt(rounds) * z * bound)
    x, d = rows[:TRAIN], rows.shape[1]
    labels, lengths = torch.nn.functional.one_hot(y[:TRAIN], 10).float(), x.norm(dim=1)
    weights, moving, kept = torch.zeros(3, SEEDS * 10, d)
    coins, draws = np.random.default_rng(1), torch.Generator().manual_seed(1)
    for t in range(rounds):
        drawn = torch.from_numpy(np.flatnonzero(coins.random(TRAIN) < rate))
        batch = x[drawn]
        slope = torch.softmax((batch @ weights.T).view(-1, SEEDS, 10), 2) - labels[drawn][:, None]
        slope *= torch.clamp(bound / (slope.norm(dim=2) * lengths[drawn][:, None]), max=1.0)[..., None]
        total = slope.reshape(len(drawn), -1).T @ batch
        total += torch.randn(total.shape, generator=draws) * (z * bound * TRAIN / WHOLE)
        moving = momentum * moving + total / (rate * TRAIN)
        weights = weights - lr * (1 - t / rounds if line.falling else 1.0) * moving
        kept += weights * (t >= rounds * (1 - line.tail))
    if line.tail:
        weights = kept
    right = (rows[TRAIN:] @ weights.T).view(-1, SEEDS, 10).argmax(2) == y[TRAIN:, None]
    return [100 * float(one) for one in right.float().mean(0)]


def run(name: str) -> dict[str, Any]:
    began, known, line = time.perf_counter(), sets.load("cifar10"), LINES[name]
    which = np.r_[np.random.default_rng(0).permutation(len(known.x) - OUT)[:TRAIN], len(known.x) - OUT : len(known.x)]
    rows = torch.from_numpy(prepared(line, np.asarray(known.x[which])))
    y = torch.from_numpy(np.asarray(known.y, np.int64)[which])
    found = {f"{epsilon:g}": accuracies(line, rows, y, epsilon) for epsilon in EPSILONS}
    return {"line": name, "words": line.words, "accuracy": found, "seconds": time.perf_counter() - began}


def read() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def table() -> str:
    """The table of docs/features.md."""
    rows = {row["line"]: row for row in read()}
    lines = ["| | epsilon 1 | epsilon 4 |", "|---|---|---|"]
    for name, line in LINES.items():
        if name in rows:
            shown = (f"{np.mean(rows[name]['accuracy'][f'{e:g}']):.1f}" for e in EPSILONS)
            lines.append(f"| {line.words} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=LINES, help="these lines, again if they are there")
    parser.add_argument("--write", action="store_true", help="write docs/results/frontier_ablation.json")
    parser.add_argument("--page", action="store_true", help="write the table of docs/features.md")
    args = parser.parse_args()
    if args.page:
        page = (DOCS / "features.md").read_text()
        before, after = page.split("<!-- ablation -->")[0], page.split("<!-- end of ablation -->")[1]
        (DOCS / "features.md").write_text(f"{before}<!-- ablation -->\n{table()}\n<!-- end of ablation -->{after}")
        print(table())
        return
    done = {row["line"] for row in read()} if args.write and not args.only else set()
    for name in args.only or LINES:
        if name in done or LINES[name].network and not WEIGHTS.exists():
            continue
        row = run(name)
        print(json.dumps(row), flush=True)
        if args.write:
            kept = [one for one in read() if one["line"] != name]
            RESULTS.write_text(json.dumps([*kept, row], indent=1) + "\n")


if __name__ == "__main__":
    main()
