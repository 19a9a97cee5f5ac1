"""The study of adaptive rules: accuracy, bound and noise of every method at the same proven epsilon.

    python benchmarks/methods.py --small     a linear model on a tenth of the data: minutes
    python benchmarks/methods.py             the papers' networks on all of it: hours
    python benchmarks/methods.py --adam ...  the server takes Adam's steps, whose length does not follow the bound
    python benchmarks/methods.py --recipe --data watch   the network, rounds and rates of `sordino train`, all of the data
    python benchmarks/methods.py --papers --data fashion-mnist --units example   the papers' networks on all of the data, steps of
                                             mean / bound and falling rates as `sordino train` chooses them; a minute a run

Every method runs certified, in both units, at epsilon 1, 2, 4 and 8, over three seeds, on Fashion-MNIST and CIFAR-10, with the
same rounds, batches and learning rates within a unit; nothing is tuned per method. The baseline is a fixed bound of 1, as
someone would have it who does not tune; other fixed bounds show what tuning would have given, had it been free. Written to
results/: methods.json (everything), methods.md (tables and what they say) and methods.svg (curves over rounds). Runs that are
there already are not run again. `--page` puts the tables on docs/methods.md as well, and the curves next to it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from page import DOCS, fill

from sordino import EngineOptions, Federation, Plan, train
from sordino.assembly import plan_for
from sordino.data.sets import load
from sordino.methods import METHODS
from sordino.models import build

HERE = Path(__file__).parent
SEEDS, EPSILONS = (0, 1, 2), (1.0, 2.0, 4.0, 8.0)
NAMES = [name for name, method in METHODS.items() if method.private and name != "fedmap"]
VARIANTS: dict[str, tuple[str, dict[str, float]]] = {"adact, tau 0.5": ("adact", {"tau": 0.5})}  # the paper's quantile
FIXED = {"fixed 0.1": 0.1, "fixed 0.3": 0.3, "fixed 3": 3.0}  # dp-fedavg is "fixed 1"
UNITS = {
    "example": {
        "observer": "secagg-server",
        "clients": 10,
        "batch_size": 1024,
        "lr": 1.0,
        "server_optimizer": "momentum",
    },
    "client": {"observer": "public", "clients": 1000, "cohort": 100, "batch_size": 20, "lr": 0.1},
}


# Under plain steps a bound is also a learning rate; under Adam's it only weighs what is clipped against the noise.
ADAM = {
    "example": {"server_optimizer": "adam", "lr": 0.01},
    "client": {"server_optimizer": "adam", "server_lr": 0.01},
}


def federation(data: str, clients: int, part: float, seed: int) -> Federation:
    made = load(data)
    keep = np.sort(np.random.Generator(np.random.PCG64(0)).permutation(len(made.y))[: int(len(made.y) * part)])
    from dataclasses import replace

    return Federation.from_dataset(replace(made, x=made.x[keep], y=made.y[keep]), "dirichlet", clients, 1.0, seed)


# The papers' networks in rounds that one core does in about a minute: two passes over all of the data.
PAPERS = {"rounds": 100, "batch_size": 1_200}


def run(data: str, unit: str, name: str, epsilon: float, seed: int, form: str, adam: bool) -> dict:
    small = form == "small"
    settings: dict = UNITS[unit] | (ADAM[unit] if adam else {})
    method = name
    if name in FIXED:
        method, settings["bound"] = "dp-fedavg", FIXED[name]
    if name in VARIANTS:
        method, settings["options"] = VARIANTS[name]
    if unit == "client" and small:
        settings |= {"clients": 300, "cohort": 60, "batch_size": 10}
    population = federation(data, settings["clients"], 0.1 if small else 1.0, seed)
    rounds, network = 60 if small else 300, "linear" if small else {"cifar10": "cnn-cifar"}.get(data, "cnn-mnist")
    if form in ("recipe", "papers"):
        own = {key: settings[key] for key in ("bound", "options") if key in settings}
        own |= PAPERS | {"model": network, "recipe": "none"} if form == "papers" else {}
        plan = plan_for(population, unit=unit, observer="public", epsilon=epsilon, seed=seed, method=method, **own)
        rounds, network = plan.rounds, plan.model
    else:
        plan = Plan(
            data=data, method=method, unit=unit, epsilon=epsilon, rounds=rounds, seed=seed, model="linear", **settings
        )
    model = build(network, population.input_shape, population.classes, seed)
    with tempfile.TemporaryDirectory() as folder:
        speed = EngineOptions(evaluate_every=max(1, rounds // 10), checkpoint_every=rounds)
        result = train(model, population, plan.replace(model=network), out=Path(folder) / "run", options=speed)
    curve = [{k: row.get(k) for k in ("round", "accuracy", "bound", "noise", "moved")} for row in result.metrics]
    if form == "papers":
        curve = [row for row in curve if row["accuracy"] is not None]  # kept with the page: short
    return {
        "data": data, "unit": unit, "method": name, "epsilon": epsilon, "proven": result.epsilon, "seed": seed,
        "accuracy": result.accuracy, "multiplier": result.terms.multiplier, "curve": curve,
    }  # fmt: skip


def tables(rows: list[dict]) -> str:
    """Mean and standard deviation over seeds, a table for each data set and unit."""
    out = []
    for data in dict.fromkeys(r["data"] for r in rows):
        for unit in dict.fromkeys(r["unit"] for r in rows):
            here = [r for r in rows if r["data"] == data and r["unit"] == unit]
            if not here:
                continue
            epsilons = sorted({r["epsilon"] for r in here})
            out += [
                f"### {data}, {unit} unit",
                "",
                "| method | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |",
            ]
            out += ["|---" * (len(epsilons) + 1) + "|"]
            for name in dict.fromkeys(r["method"] for r in here):
                cells = []
                for e in epsilons:
                    values = [r["accuracy"] for r in here if r["method"] == name and r["epsilon"] == e]
                    cells.append(f"{100 * np.mean(values):.1f} ± {100 * np.std(values):.1f}" if values else "-")
                out.append(f"| {name} | " + " | ".join(cells) + " |")
            out += ["", verdict(here), ""]
    return "\n".join(out)


def verdict(rows: list[dict]) -> str:
    """Which rules differ from a fixed bound by more than twice the standard error, over all epsilons, seed by seed."""

    def score(name: str) -> dict[tuple, float]:
        return {(r["epsilon"], r["seed"]): r["accuracy"] for r in rows if r["method"] == name}

    def against(names: list[str], base: dict[tuple, float]) -> tuple[list[str], list[str]]:
        better, worse = [], []
        for name in names:
            mine = score(name)
            both = [mine[k] - base[k] for k in mine if k in base]
            if len(both) < 3:
                continue
            mean, error = float(np.mean(both)), float(np.std(both, ddof=1) / np.sqrt(len(both)))
            if abs(mean) > 2 * error:
                (better if mean > 0 else worse).append(f"{name} ({100 * mean:+.1f})")
        return better, worse

    names = list(dict.fromkeys(r["method"] for r in rows))
    rules = [name for name in names if name != "dp-fedavg" and name not in FIXED]
    better, worse = against(rules, score("dp-fedavg"))
    out = f"Against a fixed bound of 1, in points over all epsilons: better {_listed(better)}; worse {_listed(worse)}."
    means = {name: np.mean(list(score(name).values())) for name in names if name in FIXED or name == "dp-fedavg"}
    best = max(means, key=lambda name: means[name])
    if best != "dp-fedavg":
        better, worse = against(rules, score(best))
        out += f" Against the best of the fixed bounds ({best[6:]}): better {_listed(better)}; worse {_listed(worse)}."
    else:
        out += " No other fixed bound that was tried does better than 1."
    return out + " What is not named cannot be told apart with these seeds."


def _listed(names: list[str]) -> str:
    return ", ".join(names) if names else "none"


COLOURS = "#000000 #1b6ca8 #c8553d #588157 #8d5a97 #b08900 #2a9d8f #6c757d #d1495b #386641 #5f0f40 #0081a7 #9a6324 #e377c2 #ff7f0e #17becf #bcbd22".split()
PANELS = {
    "accuracy": lambda row: row["accuracy"],
    "bound": lambda row: row["bound"],
    "released norm": lambda row: row["moved"],
    "noise over signal": lambda row: row["noise"] / row["moved"] if row["noise"] and row["moved"] else None,
}


def curves(rows: list[dict], epsilon: float) -> str:
    """Small multiples over rounds, the first seed at one epsilon: a row for each data set and unit, a line for each method."""
    chosen = [r for r in rows if r["epsilon"] == epsilon and r["seed"] == rows[0]["seed"]]
    groups = list(dict.fromkeys((r["data"], r["unit"]) for r in chosen))
    names = list(dict.fromkeys(r["method"] for r in chosen))
    wide, high, parts = 320, 190, []
    for line, group in enumerate(groups):
        for column, (title, value) in enumerate(PANELS.items()):
            series = {
                r["method"]: [(c["round"], v) for c in r["curve"] if (v := value(c)) is not None]
                for r in chosen
                if (r["data"], r["unit"]) == group
            }
            parts.append(
                _panel(f"{group[0]}, {group[1]} unit: {title}", series, names, column * wide, line * high + 40)
            )
    keys = "".join(
        f'<text x="{10 + 110 * (i % 9)}" y="{14 + 16 * (i // 9)}" fill="{COLOURS[i % len(COLOURS)]}">{name}</text>'
        for i, name in enumerate(names)
    )
    size = f'width="{len(PANELS) * wide}" height="{len(groups) * high + 50}"'
    style = 'font-family="sans-serif" font-size="10"'
    body = keys + "".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}><rect width="100%" height="100%" fill="#fff"/>{body}</svg>'


def _panel(title: str, series: dict, names: list[str], left: int, top: int) -> str:
    points = [p for line in series.values() for p in line]
    if not points:
        return ""
    log = title.endswith(("bound", "signal", "norm"))
    scale = (lambda v: float(np.log10(max(v, 1e-9)))) if log else float
    xs, ys = [p[0] for p in points], [scale(p[1]) for p in points]
    low, high = min(ys), max(max(ys), min(ys) + 1e-9)

    def place(x: float, y: float) -> str:
        return f"{left + 40 + 260 * x / max(xs):.1f},{top + 150 - 120 * (scale(y) - low) / (high - low):.1f}"

    out = [f'<text x="{left + 40}" y="{top + 20}" font-weight="bold">{title}</text>']
    out.append(f'<path d="M{left + 40},{top + 28}V{top + 152}H{left + 302}" fill="none" stroke="#999"/>')
    for value, at in ((high, 34), (low, 150)):
        out.append(f'<text x="{left + 36}" y="{top + at}" text-anchor="end">{10**value if log else value:.2g}</text>')
    for name, line in series.items():
        path = "L".join(place(*p) for p in line)
        out.append(
            f'<path d="M{path}" fill="none" stroke="{COLOURS[names.index(name) % len(COLOURS)]}" stroke-width="1.3"/>'
        )
    return "".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for form in ("small", "recipe", "papers"):
        parser.add_argument(f"--{form}", dest="form", action="store_const", const=form, default="full")
    parser.add_argument("--adam", action="store_true")
    parser.add_argument("--page", action="store_true", help="put tables and curves on docs/methods.md")
    parser.add_argument("--data", nargs="+", default=["fashion-mnist", "cifar10"])
    parser.add_argument("--units", nargs="+", default=list(UNITS))
    parser.add_argument("--methods", nargs="+", default=[*NAMES, *VARIANTS, *FIXED])
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    args = parser.parse_args()
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    marks = ["methods", *([args.form] if args.form != "full" else []), *(["adam"] if args.adam else [])]
    kept = DOCS / "results" if args.form == "papers" else results  # what took an hour is kept with the page
    path = kept / f"{'-'.join(marks)}.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    done = {(r["data"], r["unit"], r["method"], r["epsilon"], r["seed"]) for r in rows}
    wanted = [
        (data, unit, name, epsilon, seed)
        for data in args.data
        for unit in args.units
        for seed in args.seeds
        for epsilon in args.epsilons
        for name in args.methods
    ]
    for i, key in enumerate(wanted):
        if key in done:
            continue
        began = time.process_time()
        row = {**run(*key, form=args.form, adam=args.adam), "cpu": round(time.process_time() - began, 1)}
        rows.append(row)
        path.write_text(json.dumps(rows))
        print(f"{i + 1}/{len(wanted)} {' '.join(map(str, key))}: {row['accuracy']:.3f}", file=sys.stderr, flush=True)
    text = tables(rows)
    drawn = curves(rows, args.epsilons[len(args.epsilons) // 2])
    if args.form != "papers":
        path.with_suffix(".md").write_text(text + "\n")
        path.with_suffix(".svg").write_text(drawn)
    if args.page:
        fill("methods.md", path.stem, text)
        if args.form != "papers":
            (DOCS / f"{path.stem}.svg").write_text(drawn)
    print(text)


if __name__ == "__main__":
    main()
