"""Digests of the models of twenty plans: every scheme, observer and engine. Two versions that print the same trained the same bits.

python benchmarks/digests.py [--json]
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import sordino

COMMON = {"clients": 6, "rounds": 4, "batch_size": 16, "lr": 0.2, "seed": 5}
NOISE = {"multiplier": 1.5}
CLIENT = {"unit": "client", "local_epochs": 2}

PLANS: dict[str, dict] = {
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


def digest(settings: dict, engine: str, folder: Path) -> str:
    plan = sordino.Plan(**(COMMON | settings))
    options = getattr(sordino, "EngineOptions", None) or sordino.Speed
    keyword = "options" if "options" in inspect.signature(sordino.train).parameters else "speed"
    result = sordino.train(model(), population(), plan, out=folder, **{keyword: options(engine=engine, workers=2)})
    vector = torch.cat([p.detach().reshape(-1) for p in result.model.parameters()])
    return hashlib.sha256(vector.numpy().tobytes()).hexdigest()[:16]


def main() -> dict[str, str]:
    found = {}
    with tempfile.TemporaryDirectory() as place:
        for number, (name, settings) in enumerate(PLANS.items()):
            each = {e: digest(settings, e, Path(place) / f"{number}-{e}") for e in ("in-process", "workers")}
            found[name] = each["in-process"]
            if len(set(each.values())) != 1:
                found[name] = " != ".join(each.values())
            if "--json" not in sys.argv:
                print(f"{name:28} {found[name]}", flush=True)
    if "--json" in sys.argv:
        print(json.dumps(found, indent=2))
    return found


if __name__ == "__main__":
    main()
