"""How fast the feature map is: pictures a second, against a plain PyTorch form (unfold, conv2d, relu, average pooling).

    python benchmarks/features.py [--json] [--pictures 64] [--threads 2]

Both forms compute the same features from the same filters. Times are the best of several runs; only their ratio means
anything on a shared machine.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch.nn import functional as F

from sordino.features import filters, generator
from sordino.features.maps import Block, FeatureMap, _cells, pixels

CASES = {
    "colour, 32 x 32, 800 filters of 6 x 6": ((3, 32, 32), Block(800, 6)),
    "grey, 28 x 28, 400 filters of 6 x 6": ((1, 28, 28), Block(400, 6, threshold=0.6, cells=4, mirror=False)),
}


def plain(block: Block, bank: filters.FilterBank, x: torch.Tensor) -> torch.Tensor:
    """The map as one writes it first: all responses of a batch at once."""
    n, _, height, width = x.shape
    high, wide = bank.patch
    patches = F.unfold(x, bank.patch, stride=block.stride)
    patches = patches - patches.mean(dim=1, keepdim=True)
    patches = patches / torch.sqrt(patches.square().mean(dim=1, keepdim=True) + bank.floor)
    rows, columns = (height - high) // block.stride + 1, (width - wide) // block.stride + 1
    down, across = _cells(rows, block.cells), _cells(columns, block.cells)
    out = []
    for part, flip in ((bank, False), (bank.mirrored(), True)) if block.mirror else ((bank, False),):
        z = torch.einsum("fp,npq->nfq", torch.from_numpy(part.weights), patches) + torch.from_numpy(part.bias)[:, None]
        both = torch.stack([F.relu(z - block.threshold), F.relu(-z - block.threshold)], dim=1)
        pooled = torch.einsum("ar,bc,nsfrc->nsabf", down, across, both.view(n, 2, -1, rows, columns))
        out.append(pooled.flip(3) if flip else pooled)
    return (sum(out) / len(out)).reshape(n, -1)  # type: ignore[union-attr]


def best(work: Callable[[], object], runs: int = 3) -> float:
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--pictures", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    result = {}
    for name, (shape, block) in CASES.items():
        bank = filters.build(generator.images(200, shape, 0), block.window(shape), block.filters, 0, block.mirror)
        mapped, x = FeatureMap(shape, [block], [bank]), generator.images(args.pictures, shape, 1)
        floats = pixels(x)
        row = {}
        for threads in dict.fromkeys((1, args.threads)):
            torch.set_num_threads(threads)
            ours, theirs = best(partial(mapped, x, threads)), best(partial(plain, block, bank, floats))
            row[f"{threads} threads"] = {
                "ours": args.pictures / ours,
                "plain": args.pictures / theirs,
                "ratio": theirs / ours,
            }
        torch.set_num_threads(1)
        row["largest_difference"] = float(np.abs(mapped(x) - plain(block, bank, floats).numpy()).max())
        result[name] = row
    if args.json:
        print(json.dumps(result))
        return
    for name, row in result.items():
        print(name)
        for key, value in row.items():
            if isinstance(value, dict):
                print(
                    f"  {key}: {value['ours']:.0f} pictures/s, plain {value['plain']:.0f}, {value['ratio']:.1f} times as fast"
                )
            else:
                print(f"  largest difference {value:.1e}")


if __name__ == "__main__":
    main()
