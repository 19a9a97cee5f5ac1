"""What each ingredient of the recipe `frontier` buys, on training records of CIFAR-10 that are kept out.

    python benchmarks/frontier_ablation.py --write        every line, docs/results/frontier_ablation.json; goes on where it stopped
    python benchmarks/frontier_ablation.py --only soft2 --write
    python benchmarks/frontier_ablation.py --page         the table of docs/features.md

10,000 training records train and the last 10,000 score; noise is brought down to what 50,000 would get. 100 filters instead of 500, so that a line takes
half a minute. Three noise seeds share their coins. This is a simulation of the pooled unit for comparing ingredients: noise is drawn in floats and nothing is
released. Figures of the recipe itself come from `frontier.py`, through `sordino.train`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from functools import lru_cache
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

TRAIN, OUT, WHOLE, SEEDS, BIAS = 10_000, 10_000, 50_000, 3, 0.3
EPSILONS = (1.0, 4.0)
DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "results" / "frontier_ablation.json"
WEIGHTS = Path(__file__).parent / "results" / "pretrained.npz"  # what `pretrained.py` makes; not part of the package


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    words: str
    blocks: tuple[Block, ...] = (Block(100, cells=3, soft=2),)
    power: float = 0.5
    damped: int = 400
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
    "small bound": Line("half the bound", bound=0.5),
    "large bound": Line("twice the bound", bound=2.0),
    "slower": Line("two thirds of the rate", noise=0.67),
    "faster": Line("one and a half times the rate", noise=1.5),
    "half rounds": Line("half the rounds", rounds=0.5),
    "double rounds": Line("twice the rounds", rounds=2.0),
    "averaged": Line("mean of the iterates of the last half", tail=0.5),
    "falling": Line("a falling rate, one and a half times as high at first", falling=True, noise=1.5),
    "network": Line("+ features of a network pre-trained on synthetic pictures", network=True),
    "hard": Line("hard cells: no averaging over shifts (no augmentation)", (Block(100, cells=3),)),
    "soft4": Line("cells softer: shifts by up to 4 pixels", (Block(100, cells=3, soft=4),)),
    "unmirrored": Line(
        "no averaging with the mirror image (no augmentation)", (Block(100, cells=3, soft=2, mirror=False),)
    ),
    "cells2": Line("2 x 2 cells instead of 3 x 3", (Block(100, cells=2, soft=2),)),
    "cells4": Line("4 x 4 cells", (Block(100, cells=4, soft=2),)),
    "filters200": Line("200 filters instead of 100", (Block(200, cells=3, soft=2),)),
    "filters50": Line("50 filters", (Block(50, cells=3, soft=2),)),
    "half": Line(
        "+ 100 filters at half the size", (Block(100, cells=3, soft=2), Block(100, cells=3, soft=1, shrink=2))
    ),
    "threshold7": Line("threshold 0.7 instead of 1", (Block(100, threshold=0.7, cells=3, soft=2),)),
    "patch8": Line("patches of 8 x 8 instead of 6 x 6", (Block(100, 8, cells=3, soft=2),)),
}


def features(line: Line, made: Extractor, x: np.ndarray) -> np.ndarray:
    """What the map gives, before blocks are brought to unit length and joined."""
    raw = made.map(x)
    if line.network:
        from pretrained import Network

        raw = np.concatenate([raw, Network.load(WEIGHTS)(x)], axis=1)
    return raw


def joined(line: Line, made: Extractor, raw: np.ndarray) -> np.ndarray:
    sizes = [*made.map.sizes, *([raw.shape[1] - sum(made.map.sizes)] if line.network else [])]
    return examples.joined(raw, sizes, line.power)


@lru_cache(maxsize=1)
def mapped(blocks: tuple[Block, ...], network: bool) -> tuple[Extractor, np.ndarray, np.ndarray]:
    """The map of these blocks, of the records and of synthetic pictures."""
    made, line = extractor(Recipe(blocks, damped=0), (3, 32, 32)), Line("", blocks, network=network)
    pictures = images(made.recipe.pictures, (3, 32, 32), made.recipe.seed, made.recipe.leaves)
    return made, features(line, made, records()[0]), features(line, made, pictures)


@lru_cache(maxsize=1)
def records() -> tuple[np.ndarray, np.ndarray]:
    """Pictures and labels: those that train, then those that score."""
    known = sets.load("cifar10")
    which = np.r_[np.random.default_rng(0).permutation(len(known.x) - OUT)[:TRAIN], len(known.x) - OUT : len(known.x)]
    return np.asarray(known.x[which]), np.asarray(known.y, np.int64)[which]


def prepared(line: Line) -> np.ndarray:
    """Rows that the head takes, with a mean that has the noise of the recipe at epsilon 4."""
    made, raw, public = mapped(line.blocks, line.network)
    rows = joined(line, made, raw)
    noise = np.random.default_rng(0).standard_normal(rows.shape[1]) * 15 / WHOLE
    mean = rows[:TRAIN].mean(axis=0, dtype=np.float64) + noise
    rows = examples.centred(rows, mean)
    if line.damped:
        public = joined(line, made, public)
        rows = examples.damping(examples.centred(public, public.mean(axis=0)), min(line.damped, rows.shape[1] - 1))(
            rows
        )
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
    began, line = time.process_time(), LINES[name]
    rows, y = torch.from_numpy(prepared(line)), torch.from_numpy(records()[1])
    found = {f"{epsilon:g}": accuracies(line, rows, y, epsilon) for epsilon in EPSILONS}
    return {"line": name, "words": line.words, "accuracy": found, "cpu_seconds": time.process_time() - began}


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
