"""The machine's limit: the workload's multiplications at the rate of a large matrix product on two threads."""

from __future__ import annotations

import time

import common
import numpy as np
import torch

args = common.arguments()
w = common.work(args.work)
forward = 24 * 24 * 16 * 25 + 8 * 8 * 32 * 400 + 512 * 128 + 128 * 10
flops = 2 * (3 * forward - 24 * 24 * 16 * 25)  # forward, and backward to weights and inputs (not to the first input)
torch.set_num_threads(2)


def rate(n: int) -> float:
    a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    torch.mm(a, b, out=out)
    laps = []
    for _ in range(7):
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        laps.append(time.perf_counter() - start)
    return 2 * n**3 / float(np.median(laps))


peak = max(rate(1024), rate(3072))
if hasattr(w, "cohorts"):
    sizes = np.diff(w.offsets)
    samples = [int(sizes[c].sum()) for c in w.cohorts[: args.rounds]]
else:
    samples = [w.examples]
common.emit("limit (GEMM)", [flops * n / peak for n in samples], None, gflops=round(peak / 1e9, 1))
