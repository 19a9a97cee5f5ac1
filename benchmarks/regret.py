"""What the recipe loses against settings that were searched on the test set.

    python benchmarks/regret.py --small              digits at epsilon 4, four configurations: a minute
    python benchmarks/regret.py                      all cells, three seeds; goes on where it was cut off
    python benchmarks/regret.py --data digits watch  some of them
    python benchmarks/regret.py --wrong-start        adaptive methods from first bounds a thousand times too small and too large
    python benchmarks/regret.py --page               put the tables on docs/regret.md

A cell is a data set, a unit and an epsilon. The recipe runs with nothing given but these, as `sordino train` would. The oracle is
the best of 24 configurations of a fixed bound (3 bounds x 4 rates x 2 numbers of rounds at the same number of passes) with the
recipe's network, at the same epsilon, searched on the test set for free: all of them on the first seed, the best three on every
seed, and of those the best mean. It steps by mean / bound with a falling rate, as the recipe does: it is the recipe with its
numbers tuned. Noise is drawn by the server (observer public), which gives the same sums as shares do, in a tenth of the time.

Results are lines in docs/results/regret.jsonl, one a run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from page import DOCS, fill

from sordino import EngineOptions, Federation, Plan, train
from sordino.assembly import plan_for
from sordino.data.sets import load
from sordino.models import build

RESULTS = DOCS / "results" / "regret.jsonl"
SEEDS, EPSILONS = (0, 1, 2), (1.0, 4.0, 8.0)
BOUNDS, RATES, LENGTHS = (0.1, 1.0, 5.0), (0.25, 0.5, 1.0, 2.0), (1, 2)


@dataclass(frozen=True)
class Setting:
    """A population, and how much of it is used (0: all)."""

    data: str
    records: int = 0
    clients: int = 10
    unit: str = "example"
    partition: str = "dirichlet"

    @property
    def name(self) -> str:
        part = f", {self.records:,} records" if self.records else ""
        return f"{self.data}{part}" + (f", {self.clients:,} clients as units" if self.unit == "client" else "")


# Subsets are the first so many of a fixed permutation; on all of MNIST one run takes minutes, and a cell has 33.
SETTINGS = {
    "digits": Setting("digits"),
    "digits-client": Setting("digits", clients=100, unit="client", partition="iid"),
    "chem97": Setting("chem97", 8_000),
    "watch": Setting("watch"),
    "chem97-client": Setting("chem97", 8_000, clients=1_000, unit="client", partition="iid"),
    "forda": Setting("forda"),
    "mnist": Setting("mnist", 6_000),
    "fashion-mnist": Setting("fashion-mnist", 6_000),
    "cifar10": Setting("cifar10", 6_000),
}


def population(setting: Setting, seed: int) -> Federation:
    data = load(setting.data)
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(data))
    rows = np.sort(order[: setting.records or len(data)])
    part = replace(data, x=data.x[rows], y=data.y[rows], groups=None, test_groups=None)
    return Federation.from_dataset(part, setting.partition, setting.clients, 1.0, seed)


def run(federation: Federation, plan: Plan) -> tuple[float, float]:
    """Accuracy on the test set, and the epsilon that is proven."""
    model = build(plan.model, federation.input_shape, federation.classes, plan.seed)
    with tempfile.TemporaryDirectory() as folder:
        speed = EngineOptions("in-process", evaluate_every=plan.rounds, checkpoint_every=plan.rounds)
        result = train(model, federation, plan, out=Path(folder) / "run", options=speed)
    assert result.accuracy is not None
    return result.accuracy, result.epsilon


def recipe(federation: Federation, setting: Setting, epsilon: float, seed: int, **given: object) -> Plan:
    return plan_for(
        federation,
        unit=setting.unit,
        observer="public",
        epsilon=epsilon,
        seed=seed,
        partition=setting.partition,
        **given,
    )


def configurations(plan: Plan, small: bool = False) -> Iterator[dict[str, float]]:
    """Fixed bounds, rates around the recipe's, and more rounds at the same number of passes."""
    rate = "server_lr" if plan.unit == "client" else "lr"
    for bound in BOUNDS[:2] if small else BOUNDS:
        for times in RATES[1:3] if small else RATES:
            for length in LENGTHS[:1] if small else LENGTHS:
                shorter = {} if plan.unit == "client" else {"batch_size": max(16, plan.batch_size // length)}
                yield {"bound": bound, rate: times * getattr(plan, rate), "rounds": length * plan.rounds, **shorter}


class Book:
    """The runs that were made, by what they were."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows = [json.loads(line) for line in lines]
        self.done = {self.key(row): row["accuracy"] for row in self.rows}

    @staticmethod
    def key(row: dict) -> str:
        return json.dumps([row[name] for name in ("setting", "epsilon", "seed", "config")], sort_keys=True)

    def accuracy(self, setting: str, epsilon: float, seed: int, config: dict | None) -> float:
        """Of a run, made now if it was not made before. No configuration: the recipe."""
        row = {"setting": setting, "epsilon": epsilon, "seed": seed, "config": config}
        if self.key(row) not in self.done:
            began, what = time.perf_counter(), SETTINGS[setting]
            federation = population(what, seed)
            plan = recipe(federation, what, epsilon, seed)
            if config is not None:
                plan = plan.replace(**{"method": "dp-fedavg", **config})
            row["accuracy"], row["proven"] = run(federation, plan)
            row |= {"seconds": round(time.perf_counter() - began, 1), "model": plan.model, "rounds": plan.rounds}
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("a") as lines:
                lines.write(json.dumps(row) + "\n")
            self.rows.append(row)
            self.done[self.key(row)] = row["accuracy"]
            print(
                f"{setting} epsilon {epsilon:g} seed {seed} {config or 'recipe'}: {row['accuracy']:.3f}",
                file=sys.stderr,
            )
        return self.done[self.key(row)]


def fill_cell(book: Book, setting: str, epsilon: float, seeds: tuple[int, ...], small: bool) -> None:
    for seed in seeds:
        book.accuracy(setting, epsilon, seed, None)
    what = SETTINGS[setting]
    tried = list(configurations(recipe(population(what, seeds[0]), what, epsilon, seeds[0]), small))
    first = sorted(tried, key=lambda config: -book.accuracy(setting, epsilon, seeds[0], config))
    for config in first[:3]:
        for seed in seeds[1:]:
            book.accuracy(setting, epsilon, seed, config)


def cells(rows: list[dict]) -> list[dict]:
    """Recipe and oracle of each cell, from the runs that there are."""
    found = []
    for setting in [name for name in SETTINGS if any(r["setting"] == name for r in rows)]:
        for epsilon in sorted({r["epsilon"] for r in rows if r["setting"] == setting}):
            here = [r for r in rows if r["setting"] == setting and r["epsilon"] == epsilon]
            mine = {r["seed"]: r["accuracy"] for r in here if r["config"] is None}
            runs: dict[str, dict[int, float]] = {}
            for r in here:
                if r["config"] is not None and "method" not in r["config"]:
                    runs.setdefault(json.dumps(r["config"], sort_keys=True), {})[r["seed"]] = r["accuracy"]
            whole = {config: by for config, by in runs.items() if set(by) == set(mine)}
            if not mine or not whole:
                continue
            best = max(whole, key=lambda config: float(np.mean(list(whole[config].values()))))
            one = {
                "setting": setting,
                "epsilon": epsilon,
                "seeds": len(mine),
                "tried": len(runs),
                "best": json.loads(best),
            }
            one["recipe"], one["oracle"] = (float(np.mean(list(by.values()))) for by in (mine, whole[best]))
            one["spread"] = float(np.std(list(mine.values())))
            found.append(one | {"model": here[0]["model"], "regret": one["oracle"] - one["recipe"]})
    return found


ADAPTIVE = ("adact", "quantile", "dp-fedacn", "dp-fedagnc", "geyer", "dp-fedavg")  # the last one does not adapt
STARTS = (1e-3, 1.0, 1e3)


def starts(rows: list[dict]) -> str:
    """Accuracy by method and first bound, on the first seed."""
    lines = ["| data | epsilon | method | " + " | ".join(f"first bound {b:g}" for b in STARTS) + " | lost at most |"]
    lines.append("|---" * (len(STARTS) + 4) + "|")
    found = {Book.key(r): r["accuracy"] for r in rows}
    for setting, epsilon in dict.fromkeys((r["setting"], r["epsilon"]) for r in rows):
        for method in ADAPTIVE:
            row = {"setting": setting, "epsilon": epsilon, "seed": 0}
            keys = [Book.key(row | {"config": {"method": method, "bound": bound}}) for bound in STARTS]
            if all(key in found for key in keys):
                values = [100 * found[key] for key in keys]
                cells_ = " | ".join(f"{value:.1f}" for value in values)
                lost = max(0.0, values[1] - min(values))
                lines.append(f"| {SETTINGS[setting].name} | {epsilon:g} | {method} | {cells_} | {lost:.1f} |")
    return "\n".join(lines)


def table(found: list[dict]) -> str:
    lines = [
        "| data | network | epsilon | recipe | oracle | regret | best configuration | tried | seeds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        best = ", ".join(f"{key.replace('_', ' ')} {value:g}" for key, value in one["best"].items())
        lines.append(
            f"| {SETTINGS[one['setting']].name} | {one['model']} | {one['epsilon']:g} | {100 * one['recipe']:.1f} ± "
            f"{100 * one['spread']:.1f} | {100 * one['oracle']:.1f} | {100 * one['regret']:+.1f} | {best} | {one['tried']} | "
            f"{one['seeds']} |"
        )
    regrets = [100 * one["regret"] for one in found]
    if regrets:
        within = sum(regret <= 1.0 for regret in regrets)
        lines += ["", f"Regret in points: {np.mean(regrets):+.2f} on average, {max(regrets):+.1f} at most; at most 1.0 in "
                  f"{within} of {len(regrets)} cells. A negative number means that the recipe was ahead."]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--data", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--wrong-start", action="store_true")
    parser.add_argument("--page", action="store_true", help="only put the table of what there is on docs/regret.md")
    args = parser.parse_args()
    book = Book(args.results)
    if args.small:
        fill_cell(book, "digits", 4.0, (0,), small=True)
    elif args.wrong_start:
        for name, epsilon in [(name, epsilon) for name in args.data for epsilon in args.epsilons]:
            for config in [{"method": m, "bound": b} for m in ADAPTIVE for b in STARTS]:
                book.accuracy(name, epsilon, 0, config)
    elif not args.page:
        for name in args.data:
            for epsilon in args.epsilons:
                fill_cell(book, name, epsilon, tuple(args.seeds), small=False)
    text = table(cells(book.rows))
    if args.page:
        fill("regret.md", "regret", text)
        fill("regret.md", "wrong-start", starts(book.rows))
    print(text)
    print(starts(book.rows))


if __name__ == "__main__":
    main()
