"""Where the time of a step goes: steps of W1 and W2, and one clipped step of every model of `w3`, by PyTorch's profiler on one core.

    python benchmarks/step.py        writes results/step.json, from which performance.py takes its profile

Shares are of the time that each operation takes itself; what is not an operation is Python and the profiler.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import w3
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from sordino import models
from sordino.gradients.flat import Flat
from sordino.gradients.rewrite import faster
from sordino.privacy import bounds

HERE = Path(__file__).parent
MOST = 5  # operations that are named


def shares(step: Callable[[], object], times: int) -> dict[str, float]:
    """The operations that take most, as shares of the whole, and the rest."""
    for _ in range(3):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        for _ in range(times):
            step()
    own = {row.key.removeprefix("aten::"): row.self_cpu_time_total for row in watched.key_averages()}
    total = sum(own.values())
    top = sorted(own, key=lambda name: -own[name])[:MOST]
    return {name: own[name] / total for name in top} | {"the rest": 1 - sum(own[name] for name in top) / total}


def local(batch: int) -> Callable[[], object]:
    """A step of a client of W1 or W2."""
    sys.path.insert(0, str(HERE / "contenders"))
    from net import Net

    flat = Flat(Net())
    forward = faster(flat.model)
    x = torch.randn(batch, 1, 28, 28).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (batch,))

    def step() -> None:
        flat.grad.zero_()
        F.cross_entropy(forward(x), y).backward()
        flat.theta.sub_(flat.grad, alpha=0.01)

    return step


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {f"{name}, batch {batch}": shares(local(batch), 100) for name, batch in (("W1", 64), ("W2", 10))}
    for name, (shape, classes, n) in w3.CASES.items():
        model, (x, y) = models.build(name, shape, classes, 0), w3.batch(name, shape, classes, n)
        found[f"clipped, {name}"] = shares(w3.ours(model, x, y, bounds.Flat(0.1)), 2 if n < 256 else 20)
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "step.json").write_text(json.dumps(found, indent=2))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
