"""One work file per workload: data, clients, cohorts and settings, the same for every contender."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sordino.data.sets import load
from sordino.federation.sampling import public_cohort as draw
from sordino.plan import Plan
from sordino.privacy.randomness import stream

W1 = {"clients": 100, "cohort": 10, "batch": 64, "lr": 0.05, "bound": 1.0, "multiplier": 0.01}
W2 = {"clients": 1000, "cohort": 100, "batch": 10, "lr": 0.05, "bound": 1.0, "multiplier": 0.01}
W3 = {"batch": 256, "lr": 0.05, "bound": 1.0, "multiplier": 1.0, "examples": 12032}


def plan(settings: dict, rounds: int) -> Plan:
    return Plan(
        data="fashion-mnist",
        clients=settings["clients"],
        cohort=settings["cohort"],
        method="dp-fedavg",
        unit="client",
        observer="public",
        sampling="fixed",
        multiplier=settings["multiplier"],
        bound=settings["bound"],
        batch_size=settings["batch"],
        lr=settings["lr"],
        rounds=rounds,
    )


def write(folder: Path, rounds: int) -> None:
    """Make the work files that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    data = load("fashion-mnist")
    normalise = data.normalise
    assert normalise is not None and data.test_x is not None and data.test_y is not None
    x, y = normalise(data.x), np.asarray(data.y, np.int64)
    test = {"test_x": normalise(data.test_x), "test_y": np.asarray(data.test_y, np.int64)}
    for name, settings, parts in (("w1", W1, _dirichlet(y)), ("w2", W2, _small(y))):
        order = np.concatenate(parts)
        cohorts = np.stack([draw(plan(settings, rounds), t) for t in range(1, rounds + 1)])
        offsets = np.concatenate([[0], np.cumsum([len(p) for p in parts])])
        np.savez(folder / f"{name}.npz", x=x[order], y=y[order], offsets=offsets, cohorts=cohorts, **test, **settings)
    np.savez(folder / "w3.npz", x=x[: W3["examples"]], y=y[: W3["examples"]], **test, **W3)


def _dirichlet(y: np.ndarray) -> list[np.ndarray]:
    rng = stream(0, 0, -1, "benchmark w1")
    parts: list[list[np.ndarray]] = [[] for _ in range(100)]
    for c in range(10):
        rows = rng.permutation(np.flatnonzero(y == c))
        cuts = (np.cumsum(rng.dirichlet(np.full(100, 0.5)))[:-1] * len(rows)).astype(int)
        for part, piece in zip(parts, np.split(rows, cuts)):
            part.append(piece)
    return [rng.permutation(np.concatenate(p)) for p in parts]


def _small(y: np.ndarray) -> list[np.ndarray]:
    """Sixty examples each: runs of a label-sorted order, so that every client sees few classes."""
    rng = stream(0, 0, -1, "benchmark w2")
    shards = np.argsort(y, kind="stable").reshape(2000, 30)
    deal = rng.permutation(2000).reshape(1000, 2)
    return [np.concatenate(shards[pair]) for pair in deal]
