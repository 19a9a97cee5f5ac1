"""Global and personal accuracy apart: fedavg, dp-fedavg, adact and fed-dpa on CIFAR-10, 10 clients, Dirichlet 1.

    python benchmarks/personal.py                        all runs (about an hour on one core); goes on where it was cut off
    python benchmarks/personal.py --model cnn-cifar --methods fedavg adact --seed 0      some cells of one of the two tables
    python benchmarks/personal.py --write                put the tables that were run into docs/personal.md
    python benchmarks/personal.py --speed                Fisher diagonals and sensitivities against their obvious versions

The shared model is measured on the public test set; personal models on the part of it that is the client's (the label shares of
its training data). The papers mix the two. Every line is the mean over the seeds, with the standard deviation in brackets.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
RESULTS = DOCS / "results" / "personal.json"
PAGE = DOCS / "personal.md"
CLAIM = 4.0
FIRST = 4, 8  # lines that are run for all seeds before the others

PLAIN = {"method": "fedavg", "variant": "published", "unit": "client", "observer": "public", "sampling": "none"}
CLIENT = {"unit": "client", "observer": "secagg-server", "sampling": "none", "epsilon": CLAIM}
RECORDS = {
    "unit": "example", "observer": "secagg-server", "sampling": "poisson", "epsilon": CLAIM, "bound": 1.0, "rounds": 100,
    "batch_size": 2000, "lr": 0.5, "optimizer": "sgd",
}  # fmt: skip
OWN = {"personal": "head"}
TRUTH = {"epsilon": None}  # what Fed-DPA's claim of 4 is in truth, in the same setting
# Most telling first: a run that is cut off has the shorter table.
ROWS: dict[str, dict[str, Any]] = {
    "fedavg": PLAIN,
    "fed-dpa": CLIENT | {"method": "fed-dpa"},
    "dp-fedavg": CLIENT | {"method": "dp-fedavg"},
    "adact": CLIENT | {"method": "adact"},
    "fed-dpa, as published": CLIENT | {"method": "fed-dpa", "variant": "published"},
    "dp-fedavg, at that epsilon": CLIENT | TRUTH | {"method": "dp-fedavg"},
    "adact, at that epsilon": CLIENT | TRUTH | {"method": "adact"},
    "each client alone": {},
    "fedavg, own head": PLAIN | OWN,
    "dp-fedavg, own head": CLIENT | OWN | {"method": "dp-fedavg"},
    "adact, own head": CLIENT | OWN | {"method": "adact"},
    "dp-fedavg, own head, at that epsilon": CLIENT | OWN | TRUTH | {"method": "dp-fedavg"},
    "dp-fedavg, records": RECORDS | {"method": "dp-fedavg"},
    "adact, records": RECORDS | {"method": "adact"},
}


@dataclass(frozen=True)
class Setting:
    """One table: a network and how it is trained. Bound and rate were tried on 10,000 records with seeds from 100 on."""

    model: str
    plan: dict[str, Any]
    rows: tuple[str, ...]

    @property
    def words(self) -> str:
        p = self.plan
        return (
            f"{p['rounds']} rounds of {p['local_epochs']} epoch, batch {p['batch_size']}, {p['optimizer']} at a rate of {p['lr']:g}, bound "
            f"{p['bound']:g}"
        )


SETTINGS = {
    "std-mlp": Setting(
        "std-mlp",
        {"rounds": 6, "local_epochs": 1, "batch_size": 64, "lr": 0.1, "optimizer": "sgd", "bound": 0.2},
        tuple(ROWS),
    ),
    "cnn-cifar": Setting(
        "cnn-cifar",
        {"rounds": 4, "local_epochs": 1, "batch_size": 64, "lr": 1e-3, "optimizer": "adam", "bound": 0.5},
        tuple(ROWS)[:4],
    ),
}


# ---- runs --------------------------------------------------------------------------------------------------------------


def population(records: int, seed: int) -> Any:
    from sordino import Federation
    from sordino.data.sets import load
    from sordino.privacy.randomness import SERVER, stream

    data = load("cifar10")
    if records and records < len(data.y):
        rows = np.sort(stream(seed, 0, SERVER, "subset").choice(len(data.y), records, replace=False))
        data = dataclasses.replace(data, x=np.asarray(data.x[rows]), y=np.asarray(data.y)[rows])
    return Federation.from_dataset(data, "dirichlet", 10, 1.0, seed)


def plan_of(setting: Setting, name: str, seed: int, sizes: Any) -> Any:
    """The plan of one line."""
    from sordino import Plan
    from sordino.schemes import settle

    asked = setting.plan | ROWS[name]
    if asked.get("epsilon", CLAIM) is None:
        asked["epsilon"] = settle(plan_of(setting, "fed-dpa, as published", seed, sizes), sizes).spent.epsilon
    return Plan(data="cifar10", clients=10, model=setting.model, seed=seed, **asked)


def one(table: str, name: str, seed: int, records: int) -> dict[str, Any]:
    from sordino import EngineOptions, train
    from sordino.federation.sizes import PublicSizes
    from sordino.models import build

    setting, federation, began = SETTINGS[table], population(records, seed), time.process_time()
    model = build(setting.model, federation.input_shape, federation.classes, seed)
    key = {"table": table, "name": name, "seed": seed, "records": records}
    if not ROWS[name]:
        own = alone(model, federation, setting, seed)
        return key | {"personal": own.to_json(), "seconds": round(time.process_time() - began)}
    plan = plan_of(setting, name, seed, PublicSizes.of(federation))
    out = HERE / "results" / f"personal-run-{table}-{name}-{seed}-{records}"
    options = EngineOptions("in-process", evaluate_every=plan.rounds)
    result = train(model, federation, plan, out=out, resume=out.exists(), options=options)
    kept = out / "checkpoint" / "personal" / "accuracy.json"
    assert result.fairness is not None
    row = key | {
        "accuracy": result.accuracy, "fairness": result.fairness.to_json(),
        "personal": json.loads(kept.read_text()) if kept.exists() else None,
        "epsilon": result.epsilon if np.isfinite(result.epsilon) else "inf", "claimed": result.terms.claimed,
        "seconds": round(time.process_time() - began),  # of the last part, if the run was cut off
    }  # fmt: skip
    shutil.rmtree(out)
    return row


def alone(model: Any, federation: Any, setting: Setting, seed: int) -> Any:
    """Every client trains on its own records only, for as many epochs as in the federation."""
    import copy

    import torch
    from torch.nn.functional import cross_entropy

    from sordino.clients.descent import Descent, train
    from sordino.engines.client_scores import spread
    from sordino.gradients.flat import Flat
    from sordino.gradients.rewrite import faster
    from sordino.privacy.randomness import stream

    p, found = setting.plan, []
    for k in range(federation.clients):
        flat = Flat(copy.deepcopy(model).train())
        x, y = (torch.from_numpy(np.array(part)) for part in federation[k])
        descent, rng = Descent(p["optimizer"], p["lr"]), stream(seed, 0, k, "alone")
        epochs = p["rounds"] * p["local_epochs"]
        train(flat, faster(flat.model), x, y, cross_entropy, descent, epochs, p["batch_size"], rng)
        found.append(flat.vector().numpy())
    return spread(model, federation, lambda k: found[k])


def kept() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def run(arguments: argparse.Namespace) -> None:
    from sordino.clients.threads import one_thread
    from sordino.files import write_atomically

    tables = list(SETTINGS) if arguments.model is None else [arguments.model]
    seeds = range(arguments.seeds) if arguments.seed is None else [arguments.seed]
    todo = []
    for t in tables:
        rows = SETTINGS[t].rows
        for some in (rows[: FIRST[0]], rows[FIRST[0] : FIRST[1]], rows[FIRST[1] :]):
            todo += [(t, name, seed) for seed in seeds for name in some if name in (arguments.methods or rows)]
    for table, name, seed in todo:
        key = {"table": table, "name": name, "seed": seed, "records": arguments.records}
        if any(key.items() <= row.items() for row in kept()):
            continue
        with one_thread():
            row = one(**key)
        write_atomically(RESULTS, json.dumps([*kept(), row], indent=1))
        own = (row["personal"] or {}).get("mean")
        print(table, name, seed, row.get("accuracy"), own, row.get("epsilon"), f"{row['seconds']} s", flush=True)


# ---- tables ------------------------------------------------------------------------------------------------------------


def table(name: str, records: int = 0) -> str:
    """The lines of one setting, as far as they were run; nothing if none was."""
    setting, lines = SETTINGS[name], []
    rows = [row for row in kept() if row["table"] == name and row["records"] == records]
    if not rows:
        return ""
    for line in setting.rows:
        own = [row for row in rows if row["name"] == line]
        if own:
            lines.append(_line(line, own))
    seeds = sorted({row["seed"] for row in rows})
    return (
        f"CIFAR-10, {'all 50,000' if not records else f'{records:,} of the'} training records, 10 clients, Dirichlet 1, `{setting.model}`, "
        f"{setting.words}, delta 1e-5, seeds {', '.join(map(str, seeds))}. Percent.\n\n"
        "| method | unit | claimed | proven | global | between clients: SD, lowest, 10th | personal | between clients: SD, lowest, 10th | seeds |\n"
        "|---|---|---|---|---|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )


def _line(name: str, own: list[dict[str, Any]]) -> str:
    claimed, proven = own[0].get("claimed"), own[0].get("epsilon")
    cells = [name, ROWS[name].get("unit", "–") if proven not in (None, "inf") else "–"]
    cells.append("–" if claimed is None else f"{claimed:.3g}")
    cells.append("–" if proven is None else "none" if proven == "inf" else f"{proven:.3g}")
    if proven is None:
        cells += ["–", "–"]
    else:
        cells += [_mean([row["accuracy"] for row in own]), _spread([row["fairness"] for row in own])]
    personal = [row["personal"] for row in own if row["personal"] is not None]
    cells += [_mean([p["mean"] for p in personal]), _spread(personal)] if personal else ["–", "–"]
    return "| " + " | ".join([*cells, str(len(own))]) + " |"


def _mean(values: list[float]) -> str:
    each = 100 * np.array(values)
    return f"{each.mean():.1f} ({each.std():.1f})"


def _spread(rows: list[dict[str, float]]) -> str:
    return ", ".join(f"{100 * np.mean([row[key] for row in rows]):.1f}" for key in ("sd", "lowest", "tenth"))


# ---- speed -----------------------------------------------------------------------------------------------------------


def speed() -> str:
    """Processor time on one thread, of the fast version and of one backward pass a sample (and feature)."""
    import torch
    from torch.nn import functional as F

    from sordino.gradients import WINDOW
    from sordino.gradients.fisher import Fisher
    from sordino.gradients.flat import Flat
    from sordino.gradients.losses import cross_entropy
    from sordino.gradients.sensitivity import features, first_inner_dense, sensitivities
    from sordino.models import build

    torch.set_num_threads(1)
    records = 2 * WINDOW  # whole windows: free slots cost what records cost
    lines = ["| | network | obvious, ms a record | here, ms a record | ratio |", "|---|---|---|---|---|"]

    def add(what: str, name: str, slow: float, fast: float) -> None:
        lines.append(f"| {what} | `{name}` | {1e3 * slow:.2f} | {1e3 * fast:.2f} | {slow / fast:.1f} |")

    for name in ("lenet", "cnn-mnist", "cnn-cifar", "cnn-rail", "std-mlp", "char-lstm"):
        shape = {"cnn-rail": (2, 256), "cnn-cifar": (3, 32, 32), "std-mlp": (3, 32, 32)}.get(name, (1, 28, 28))
        if name == "char-lstm":
            flat, x, y = (
                Flat(build(name, (80,), 80)),
                torch.randint(0, 80, (records, 80)),
                torch.randint(0, 80, (records,)),
            )
        else:
            flat, x, y = Flat(build(name, shape, 10)), torch.randn(records, *shape), torch.randint(0, 10, (records,))
        fisher = Fisher(flat, cross_entropy)
        fisher.diagonal(x[:1], y[:1])  # chooses how

        def obvious(flat: Flat = flat, x: torch.Tensor = x, y: torch.Tensor = y) -> None:
            total = torch.zeros(flat.size, dtype=torch.float64)
            for i in range(32):
                flat.grad.zero_()
                F.cross_entropy(flat.model(x[i : i + 1]), y[i : i + 1]).backward()
                total += flat.grad.double().square()

        fast = _least(lambda f=fisher, x=x, y=y: f.diagonal(x, y)) / len(x)  # type: ignore[misc]
        add("Fisher diagonal", name, _least(obvious) / 32, fast)
    for name, shape in (
        ("lenet", (1, 28, 28)),
        ("cnn-mnist", (1, 28, 28)),
        ("cnn-cifar", (3, 32, 32)),
        ("lenet-sigmoid", (3, 32, 32)),
    ):
        model, x = build(name, shape, 10), torch.randn(16, *shape)
        layer = first_inner_dense(model, x[:1])
        assert layer is not None

        def slowly(model: Any = model, layer: str = layer, x: torch.Tensor = x) -> None:
            one_example = x[:1].clone().requires_grad_()
            r = features(model, layer, one_example)
            for j in range(r.shape[1]):
                r[0, j].backward(retain_graph=True)

        add("sensitivities", name, _least(slowly), _least(lambda m=model, n=layer, x=x: sensitivities(m, n, x)) / 16)  # type: ignore[misc]
    return "\n".join(lines) + "\n"


def _least(work: Callable[[], object], times: int = 3) -> float:
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def put(mark: str, text: str) -> None:
    """Replace what stands between two marks of the page."""
    page = PAGE.read_text()
    start, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
    before, rest = page.split(start, 1)
    PAGE.write_text(before + start + text + end + rest.split(end, 1)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", choices=list(SETTINGS), help="one of the tables; by default all, one after the other"
    )
    parser.add_argument("--methods", nargs="+", choices=list(ROWS), metavar="LINE", help="some lines of the table")
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--records", type=int, default=0, help="training records that are used (0: all)")
    parser.add_argument("--seeds", type=int, default=3, help="without --seed: the seeds from 0 on")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--speed", action="store_true")
    arguments = parser.parse_args()
    if arguments.speed:
        text = speed()
        print(text)
        if arguments.write:
            put("speed", text)
        return
    if not arguments.write:
        run(arguments)
    for name in SETTINGS:
        text = table(name, arguments.records)
        print(text)
        if arguments.write and text:
            put(f"table {name}", text)


if __name__ == "__main__":
    main()
