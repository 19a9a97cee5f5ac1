"""A population that can only be learnt by heart: its labels are random."""

from __future__ import annotations

import numpy as np

from sordino import EngineOptions, Federation, Plan

CLIENTS, MEMBERS, TEST = 4, 160, 640
SPEED = EngineOptions("in-process", checkpoint_every=1000, evaluate_every=1000)


def make(seed: int):
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(30, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))


def population(seed: int = 0) -> Federation:
    rng = np.random.Generator(np.random.PCG64(seed))
    x, y = rng.normal(size=(MEMBERS + TEST, 30)).astype(np.float32), rng.integers(0, 4, MEMBERS + TEST)
    sizes = [25, 35, 45, 55]
    ends = np.cumsum(sizes)
    parts = [(x[end - size : end], y[end - size : end]) for size, end in zip(sizes, ends)]
    return Federation.from_arrays(parts, test=(x[MEMBERS:], y[MEMBERS:]), classes=4, name="by-heart")


def plan(**settings) -> Plan:
    base = {
        "data": "by-heart", "clients": CLIENTS, "method": "fedavg", "variant": "published", "unit": "client",
        "observer": "public", "sampling": "none", "rounds": 8, "local_epochs": 6, "batch_size": 10, "lr": 0.01,
        "optimizer": "adam", "model": "own",
    }  # fmt: skip
    return Plan(**(base | settings))


def private_plan(**settings) -> Plan:
    base = {
        "data": "by-heart", "clients": CLIENTS, "method": "dp-fedavg", "epsilon": 4.0, "rounds": 20, "batch_size": 40,
        "lr": 0.5, "model": "own",
    }  # fmt: skip
    return Plan(**(base | settings))
