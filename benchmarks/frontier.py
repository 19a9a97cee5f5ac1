"""The best accuracy at a proven epsilon on two cores: the recipe `frontier`, through `sordino.train`.

    python benchmarks/frontier.py --data cifar10 --epsilon 4 --seeds 0 1 2            on the test set
    python benchmarks/frontier.py --data cifar10 --epsilon 4 --validate               on training records that are kept out
    python benchmarks/frontier.py --data cifar10 --epsilon 4 --validate --set lr=40 prepare.damped=200
    python benchmarks/frontier.py --all --write                                       docs/results/frontier.json; goes on where it stopped
    python benchmarks/frontier.py --all --audit --attack --write                      one more run of each row: lower bound, membership attacks
    python benchmarks/frontier.py --draw                                              docs/frontier.svg, table of docs/features.md

10 clients (Dirichlet 1, dealt out by seed 0), example unit pooled, observer secagg-server, delta 1e-5. Seeds differ in draws and noise. Every
row is a run of its own: plan, ledger, statement and `sordino verify` included. `epsilon_lower` comes from one more run of the
same plan with canaries in it (seed 0), and `attacks` from the run of seed 0 and an undefended control: the same features and model, trained without
clipping or noise. `--validate` is for choosing settings: it trains on the training set without 10,000 records and scores
on those. Settings are those of `sordino.recipes.frontier`; docs/features.md says how they were chosen.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sordino import Plan, train
from sordino.attacks.protocol import Protocol
from sordino.attacks.runs import Settings, attack_run
from sordino.audit.measure import audit
from sordino.engines.allocator import keep_memory
from sordino.federation.population import Federation
from sordino.models import build
from sordino.recipes import frontier
from sordino.verify.checking import check

CLIENTS, ALPHA, DELTA = 10, 1.0, 1e-5
HELD_OUT = 10_000
CANARIES = 200
ATTACKS, ATTACKED = ("basic", "rf"), 2000  # members, and as many others
CASES = [("cifar10", 1.0), ("cifar10", 4.0), ("fashion-mnist", 3.0), ("mnist", 1.0), ("mnist", 3.0)]
DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "results" / "frontier.json"
# Best figures read without public data, and with synthetic pre-training (docs/features.md names the sources).
OTHERS = {
    ("cifar10", 1): [("DPSUR", 64.4), ("DP-RandP, GPU", 72.3)],
    ("cifar10", 4): [("DPSUR", 71.5), ("De et al.", 73.5), ("AdaCT", 55.18), ("DP-FedACN", 61.80)],
    ("fashion-mnist", 3): [("DPSUR", 89.7), ("Tramer, Boneh", 89.7)],
    ("mnist", 1): [("DPSUR", 97.9)],
    ("mnist", 3): [("DPSUR", 98.9), ("Tramer, Boneh", 98.7)],
}
AIMS = {("cifar10", 1): (68.0, 72.5), ("cifar10", 4): (73.5, 77.0), ("fashion-mnist", 3): (90.5, 91.5),
        ("mnist", 1): (97.6, 98.2), ("mnist", 3): (98.4, 99.0)}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One run."""

    data: str
    epsilon: float
    accuracy: float
    seed: int
    seconds: float
    cpu_seconds: float
    epsilon_lower: float | None
    delta: float
    multiplier: float
    dimension: int
    memory_mb: int
    verified: bool
    validation: bool
    settings: dict[str, float | str]
    attacks: dict[str, dict[str, float]] | None = None  # AUC, its ceiling, and that of the control, by attack


def population(data: str, validate: bool) -> Federation:
    """All clients with the public test set; or without the records that are kept out, which then are the test set."""
    whole = Federation.from_dataset(data, "dirichlet", CLIENTS, ALPHA, 0)
    if not validate:
        return whole
    out = np.random.Generator(np.random.PCG64(7)).permutation(whole.examples)[:HELD_OUT]
    kept = np.ones(whole.examples, bool)
    kept[out] = False
    assert whole.x is not None and whole.y is not None and whole.offsets is not None
    parts = [np.arange(low, high)[kept[low:high]] for low, high in zip(whole.offsets[:-1], whole.offsets[1:])]
    return Federation.from_arrays(
        [(whole.x[rows], whole.y[rows]) for rows in parts],
        (whole.x[out], whole.y[out]),
        classes=whole.classes,
        name=data,
    )


def plan_for(federation: Federation, epsilon: float, changes: Sequence[str]) -> Plan:
    """The recipe's plan, with settings such as lr=40 or prepare.damped=200 over it."""
    settings: dict[str, Any] = frontier.settings(federation.input_shape, federation.examples, epsilon, DELTA)
    for change in changes:
        name, _, text = change.partition("=")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        table, _, field = name.rpartition(".")
        if table:
            settings[table] = {k: v for k, v in settings[table].items() if k != "digest"} | {field: value}
        else:
            settings[name] = value
    return Plan(data=federation.name, clients=CLIENTS, alpha=ALPHA, epsilon=epsilon, delta=DELTA, **settings)


def run(federation: Federation, plan: Plan, seed: int, validate: bool, out: Path) -> Row:
    plan = plan.replace(seed=seed)
    began, cpu = time.perf_counter(), _cpu()
    assert plan.preparation is not None
    model = build(plan.model, plan.preparation.stages(federation.input_shape).shape, federation.classes)
    result = train(model, federation, plan, out=out)
    assert result.accuracy is not None
    return Row(
        data=plan.data, epsilon=result.epsilon, accuracy=result.accuracy, seed=seed, seconds=time.perf_counter() - began,
        cpu_seconds=_cpu() - cpu, epsilon_lower=None, delta=DELTA, multiplier=result.terms.multiplier,
        dimension=sum(p.numel() for p in model.parameters()), memory_mb=_memory(),
        verified=all(one.ok is not False for one in check(out).checks), validation=validate, settings=told(plan),
    )  # fmt: skip


def told(plan: Plan) -> dict[str, float | str]:
    """The filters and the settings of the head, by which a row that is there already is known again."""
    head = {"rounds": plan.rounds, "batch_size": plan.batch_size, "bound": plan.bound, "lr": plan.lr}
    return {"features": str(plan.prepare.get("digest")), **head}


def lower_bound(federation: Federation, plan: Plan, out: Path) -> float:
    """What canaries in a run of the same plan prove."""
    run(federation, plan.replace(canaries=CANARIES), 0, False, out)
    return float(audit(out)["epsilon_lower"])


def attacked(federation: Federation, plan: Plan, out: Path) -> dict[str, dict[str, float]]:
    """Membership attacks on a run of seed 0 and on its control."""
    assert plan.preparation is not None
    shape = plan.preparation.stages(federation.input_shape).shape
    if not (out / "model.safetensors").exists():
        run(federation, plan, 0, False, out)
    found = attack_run(
        out, ATTACKS, Settings(Protocol(records=ATTACKED)), make=lambda seed: build(plan.model, shape, federation.classes, seed),
        federation=federation,
    )  # fmt: skip
    kept = ("auc", "auc_ceiling", "control_auc")
    return {str(row["attack"]): {name: row[name] for name in kept} for row in found["results"]}


def _cpu() -> float:
    mine, theirs = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return mine.ru_utime + mine.ru_stime + theirs.ru_utime + theirs.ru_stime


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def read() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def key(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["data"], round(row["epsilon"]), row["seed"]


def write(rows: Sequence[dict[str, Any]]) -> None:
    """Rows into the committed results, in place of those of the same data, epsilon and seed."""
    table = {key(row): row for row in [*read(), *rows]}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([table[at] for at in sorted(table)], indent=1) + "\n")


def cases() -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Rows of the same data and epsilon."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in read():
        found.setdefault(key(row)[:2], []).append(row)
    return found


def table() -> str:
    """The table of docs/features.md."""
    lines = [
        "| data | epsilon | accuracy (mean of seeds) | each | at least | aim | audit's lower bound | AUC of membership attacks (control) | CPU s | MB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (data, epsilon), rows in cases().items():
        accuracies = [100 * row["accuracy"] for row in rows]
        least, aim = (f"{one:g}" for one in AIMS[data, epsilon]) if (data, epsilon) in AIMS else ("", "")
        each = ", ".join(f"{one:.2f}" for one in accuracies)
        lower = next((f"{row['epsilon_lower']:.3g}" for row in rows if row.get("epsilon_lower") is not None), "")
        found = next((row["attacks"] for row in rows if row.get("attacks")), {})
        auc = ", ".join(f"{name} {one['auc']:.3f} ({one['control_auc']:.3f})" for name, one in found.items())
        recent = [
            row for row in rows if not row.get("earlier")
        ] or rows  # of the others the head had no kernel of its own
        cpu, memory = np.mean([row["cpu_seconds"] for row in recent]), max(row["memory_mb"] for row in rows)
        lines.append(
            f"| {data} | {epsilon} | **{np.mean(accuracies):.2f}%** | {each} | {least} | {aim} | {lower} | {auc} | {cpu:.0f} | {memory:,} |"
        )
    return "\n".join(lines)


def draw() -> str:
    """Bars: the papers' figures, the anchors, and ours."""
    high, wide, left = 26, 560, 190
    parts, y = [], 34
    for (data, epsilon), rows in cases().items():
        ours = float(np.mean([100 * row["accuracy"] for row in rows]))
        bars = [*OTHERS.get((data, epsilon), []), ("Sordino, frontier", ours)]
        parts.append(f'<text x="8" y="{y}" font-weight="bold">{data}, epsilon {epsilon}</text>')
        for name, value in bars:
            y += high
            colour = "#2563eb" if name.startswith("Sordino") else "#9ca3af"
            length = wide * (value - 50) / 50
            parts.append(f'<text x="{left - 8}" y="{y - 4}" text-anchor="end">{name}</text>')
            parts.append(f'<rect x="{left}" y="{y - 17}" width="{length:.1f}" height="18" fill="{colour}"/>')
            parts.append(f'<text x="{left + length + 6:.1f}" y="{y - 4}">{value:.1f}%</text>')
        y += 36
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + wide + 70}" height="{y}" font-family="sans-serif" font-size="13">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[4.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--validate", action="store_true", help="score on training records that are kept out")
    parser.add_argument("--set", nargs="*", default=[], help="settings of the plan to change", metavar="NAME=VALUE")
    parser.add_argument("--all", action="store_true", help="every row of the table, seeds 0, 1 and 2")
    parser.add_argument("--audit", action="store_true", help="one more run with canaries, for epsilon_lower")
    parser.add_argument(
        "--attack", action="store_true", help="membership attacks on the run of seed 0 and on a control"
    )
    parser.add_argument("--write", action="store_true", help="write docs/results/frontier.json")
    parser.add_argument("--draw", action="store_true", help="draw docs/frontier.svg and print the table")
    args = parser.parse_args()
    if args.draw:
        (DOCS / "frontier.svg").write_text(draw())
        page = (DOCS / "features.md").read_text()
        before, after = page.split("<!-- table -->")[0], page.split("<!-- end of table -->")[1]
        (DOCS / "features.md").write_text(f"{before}<!-- table -->\n{table()}\n<!-- end of table -->{after}")
        print(table())
        return
    keep_memory()
    for data, epsilon in CASES if args.all else [(args.data, epsilon) for epsilon in args.epsilon]:
        federation = population(data, args.validate)
        plan = plan_for(federation, epsilon, args.set)
        done = {key(row): row for row in read() if row.get("settings") == told(plan)}
        with tempfile.TemporaryDirectory() as folder:
            for seed in [0, 1, 2] if args.all else args.seeds:
                if args.write and not args.validate and (data, round(epsilon), seed) in done:
                    continue
                row = run(federation, plan, seed, args.validate, Path(folder) / str(seed))
                print(json.dumps(asdict(row)), flush=True)
                if args.write and not args.validate:
                    write([asdict(row)])
            more = {}
            if args.audit:
                more["epsilon_lower"] = lower_bound(federation, plan, Path(folder) / "audit")
            if args.attack:
                more["attacks"] = attacked(federation, plan, Path(folder) / "0")
            if more:
                print(json.dumps({"data": data, "epsilon": epsilon, **more}), flush=True)
            if more and args.write:
                write([{**row, **more} for row in read() if key(row)[:2] == (data, round(epsilon))])


if __name__ == "__main__":
    main()
