"""What the recipe loses against settings that were searched on the test set.

    python benchmarks/regret.py --small              digits at epsilon 4, four configurations: a minute
    python benchmarks/regret.py                      all cells, three seeds; goes on where it was cut off
    python benchmarks/regret.py --data digits watch  some of them
    python benchmarks/regret.py --wrong-start        adaptive methods from first bounds a thousand times too small and too large;
                                                     with --networks on the network that features stand for
    python benchmarks/regret.py --page               put the tables on docs/regret.md

A cell is a data set, a unit and an epsilon. The recipe runs with nothing given but these, as `sordino train` would. The oracle is
the best of 24 configurations of a fixed bound (3 bounds x 4 rates x 2 numbers of rounds at the same number of passes) with the
recipe's model, and of as many with the network that `--recipe none` takes where features are the recipe's model (`--networks`), at the same
epsilon, searched on the test set for free: all of them on the first seed, the best three on every seed, and of those the best mean. It steps
by mean / bound, as the recipe does: it is the recipe with its numbers tuned. Noise is drawn by the server (observer public), which gives the
same sums as shares do, in a tenth of the time.

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
from sordino.assembly import assemble, plan_for
from sordino.data.dataset import Dataset
from sordino.data.sets import load

RESULTS = DOCS / "results" / "regret.jsonl"
SEEDS, EPSILONS = (0, 1, 2), (1.0, 4.0, 8.0)
BOUNDS, RATES, LENGTHS = (0.1, 1.0, 5.0), (0.25, 0.5, 1.0, 2.0), (1, 2)
# Over the recipe's: in the client unit its bound lies a decade below the length of a local step.
CLIENT_BOUNDS = (0.3, 1.0, 10.0)
# Half of the rounds and all of them where a run is long already: rounds of many clients, large tables.
SHORTER_LENGTHS, LONG = (0.5, 1), 720


@dataclass(frozen=True)
class Setting:
    """A population, and how much of it is used (0: all)."""

    data: str
    records: int = 0
    tests: int = 0
    clients: int = 10
    unit: str = "example"
    partition: str = "dirichlet"
    splits: bool = False  # every seed holds other records out: a test set of 154 alone is luck

    @property
    def name(self) -> str:
        part = f", {self.records:,} records" if self.records else ""
        part += f" ({self.tests:,} to test)" if self.tests else ""
        part += ", other records to test with each seed" if self.splits else ""
        return f"{self.data}{part}" + (f", {self.clients:,} clients as units" if self.unit == "client" else "")


# Subsets are the first so many of a fixed permutation. A cell has 33 runs: on 1,500 pictures each takes 10 s of one core.
SETTINGS = {
    "digits": Setting("digits"),
    "digits-client": Setting("digits", clients=100, unit="client", partition="iid"),
    "chem97": Setting("chem97", 8_000),
    "watch": Setting("watch"),
    "chem97-client": Setting("chem97", 6_000, 3_000, clients=300, unit="client", partition="iid"),
    "penbased-client": Setting("penbased", clients=300, unit="client", partition="iid"),
    "crop-client": Setting("crop", 0, 4_000, clients=300, unit="client", partition="iid"),
    "satimage-client": Setting("satimage", clients=300, unit="client", partition="iid"),
    "mnist-client": Setting("mnist", 3_000, 2_000, clients=300, unit="client", partition="iid"),
    "watch-client": Setting("watch", clients=100, unit="client", partition="iid"),
    "forda": Setting("forda"),
    "crop": Setting("crop"),
    "electricdevices": Setting("electricdevices"),
    "segment": Setting("segment", splits=True),
    "pima": Setting("pima", splits=True),
    "australian": Setting("australian", splits=True),
    "contraceptive": Setting("contraceptive", splits=True),
    "vehicle": Setting("vehicle", splits=True),
    "phoneme": Setting("phoneme"),
    "satimage": Setting("satimage"),
    "ring": Setting("ring"),
    "spambase": Setting("spambase"),
    "texture": Setting("texture"),
    "banana": Setting("banana"),
    "optdigits": Setting("optdigits"),
    "twonorm": Setting("twonorm"),
    "marketing": Setting("marketing"),
    "penbased": Setting("penbased"),
    "magic": Setting("magic", 8_000),
    "letter": Setting("letter", 8_000),
    "mnist": Setting("mnist", 1_500, 2_000),
    "fashion-mnist": Setting("fashion-mnist", 1_500, 2_000),
    "cifar10": Setting("cifar10", 1_500, 2_000),
}


def population(setting: Setting, seed: int) -> Federation:
    data = load(setting.data)
    data = _split_anew(data, seed) if setting.splits else data
    rows, tests = _some(len(data), setting.records), _some(len(data.test_y), setting.tests)
    part = replace(data, x=data.x[rows], y=data.y[rows], test_x=data.test_x[tests], test_y=data.test_y[tests])
    part = replace(part, groups=None, test_groups=None)
    return Federation.from_dataset(part, setting.partition, setting.clients, 1.0, seed)


def _split_anew(data: Dataset, seed: int) -> Dataset:
    x, y = np.concatenate([data.x, data.test_x]), np.concatenate([data.y, data.test_y])
    order, train = np.random.Generator(np.random.PCG64(seed)).permutation(len(x)), len(data)
    x, y = x[order], y[order]
    return replace(data, x=x[:train], y=y[:train], test_x=x[train:], test_y=y[train:])


def _some(of: int, wanted: int) -> np.ndarray:
    return np.sort(np.random.Generator(np.random.PCG64(0)).permutation(of)[: wanted or of])


def run(federation: Federation, plan: Plan) -> tuple[float, float]:
    """Accuracy on the test set, and the epsilon that is proven."""
    model, federation, plan = assemble(plan, federation)
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
    """Fixed bounds, rates around the recipe's, and more rounds at the same number of passes.

    Rows of features have length 1: bounds lie around the recipe's there.
    """
    rate = "server_lr" if plan.unit == "client" else "lr"
    whole = plan.unit == "client"
    parts = CLIENT_BOUNDS if whole else BOUNDS
    lengths = SHORTER_LENGTHS if whole or plan.rounds >= LONG else LENGTHS
    for part in parts[:2] if small else parts:
        bound = float(f"{part**0.5 * plan.bound:.3g}") if plan.model == "head" else part
        bound = float(f"{part * plan.bound:.3g}") if whole else bound
        for times in RATES[1:3] if small else RATES:
            for length in lengths[:1] if small else lengths:
                shorter = {} if whole else {"batch_size": max(16, int(plan.batch_size / length))}
                yield {
                    "bound": bound,
                    rate: times * getattr(plan, rate),
                    "rounds": int(length * plan.rounds),
                    **shorter,
                }


class Book:
    """The runs that were made, by what they were."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows = [json.loads(line) for line in lines]
        self.done = {self.key(row): row["accuracy"] for row in self.rows}

    @staticmethod
    def key(row: dict) -> str:
        return json.dumps([row[name] for name in ("setting", "epsilon", "seed", "config", "plan")], sort_keys=True)

    def accuracy(
        self, setting: str, epsilon: float, seed: int, config: dict | None, again: bool = False, network: bool = False
    ) -> float:
        """Of a run, made now if it was not made before. No configuration: the recipe. `network`: without features."""
        began, what = time.perf_counter(), SETTINGS[setting]
        federation = population(what, seed)
        other = {"recipe": "none"} if network else {}
        plan = recipe(federation, what, epsilon, seed, **other)
        if config is not None:
            plan = plan.replace(**{"method": "dp-fedavg", **config})
        row = {"setting": setting, "epsilon": epsilon, "seed": seed, "config": config, "plan": chosen(plan)}
        if again or self.key(row) not in self.done:
            row["accuracy"], row["proven"] = run(federation, plan)
            row["seconds"] = round(time.perf_counter() - began, 1)
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


def chosen(plan: Plan) -> dict[str, object]:
    """What a recipe may change from one version to the next: runs of an earlier one are not taken for this one's."""
    names = ("model", "method", "bound", "rounds", "batch_size", "local_epochs", "lr", "server_lr", "server_optimizer")
    found = {name: getattr(plan, name) for name in names} | {"share": (plan.prepare or {}).get("share")}
    directions = (plan.prepare or {}).get("directions")
    found |= {"directions": directions} if directions else {}
    return found | ({"average": plan.average} if plan.average != "none" else {})


def fill_cell(
    book: Book,
    setting: str,
    epsilon: float,
    seeds: tuple[int, ...],
    small: bool,
    search: bool = True,
    again: bool = False,
    network: bool = False,
) -> None:
    """With `network`, what is searched is the network that the recipe would take without features."""
    if not network:
        for seed in seeds:
            book.accuracy(setting, epsilon, seed, None, again)
    if not search:
        return
    what = SETTINGS[setting]
    own = recipe(population(what, seeds[0]), what, epsilon, seeds[0])
    if network and own.model != "head":
        return
    around = recipe(population(what, seeds[0]), what, epsilon, seeds[0], recipe="none") if network else own
    tried = list(configurations(around, small))
    first = sorted(tried, key=lambda config: -book.accuracy(setting, epsilon, seeds[0], config, network=network))
    for config in first[:3]:
        for seed in seeds[1:]:
            book.accuracy(setting, epsilon, seed, config, network=network)


def cells(rows: list[dict]) -> list[dict]:
    """Recipe and oracle of each cell, from the runs that there are."""
    found = []
    for setting in [name for name in SETTINGS if any(r["setting"] == name for r in rows)]:
        for epsilon in sorted({r["epsilon"] for r in rows if r["setting"] == setting}):
            here = [r for r in rows if r["setting"] == setting and r["epsilon"] == epsilon]
            one = _cell([r for r in here if r["config"] is None or "method" not in r["config"]])
            found += [{"setting": setting, "epsilon": epsilon, **one}] if one else []
    return found


def _cell(rows: list[dict]) -> dict | None:
    """One cell: the recipe as it was run last, against what was searched with its model and with other ones."""
    own = [r for r in rows if r["config"] is None]
    own = [r for r in own if r["plan"] == own[-1]["plan"]]
    mine = {r["seed"]: r["accuracy"] for r in own}
    runs: dict[tuple[str, str], dict[int, float]] = {}
    for r in rows:
        if r["config"] is not None:
            name = r["plan"]["model"], json.dumps(r["config"], sort_keys=True)
            runs.setdefault(name, {})[r["seed"]] = r["accuracy"]
    whole = {config: by for config, by in runs.items() if set(by) >= set(mine)}
    if not mine or not any(model == own[0]["plan"]["model"] for model, _ in whole):
        return None
    best = max(whole, key=lambda config: float(np.mean([whole[config][seed] for seed in mine])))
    lead = np.array([whole[best][seed] - mine[seed] for seed in mine])
    searched = min(mine)  # the seed that all configurations ran on
    return {
        "seeds": len(mine),
        "tried": len(runs),
        "best": json.loads(best[1]),
        "with": best[0],
        "model": own[0]["plan"]["model"],
        "recipe": float(np.mean(list(mine.values()))),
        "spread": float(np.std(list(mine.values()))),
        "oracle": float(np.mean([whole[best][seed] for seed in mine])),
        "regret": float(lead.mean()),
        "elsewhere": float(np.mean([whole[best][s] - mine[s] for s in mine if s != searched]))
        if len(mine) > 1
        else None,
    }


ADAPTIVE = ("adact", "quantile", "dp-fedacn", "dp-fedagnc", "geyer", "dp-fedavg")  # the last one does not adapt
STARTS = (1e-3, 1.0, 1e3)


def starts(rows: list[dict]) -> str:
    """Accuracy by method and first bound, the mean over the seeds that all three first bounds were run on."""
    lines = [
        "| data | model | epsilon | method | "
        + " | ".join(f"first bound {b:g}" for b in STARTS)
        + " | lost at most | seeds |"
    ]
    lines.append("|---" * (len(STARTS) + 6) + "|")
    runs: dict[tuple, dict[int, float]] = {}
    for r in rows:
        if r["config"] and "method" in r["config"]:
            where = r["setting"], r["plan"]["model"], r["epsilon"]
            runs.setdefault((*where, r["config"]["method"], r["config"]["bound"]), {})[r["seed"]] = r["accuracy"]
    for setting, model, epsilon in dict.fromkeys(key[:3] for key in runs):
        for method in ADAPTIVE:
            by_start = [runs.get((setting, model, epsilon, method, bound), {}) for bound in STARTS]
            seeds = set.intersection(*map(set, by_start))
            if seeds:
                values = [100 * float(np.mean([by[seed] for seed in seeds])) for by in by_start]
                cells_ = " | ".join(f"{value:.1f}" for value in values)
                lines.append(
                    f"| {SETTINGS[setting].name} | {model} | {epsilon:g} | {method} | {cells_} | {_lost(by_start, sorted(seeds))} | {len(seeds)} |"
                )
    return "\n".join(lines)


def _lost(by_start: list[dict[int, float]], seeds: list[int]) -> str:
    """Points behind the first bound of 1 at the worst of the others, and the standard error of that over seeds."""
    right = np.array([by_start[STARTS.index(1.0)][seed] for seed in seeds])
    behind = [100 * (right - np.array([by[seed] for seed in seeds])) for by in by_start]
    worst = max(behind, key=lambda points: float(points.mean()))
    if worst.mean() <= 0 or len(seeds) == 1:
        return f"{max(0.0, worst.mean()):.1f}"
    return f"{worst.mean():.1f} ± {worst.std(ddof=1) / len(seeds) ** 0.5:.1f}"


def table(found: list[dict]) -> str:
    lines = [
        "| data | model | epsilon | recipe | oracle | regret | on other seeds | best configuration | tried | seeds |",
        "|---" * 10 + "|",
    ]
    for one in found:
        best = ", ".join(f"{key.replace('_', ' ')} {value:g}" for key, value in one["best"].items())
        best = best if one["with"] == one["model"] else f"{one['with']}: {best}"
        other = "-" if one["elsewhere"] is None else f"{100 * one['elsewhere']:+.1f}"
        lines.append(
            f"| {SETTINGS[one['setting']].name} | {one['model']} | {one['epsilon']:g} | {100 * one['recipe']:.1f} ± "
            f"{100 * one['spread']:.1f} | {100 * one['oracle']:.1f} | {100 * one['regret']:+.1f} | {other} | {best} | {one['tried']} | "
            f"{one['seeds']} |"
        )
    regrets = [100 * one["regret"] for one in found]
    if regrets:
        within = sum(regret <= 1.0 for regret in regrets)
        lines += ["", f"Regret in points: {np.mean(regrets):+.2f} on average, {max(regrets):+.1f} at most; at most 1.0 in "
                  f"{within} of {len(regrets)} cells. A negative number means that the recipe was ahead."]  # fmt: skip
    others = [100 * one["elsewhere"] for one in found if one["elsewhere"] is not None]
    if others:
        lines[-1] += (
            f" On the seeds that the search did not see: {np.mean(others):+.2f} on average, {max(others):+.1f} at most."
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--data", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--wrong-start", action="store_true")
    parser.add_argument("--methods", nargs="+", default=list(ADAPTIVE), choices=ADAPTIVE, help="for --wrong-start")
    parser.add_argument(
        "--again",
        action="store_true",
        help="with --wrong-start or --recipe-only: also what was run, after a rule changed",
    )
    parser.add_argument("--recipe-only", action="store_true", help="run the recipe again, and search no further")
    parser.add_argument("--networks", action="store_true", help="search the networks that features stand for, too")
    parser.add_argument("--page", action="store_true", help="only put the table of what there is on docs/regret.md")
    args = parser.parse_args()
    book = Book(args.results)
    if args.small:
        fill_cell(book, "digits", 4.0, (0,), small=True)
    elif args.wrong_start:
        for name, epsilon in [(name, epsilon) for name in args.data for epsilon in args.epsilons]:
            for seed in args.seeds:
                for config in [{"method": m, "bound": b} for m in args.methods for b in STARTS]:
                    book.accuracy(name, epsilon, seed, config, args.again, network=args.networks)
    elif not args.page:
        for name in args.data:
            for epsilon in args.epsilons:
                only, seeds = args.recipe_only, tuple(args.seeds)
                fill_cell(book, name, epsilon, seeds, small=False, search=not only, again=only and args.again)
                if args.networks:
                    fill_cell(book, name, epsilon, seeds, small=False, network=True)
    text = table(cells(book.rows))
    if args.page:
        fill("regret.md", "regret", text)
        fill("regret.md", "wrong-start", starts(book.rows))
    print(text)
    print(starts(book.rows))


if __name__ == "__main__":
    main()
