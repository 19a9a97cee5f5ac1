"""Per-example clipping against plain training, model by model, through the public `PerExample`.

    python benchmarks/w3.py [--only cnn-mnist] [--threads 1] [--passes 3] [--json]

One step clips and sums the gradients of one batch (plain training: one forward and one backward pass). Opacus takes
part if it is installed. Contenders take turns, and every ratio is taken within a turn; with one thread it is
processor time that counts, which other work on the machine disturbs least. `error` is the distance of the clipped sum
from single backward passes, relative to its length. `run.py --only w3` measures the same through `sordino.train`,
with noise, ledger and two workers.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from sordino import models
from sordino.engines.allocator import keep_memory
from sordino.gradients.per_example import PerExample
from sordino.privacy import bounds

CASES: dict[str, tuple[tuple[int, ...], int, int]] = {  # shape, classes, batch
    "linear": ((784,), 10, 256),
    "lenet": ((1, 28, 28), 10, 256),
    "cnn-mnist": ((1, 28, 28), 10, 256),
    "cnn-cifar": ((3, 32, 32), 10, 256),
    "cnn-rail": ((1, 500), 2, 256),
    "char-lstm": ((80,), 80, 128),
    "resnet18": ((3, 32, 32), 10, 32),
}
Step = Callable[[], object]


def batch(name: str, shape: tuple[int, ...], classes: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    x = (
        torch.randint(0, classes, (n, *shape), generator=g)
        if name == "char-lstm"
        else torch.randn(n, *shape, generator=g)
    )
    return x, torch.randint(0, classes, (n,), generator=g)


def plain(model: nn.Module, x: torch.Tensor, y: torch.Tensor, last: bool) -> Step:
    model = copy.deepcopy(model)
    if last and x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def ours(model: nn.Module, x: torch.Tensor, y: torch.Tensor, bound: bounds.Bound) -> Step:
    engine = PerExample(copy.deepcopy(model))

    def step() -> np.ndarray:
        total, _ = engine.clipped_sum(x, y, bound)
        engine.flat.theta.sub_(torch.from_numpy(total.astype(np.float32)), alpha=1e-4 / len(x))
        return total

    return step


def opacus(model: nn.Module, x: torch.Tensor, y: torch.Tensor, mode: str) -> Step | None:
    """Opacus's own step on the same batch; None if it is not installed or does not take the model."""
    try:
        from opacus import PrivacyEngine
        from torch.utils.data import DataLoader, TensorDataset

        model = copy.deepcopy(model)
        made = PrivacyEngine().make_private(
            module=model, optimizer=torch.optim.SGD(model.parameters(), lr=1e-4), criterion=nn.CrossEntropyLoss(),
            data_loader=DataLoader(TensorDataset(x, y), batch_size=len(x)), noise_multiplier=1e-6, max_grad_norm=0.1,
            poisson_sampling=False, grad_sample_mode=mode,
        )  # fmt: skip
    except Exception:  # a peer that is absent or refuses the model is left out of the table
        return None
    net, optimizer = made[0], made[1]
    loss = made[2] if mode == "ghost" else nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()

    return step


def error(model: nn.Module, x: torch.Tensor, y: torch.Tensor, bound: bounds.Bound) -> float:
    fast, _ = PerExample(copy.deepcopy(model)).clipped_sum(x, y, bound)
    slow = np.zeros_like(fast)
    for row in PerExample(copy.deepcopy(model), mode="loop").rows(x, y):
        slow += bound.clip(row.astype(np.float64))
    return float(np.linalg.norm(fast - slow) / np.linalg.norm(slow))


def peak_here(name: str, who: str) -> float:
    """MB at the peak of this process after three steps."""
    torch.set_num_threads(1)
    shape, classes, n = CASES[name]
    model, (x, y) = models.build(name, shape, classes, 0), batch(name, shape, classes, n)
    step = plain(model, x, y, False) if who == "plain" else ours(model, x, y, bounds.Flat(0.1))
    for _ in range(3):
        step()
    # Not `ru_maxrss`, which begins with the size of the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def peak(name: str, who: str) -> float:
    code = f"import w3; print(w3.peak_here({name!r}, {who!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, check=True)
    return float(done.stdout)


def measure(name: str, passes: int, least: float, clock: Callable[[], float]) -> dict:
    shape, classes, n = CASES[name]
    model, (x, y) = models.build(name, shape, classes, 0), batch(name, shape, classes, n)
    bound = bounds.Flat(0.1)
    steps: dict[str, Step | None] = {
        "plain": plain(model, x, y, False),
        "plain, channels-last": plain(model, x, y, True),
        "Sordino": ours(model, x, y, bound),
        "Opacus ghost": opacus(model, x, y, "ghost"),
        "Opacus hooks": opacus(model, x, y, "hooks"),
    }
    taken: dict[str, list[float]] = {}
    for turn in range(passes + 1):
        for who, step in list(steps.items()):
            if step is None:
                continue
            try:
                start, count = clock(), 0
                while count == 0 or clock() - start < least:
                    step()
                    count += 1
            except Exception:  # as above
                steps[who] = None
                continue
            if turn:  # the first is for warming up
                taken.setdefault(who, []).append((clock() - start) / count)
    ratios = {who: float(np.median(np.divide(t, taken["Sordino"]))) for who, t in taken.items() if len(t) == passes}
    seconds = {who: float(np.median(t)) for who, t in taken.items()}
    return {
        "model": name, "batch": n, "seconds": seconds, "ratio": ratios, "error": error(model, x[:8], y[:8], bound),
        "peak_mb": {who: peak(name, who) for who in ("plain", "Sordino")},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(CASES), action="append")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each contender in each pass")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(args.threads)
    keep_memory()
    clock = time.process_time if args.threads == 1 else time.perf_counter
    rows = []
    for name in args.only or CASES:
        row = measure(name, args.passes, args.seconds, clock)
        rows.append(row)
        if not args.json:
            shares = ", ".join(f"{who} {ratio:.2f}" for who, ratio in row["ratio"].items() if who != "Sordino")
            print(f"{name}: {1e3 * row['seconds']['Sordino']:.1f} ms; times that: {shares}; error {row['error']:.1e}")
    if args.json:
        print(json.dumps({"threads": args.threads, "rows": rows}))


if __name__ == "__main__":
    main()
