"""The gradient-matching step against a plain PyTorch re-run of the published pseudo-code. A study of `inversion.py`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from sordino.attacks.inversion.gradient import Matcher, squared
from sordino.attacks.inversion.observed import ObservedMessage, Victim
from sordino.gradients.flat import Flat
from sordino.models import build
from sordino.privacy.randomness import SERVER, stream


def published_step(module: torch.nn.Module, target: list[torch.Tensor]) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """DLG's pseudo-code in plain PyTorch: the gradient with its graph, the distance, and backward through both."""

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        x.grad = y.grad = None
        module.zero_grad()
        loss = torch.mean(torch.sum(-F.softmax(y, -1) * F.log_softmax(module(x), -1), 1))
        made = torch.autograd.grad(loss, list(module.parameters()), create_graph=True)
        sum(((a - b) ** 2).sum() for a, b in zip(made, target)).backward()  # type: ignore[union-attr]

    return step


def speed(repeats: int = 100) -> list[dict[str, Any]]:
    """Milliseconds of processor time of one step on one core, the median."""
    torch.set_num_threads(1)
    cases = ((1, 1), (1, 4), (4, 1))
    return [timed(name, *case, repeats) for name in ("lenet-sigmoid", "cnn-cifar", "lenet") for case in cases]


def timed(name: str, seeds: int, batch: int, repeats: int) -> dict[str, Any]:
    """The published step and the fast one in turn, so that a busy machine disturbs both alike.

    Several seeds are one pass of the fast step. The published one takes them one after another.
    """
    make = lambda seed: build(name, (3, 32, 32), 10, seed)  # noqa: E731
    ends = np.zeros((3, 1, 1), np.float32), np.ones((3, 1, 1), np.float32)
    victim, flat = Victim(make, (3, 32, 32), 10, *ends), Flat(make(0))
    rng = stream(0, batch, SERVER, "inversion-speed")
    wanted = (rng.standard_normal(flat.size) * 0.01).astype(np.float32)
    matcher = Matcher(victim, ObservedMessage(wanted, "gradient", flat.vector().numpy(), batch))
    assert matcher.fast
    distance = squared(matcher.target)
    x = torch.from_numpy(rng.random((seeds, batch, 3, 32, 32)).astype(np.float32))
    y = torch.from_numpy(rng.standard_normal((seeds, batch, 10)).astype(np.float32))
    plain = published_step(make(0), [part.clone() for part in flat.split(matcher.target)])
    free = [(a.clone().requires_grad_(), b.clone().requires_grad_()) for a, b in zip(x, y)]
    roads: list[Callable[[], object]] = [
        lambda: [plain(*one) for one in free],
        lambda: matcher.step(x, F.softmax(y, -1), distance),
    ]
    taken: list[list[float]] = [[], []]
    for _ in range(repeats):
        for mine, road in zip(taken, roads):
            started = time.thread_time()  # of this thread alone: other processes on the machine do not count
            road()
            mine.append(1e3 * (time.thread_time() - started))
    plain_ms, fast_ms = (float(np.median(mine)) for mine in taken)
    found = {"network": name, "seeds": seeds, "batch": batch, "plain": plain_ms, "fast": fast_ms}
    return {**found, "times": plain_ms / fast_ms, "load": os.getloadavg()[0], "cores": os.cpu_count()}


def by_speed(found: list[dict[str, Any]]) -> Iterator[str]:
    yield "| network | seeds | batch | published, ms | fast, ms | times as fast |"
    yield "|---|---|---|---|---|---|"
    for row in found:
        yield f"| {row['network']} | {row['seeds']} | {row['batch']} | {row['plain']:.2f} | {row['fast']:.2f} | {row['times']:.1f} |"
    load, cores = max(row["load"] for row in found), found[0]["cores"]
    if load > cores:
        yield f"\nMeasured on a busy machine: up to {load:.0f} processes on {cores} cores."
