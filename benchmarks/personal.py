"""Global and personal accuracy apart: fedavg, dp-fedavg, adact and fed-dpa on CIFAR-10, 10 clients, Dirichlet 1.

    python benchmarks/personal.py                        all runs (hours on two cores); goes on where it was cut off
    python benchmarks/personal.py --records 2000 --rounds 5      the small form
    python benchmarks/personal.py --write                put the table into docs/personal.md
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
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "personal.json"
PAGE = HERE.parent / "docs" / "personal.md"
PRIVATE = {"unit": "client", "observer": "secagg-server", "sampling": "none", "epsilon": 4.0, "bound": 0.5}
PLAIN = {"method": "fedavg", "variant": "published", "unit": "client", "observer": "public", "sampling": "none"}
ROWS: dict[str, dict[str, Any]] = {
    "fedavg": PLAIN,
    "fedavg, own head": PLAIN | {"personal": "head"},
    "dp-fedavg": PRIVATE | {"method": "dp-fedavg"},
    "dp-fedavg, own head": PRIVATE | {"method": "dp-fedavg", "personal": "head"},
    "adact": PRIVATE | {"method": "adact"},
    "adact, own head": PRIVATE | {"method": "adact", "personal": "head"},
    "fed-dpa": PRIVATE | {"method": "fed-dpa"},
    "fed-dpa, as published": PRIVATE | {"method": "fed-dpa", "variant": "published"},
}


def population(records: int, seed: int) -> Any:
    from sordino import Federation
    from sordino.data.sets import load
    from sordino.privacy.randomness import SERVER, stream

    data = load("cifar10")
    if records and records < len(data.y):
        rows = np.sort(stream(seed, 0, SERVER, "subset").choice(len(data.y), records, replace=False))
        held = slice(0, records)  # the test set is in random order
        data = dataclasses.replace(
            data,
            x=np.asarray(data.x[rows]),
            y=np.asarray(data.y)[rows],
            test_x=data.test_x[held],
            test_y=data.test_y[held],
        )
    return Federation.from_dataset(data, "dirichlet", 10, 1.0, seed)


def one(name: str, seed: int, records: int, rounds: int, epochs: int) -> dict[str, Any]:
    from sordino import EngineOptions, Plan, train
    from sordino.models import build

    federation = population(records, seed)
    plan = Plan(
        data="cifar10", clients=10, rounds=rounds, local_epochs=epochs, batch_size=64, lr=1e-3, optimizer="adam",
        model="cnn-cifar", seed=seed, **ROWS[name],
    )  # fmt: skip
    out = HERE / "results" / "personal-run"
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    model = build("cnn-cifar", federation.input_shape, federation.classes, seed)
    options = EngineOptions("in-process", evaluate_every=rounds, checkpoint_every=rounds)
    result = train(model, federation, plan, out=out, options=options)
    own = out / "checkpoint" / "personal" / "accuracy.json"
    assert result.fairness is not None
    return {
        "name": name, "seed": seed, "records": records, "rounds": rounds, "epochs": epochs, "accuracy": result.accuracy,
        "fairness": result.fairness.to_json(), "personal": json.loads(own.read_text()) if own.exists() else None,
        "epsilon": result.epsilon if np.isfinite(result.epsilon) else "inf", "claimed": result.terms.claimed,
        "seconds": round(time.perf_counter() - began),
    }  # fmt: skip


def kept() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def run(arguments: argparse.Namespace) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    for seed in range(arguments.seeds):
        for name in ROWS:
            key = {
                "name": name,
                "seed": seed,
                "records": arguments.records,
                "rounds": arguments.rounds,
                "epochs": arguments.epochs,
            }
            done = kept()
            if any(key.items() <= row.items() for row in done):
                continue
            row = one(**key)
            RESULTS.write_text(json.dumps([*done, row], indent=1))
            print(
                name,
                seed,
                row["accuracy"],
                (row["personal"] or {}).get("mean"),
                row["epsilon"],
                f"{row['seconds']} s",
                flush=True,
            )


def table(rows: list[dict[str, Any]]) -> str:
    """The lines of one setting: the one of the most rows."""
    setting = lambda row: (row["records"], row["rounds"], row["epochs"])  # noqa: E731
    groups = {key: [row for row in rows if setting(row) == key] for key in {setting(row) for row in rows}}
    (records, rounds, epochs), chosen = max(groups.items(), key=lambda pair: len(pair[1]))
    seeds = sorted({row["seed"] for row in chosen})
    head = (
        f"CIFAR-10, {'all' if not records else f'{records:,} of the'} training records{f' and {min(records, 10_000):,} test records' if records else ''}, 10 clients, Dirichlet 1, {rounds} rounds of "
        f"{epochs} epochs, batch 64, Adam 1e-3, `cnn-cifar` (343,946 weights), seeds {', '.join(map(str, seeds))}. Percent.\n\n"
        "| method | claimed | proven | global | between clients: SD, lowest, 10th | personal | between clients: SD, lowest, 10th | seeds |\n"
        "|---|---|---|---|---|---|---|---|\n"
    )
    lines = []
    for name in ROWS:
        own = [row for row in chosen if row["name"] == name]
        if not own:
            continue
        claimed = own[0]["claimed"]
        proven = own[0]["epsilon"]
        cells = [
            name, "–" if claimed is None else f"{claimed:.3g}", "none" if proven == "inf" else f"{proven:.3g}",
            _mean([row["accuracy"] for row in own]), _spread([row["fairness"] for row in own]),
        ]  # fmt: skip
        personal = [row["personal"] for row in own if row["personal"] is not None]
        cells += [_mean([p["mean"] for p in personal]), _spread(personal)] if personal else ["–", "–"]
        lines.append("| " + " | ".join([*cells, str(len(own))]) + " |")
    return head + "\n".join(lines) + "\n"


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

    from sordino.gradients.fisher import Fisher
    from sordino.gradients.flat import Flat
    from sordino.gradients.losses import cross_entropy
    from sordino.gradients.sensitivity import features, first_inner_dense, sensitivities
    from sordino.models import build

    torch.set_num_threads(1)
    lines = ["| | network | obvious, ms a record | here, ms a record | ratio |", "|---|---|---|---|---|"]

    def add(what: str, name: str, slow: float, fast: float) -> None:
        lines.append(f"| {what} | `{name}` | {1e3 * slow:.2f} | {1e3 * fast:.2f} | {slow / fast:.1f} |")

    for name, shape in (
        ("lenet", (1, 28, 28)),
        ("cnn-mnist", (1, 28, 28)),
        ("cnn-cifar", (3, 32, 32)),
        ("cnn-rail", (2, 256)),
    ):
        flat = Flat(build(name, shape, 10))
        x, y = torch.randn(256, *shape), torch.randint(0, 10, (256,))
        fisher = Fisher(flat, cross_entropy)
        fisher.diagonal(x[:1], y[:1])  # chooses how

        def obvious(flat: Flat = flat, x: torch.Tensor = x, y: torch.Tensor = y) -> None:
            total = torch.zeros(flat.size, dtype=torch.float64)
            for i in range(64):
                flat.grad.zero_()
                F.cross_entropy(flat.model(x[i : i + 1]), y[i : i + 1]).backward()
                total += flat.grad.double().square()

        add("Fisher diagonal", name, _least(obvious) / 64, _least(lambda f=fisher, x=x, y=y: f.diagonal(x, y)) / 256)  # type: ignore[misc]
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
    parser.add_argument("--records", type=int, default=0, help="training records that are used (0: all)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--speed", action="store_true")
    arguments = parser.parse_args()
    if arguments.speed:
        text = speed()
        print(text)
        if arguments.write:
            put("speed", text)
    elif arguments.write:
        put("table", table(kept()))
    else:
        run(arguments)
        print(table(kept()))


if __name__ == "__main__":
    main()
