"""Client unit on features that need no data: from how many clients on it works, with correlated and with independent noise.

    python benchmarks/client_unit.py --predict                    what the planner says, in seconds, without data
    python benchmarks/client_unit.py --write                      every cell, docs/results/client_unit.json; goes on where it stopped
    python benchmarks/client_unit.py --clients 10000 --epsilon 4 --seeds 0 --write
    python benchmarks/client_unit.py --page                       the table of docs/client_unit.md

MNIST dealt out evenly to so many clients, every one of which is protected with all its records. Features are those of the recipe `frontier`
with 50 filters, the private mean included in epsilon; the model is a linear head. A client takes one step on its records. Method
dp-bandmf, 1 band (independent noise, Poisson-sampled clients: DP-FedAvg) and the number of bands that the planner finds best. The server's rate
is the one at which the noise on a score is that of the recipe (`NOISE`), so that less noise allows larger steps. Nothing was tuned on these runs.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sordino import EngineOptions, Plan, train
from sordino.engines.allocator import keep_memory
from sordino.federation.population import Federation
from sordino.models import build
from sordino.planning.bands import Choice, compare
from sordino.verify.checking import check

DATA, DELTA, ROUNDS, BOUND, MOMENTUM, NOISE = "mnist", 1e-5, 100, 0.3, 0.9, 1.0
FILTERS = {"kind": "features", "blocks": [[50, 6, 1, 1.0, 4, 1, 0, 2]], "damped": 50, "share": 0.03}
# (clients, cohort, epsilon): the most telling first
CELLS = [
    (10_000, 200, 4.0),
    (1_000, 100, 4.0),
    (30_000, 300, 4.0),
    (10_000, 200, 1.0),
    (10_000, 200, 8.0),
    (3_000, 150, 4.0),
]
DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "results" / "client_unit.json"


@dataclass(frozen=True)
class Row:
    """One run."""

    data: str
    clients: int
    cohort: int
    epsilon: float
    bands: int
    accuracy: float
    seed: int
    multiplier: float
    noise: float  # on each weight at the end, predicted, in bounds / cohort
    server_lr: float
    seconds: float
    cpu_seconds: float
    verified: bool


def plan_for(clients: int, cohort: int, epsilon: float, bands: int | None = None) -> Plan:
    """The plan of a cell; its rate follows from the planner's noise."""
    plan = Plan(
        data=DATA, clients=clients, cohort=cohort, partition="iid", model="head", method="dp-bandmf", unit="client",
        observer="public", sampling="poisson", epsilon=epsilon, delta=DELTA, rounds=ROUNDS, bound=BOUND, prepare=FILTERS,
        local_epochs=1, batch_size=64, lr=1.0, server_optimizer="momentum", server_momentum=MOMENTUM,
    )  # fmt: skip
    if bands is None:
        return plan
    (choice,) = compare(plan, [bands])
    lr = NOISE * cohort / (choice.noise * BOUND)
    return plan.replace(options={"bands": bands}, server_lr=float(f"{lr:.3g}"))


def choices(clients: int, cohort: int, epsilon: float) -> list[Choice]:
    """Independent noise, and the bands that the planner finds best."""
    found = compare(plan_for(clients, cohort, epsilon))
    best = min(found, key=lambda one: one.noise)
    return [found[0], *([best] if best.bands > 1 else [])]


def run(federation: Federation, plan: Plan, choice: Choice, seed: int, out: Path) -> Row:
    plan = plan.replace(seed=seed)
    began, cpu = time.perf_counter(), _cpu()
    assert plan.preparation is not None and plan.epsilon is not None
    model = build(plan.model, plan.preparation.stages(federation.input_shape).shape, federation.classes)
    result = train(model, federation, plan, out=out, options=EngineOptions(checkpoint_every=10))
    assert result.accuracy is not None
    return Row(
        data=DATA, clients=plan.clients, cohort=plan.cohort_size, epsilon=result.epsilon, bands=choice.bands,
        accuracy=result.accuracy, seed=seed, multiplier=result.terms.multiplier, noise=choice.noise, server_lr=plan.server_lr,
        seconds=time.perf_counter() - began, cpu_seconds=_cpu() - cpu,
        verified=all(one.ok is not False for one in check(out).checks),
    )  # fmt: skip


def _cpu() -> float:
    both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def read() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def key(row: dict[str, Any]) -> tuple[int, int, int, int]:
    return row["clients"], round(row["epsilon"]), row["bands"], row["seed"]


def write(row: Row) -> None:
    table = {key(one): one for one in [*read(), asdict(row)]}
    RESULTS.write_text(json.dumps([table[at] for at in sorted(table)], indent=1) + "\n")


def table() -> str:
    """The table of docs/client_unit.md."""
    lines = [
        "| clients | cohort | epsilon | bands | multiplier | noise, predicted | accuracy | seeds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
    for row in read():
        groups.setdefault(key(row)[:3], []).append(row)
    for (clients, epsilon, bands), rows in groups.items():
        first, accuracies = rows[0], [100 * row["accuracy"] for row in rows]
        base = next((one["noise"] for one in read() if key(one)[:3] == (clients, epsilon, 1)), first["noise"])
        spread = f" ± {np.std(accuracies):.1f}" if len(rows) > 1 else ""
        lines.append(
            f"| {clients:,} | {first['cohort']} | {epsilon} | {bands} | {first['multiplier']:.3g} | {first['noise'] / base:.2f} | "
            f"**{np.mean(accuracies):.1f}%**{spread} | {len(rows)} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int)
    parser.add_argument("--epsilon", type=float)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--predict", action="store_true", help="what the planner says, and nothing else")
    parser.add_argument("--write", action="store_true", help="write docs/results/client_unit.json")
    parser.add_argument("--page", action="store_true", help="write the table of docs/client_unit.md")
    args = parser.parse_args()
    if args.page:
        page = (DOCS / "client_unit.md").read_text()
        before, after = page.split("<!-- table -->")[0], page.split("<!-- end of table -->")[1]
        (DOCS / "client_unit.md").write_text(f"{before}<!-- table -->\n{table()}\n<!-- end of table -->{after}")
        print(table())
        return
    cells = [c for c in CELLS if args.clients in (None, c[0]) and args.epsilon in (None, c[2])]
    if args.predict:
        for cell in cells:
            for choice in compare(plan_for(*cell)):
                print(json.dumps({"clients": cell[0], "cohort": cell[1], "epsilon": cell[2], **asdict(choice)}))
        return
    keep_memory()
    done = {key(row) for row in read()} if args.write else set()
    for seed in args.seeds:
        for clients, cohort, epsilon in cells:
            for choice in choices(clients, cohort, epsilon):
                if (clients, round(epsilon), choice.bands, seed) in done:
                    continue
                federation = Federation.from_dataset(DATA, "iid", clients, 1.0, 0)
                plan = plan_for(clients, cohort, epsilon, choice.bands)
                with tempfile.TemporaryDirectory() as folder:
                    row = run(federation, plan, choice, seed, Path(folder) / "run")
                print(json.dumps(asdict(row)), flush=True)
                if args.write:
                    write(row)


if __name__ == "__main__":
    main()
