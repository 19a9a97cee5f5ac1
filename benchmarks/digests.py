"""Digests of the models of twenty plans: every scheme, observer and engine. Two versions that print the same trained the same bits.

    python benchmarks/digests.py [--json]                            this version
    PYTHONPATH=OTHER/src python benchmarks/digests.py --models F     another version (built in place); F.npz keeps its weights
    python benchmarks/digests.py --compare OLD.npz NEW.npz [--write] how far apart, and why; --write: into docs/architecture.md

Two versions that draw their noise in another way have other weights, and that tells nothing. So every plan is trained a second
time *faintly*: almost without noise, and told to do what the older version did where a default was changed on purpose. What is then
left must be as small as a named change allows, or the comparison fails.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sordino

COMMON = {"clients": 6, "rounds": 4, "batch_size": 16, "lr": 0.2, "seed": 5}
NOISE = {"multiplier": 1.5}
CLIENT = {"unit": "client", "local_epochs": 2}

PLANS: dict[str, dict[str, Any]] = {
    "plain": {"method": "fedavg", "unit": "client", "observer": "public", "sampling": "fixed", "cohort": 3},
    "plain sizes": {"method": "fedavg", "unit": "client", "observer": "public", "sampling": "none", "weights": "size"},
    "client public poisson": CLIENT | NOISE | {"method": "dp-fedavg", "observer": "public", "cohort": 3},
    "client public fixed": CLIENT | NOISE | {"method": "adact", "observer": "public", "sampling": "fixed", "cohort": 3},
    "client public laplace": CLIENT | NOISE | {"method": "dp-fedavg", "observer": "public", "mechanism": "laplace"},
    "client secagg": CLIENT
    | NOISE
    | {"method": "quantile", "observer": "secagg-server", "sampling": "fixed", "cohort": 4},
    "client secagg survivors": CLIENT | NOISE | {"method": "geyer", "observer": "secagg-server", "survivors": 4},
    "client server": CLIENT | NOISE | {"method": "adact", "observer": "server", "sampling": "fixed", "cohort": 3},
    "client weights": CLIENT
    | NOISE
    | {"method": "dp-fedacn", "observer": "public", "weights": "size", "weight_cap": 22},
    "pooled public": NOISE | {"method": "dp-fedavg", "observer": "public"},
    "pooled secagg": NOISE | {"method": "adact", "observer": "secagg-server"},
    "pooled grouped": NOISE | {"method": "dp-fedggc", "observer": "secagg-server"},
    "pooled coordinates": NOISE | {"method": "adaclip", "observer": "public"},
    "pooled automatic adam": NOISE | {"method": "automatic", "server_optimizer": "adam", "lr": 0.01},
    "pooled full batch": NOISE | {"method": "dp-fedagnc", "sampling": "none"},
    "pooled published": NOISE | {"method": "adact", "variant": "published"},
    "local": NOISE | {"method": "dp-fedavg", "observer": "server", "local_epochs": 2},
    "local schedule": NOISE | {"method": "dp-fedddc", "observer": "server", "cohort": 3},
    "local quantile": NOISE | {"method": "quantile", "observer": "server"},
    "fedmap": {"method": "fedmap", "observer": "server", "epsilon": 4.0, "cohort": 3},
    "fedmap secagg": {"method": "fedmap", "observer": "secagg-server", "epsilon": 4.0, "cohort": 4},
    "fedmap published": {"method": "fedmap", "observer": "server", "epsilon": 4.0, "variant": "published"},
}

PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
FAINT = 1e-9  # multiplier
# A share, since without one these rules keep the noise of their answers whatever the multiplier; no miss of exactly 0, whose sign
# would be that of the noise.
SHARE = {"share": 0.1}
# What a plan says to do as the code before the redesign did; `on_sum` is unknown to that code, which does just this.
AS_BEFORE: dict[str, dict[str, Any]] = {
    "client public fixed": {"options": {"tau": 0.5}},
    "client secagg": {"options": SHARE | {"target": 0.513}},
    "client server": {"options": {"tau": 0.5}},
    "client weights": {"options": SHARE},
    "pooled secagg": {"options": {"tau": 0.5}},
    "pooled full batch": {"options": SHARE},
    "local schedule": {"batch_size": 25},  # one step a round
    "local quantile": {"options": SHARE | {"target": 0.513}},
    "fedmap published": {"options": {"on_sum": 0}},
}

# Changes that were intended since the redesign, and the largest faint difference of a weight that each explains.
EXACT, SLACK, BOUND, ONCE, READING = CHANGES = {
    "exact noise": (1e-6, "sums and answers get exact integers on the grid, from other draws"),
    "slack": (2e-5, "clipped gradients stay a part in 2^14 under their bound, and norms are rounded up"),
    "least error": (
        0.0,
        "certified AdaCT takes the bound of least expected error; `--option tau=0.5` is the rule before",
    ),
    "once a round": (0.0, "a schedule moves once a round, and not with every local step"),
    "reading": (
        0.0,
        "the noise of FedMAP as published is on the sum of a batch; `--option on_sum=0` is the reading before",
    ),
}
WHY: dict[str, tuple[str, ...]] = {
    **{name: (EXACT,) for name in PLANS if name.startswith("client")},
    **{name: (EXACT, SLACK) for name in PLANS if name.startswith(("pooled", "local", "fedmap"))},
}
for _name, _change in {
    "client public fixed": BOUND, "client server": BOUND, "pooled secagg": BOUND, "local schedule": ONCE, "fedmap published": READING,
}.items():  # fmt: skip
    WHY[_name] += (_change,)
CONTROLLED = ("fedmap", "fedmap secagg", "fedmap published")  # their noise cannot be made faint: a network sets it


def population() -> sordino.Federation:
    rng = np.random.Generator(np.random.PCG64(3))
    weights = rng.normal(size=(5, 3))

    def points(n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(n, 5)).astype(np.float32)
        return x, (x @ weights).argmax(1)

    return sordino.Federation.from_arrays([points(20 + k) for k in range(6)], test=points(60), classes=3, name="toy")


def model() -> torch.nn.Module:
    net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel()).view(parameter.shape))
    return net


def trained(settings: dict[str, Any], engine: str, folder: Path) -> np.ndarray:
    """The weights that a plan ends with."""
    plan = sordino.Plan(**(COMMON | settings))
    options = getattr(sordino, "EngineOptions", None) or sordino.Speed
    keyword = "options" if "options" in inspect.signature(sordino.train).parameters else "speed"
    result = sordino.train(model(), population(), plan, out=folder, **{keyword: options(engine=engine, workers=2)})
    return torch.cat([p.detach().reshape(-1) for p in result.model.parameters()]).numpy()


def faintly(name: str, folder: Path) -> np.ndarray:
    """The weights almost without noise, by the defaults of the code before."""
    settings = PLANS[name] | ({"multiplier": FAINT} if "multiplier" in PLANS[name] else {})
    try:
        return trained(settings | AS_BEFORE.get(name, {}), "in-process", folder)
    except sordino.BadInput as refused:
        if "on_sum" not in str(refused):
            raise
        return trained(settings, "in-process", folder)


def digest(weights: np.ndarray) -> str:
    return hashlib.sha256(weights.tobytes()).hexdigest()[:16]


def digests(arguments: argparse.Namespace) -> dict[str, str]:
    """Of every plan, in one process and in two; the weights into a file if one is named."""
    found, kept = {}, {}
    with tempfile.TemporaryDirectory() as place:
        for number, (name, settings) in enumerate(PLANS.items()):
            each = {e: trained(settings, e, Path(place) / f"{number}-{e}") for e in ("in-process", "workers")}
            found[name] = " != ".join(dict.fromkeys(digest(w) for w in each.values()))
            kept[name] = each["in-process"]
            if arguments.models:
                kept[f"{name}, faint"] = faintly(name, Path(place) / f"{number}-faint")
            if not arguments.json:
                print(f"{name:28} {found[name]}", flush=True)
    if arguments.json:
        print(json.dumps(found, indent=2))
    if arguments.models:
        np.savez(arguments.models, **kept)
    return found


def compare(old: Path, new: Path) -> tuple[str, list[str]]:
    """The table, and the plans whose difference nothing explains."""
    before, now = np.load(old), np.load(new)
    lines, wrong = ["| plan | before | now | largest difference | faint | why |", "|---|---|---|---|---|---|"], []
    for name in PLANS:
        a, b, faint = before[name], now[name], f"{name}, faint"
        if a.tobytes() == b.tobytes():
            lines.append(f"| {name} | `{digest(a)}` | `{digest(b)}` | same bits | same bits | – |")
            continue
        left = float(np.abs(before[faint] - now[faint]).max())
        allowed = max((CHANGES[change][0] for change in WHY.get(name, ())), default=0.0)
        if left > allowed and name not in CONTROLLED:
            wrong.append(name)
        cell = "–" if name in CONTROLLED else f"{left:.1e}"
        apart = f"{np.abs(a - b).max():.2g}"
        lines.append(f"| {name} | `{digest(a)}` | `{digest(b)}` | {apart} | {cell} | {', '.join(WHY.get(name, ()))} |")
    said = [f"* **{change}**: {words}." for change, (_, words) in CHANGES.items()]
    return "\n".join([*lines, "", *said]) + "\n", wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--models", type=Path, help="keep the weights in this file, those of the faint runs too")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("OLD", "NEW"))
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if not arguments.compare:
        digests(arguments)
        return
    text, wrong = compare(*arguments.compare)
    print(text)
    if arguments.write:
        page, start, end = PAGE.read_text(), "<!-- digests -->\n", "<!-- end of digests -->"
        head, rest = page.split(start, 1)
        PAGE.write_text(head + start + text + end + rest.split(end, 1)[1])
    if wrong:
        raise SystemExit(f"nothing explains the difference of: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
