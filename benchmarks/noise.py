"""How fast noise is drawn: the secure source against numpy, the exact integer samplers against OpenDP.

    python benchmarks/noise.py [--json]

OpenDP is compared with where it is installed (`pip install opendp`). Times are the best of several runs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from sordino.privacy import samplers
from sordino.privacy.randomness import SecureSource, stream

DRAWS = 100_000
NORMALS = 1_000_000


def seconds(work: Callable[[], Any], runs: int = 5) -> float:
    """The best of `runs`, after one that warms up."""
    work()
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def continuous() -> list[dict[str, Any]]:
    """Nanoseconds a draw: numpy's default generator, our seeded stream, our secure source."""
    numpy, seeded, secure = np.random.Generator(np.random.PCG64(0)), stream(0, 0, 0, "benchmark"), SecureSource()
    rows = []
    for name in ("standard_normal", "laplace", "random"):
        draws = [getattr(source, name) for source in (numpy, seeded, secure)]
        one, two, three = (seconds(lambda draw=draw: draw(size=NORMALS)) / NORMALS * 1e9 for draw in draws)
        rows.append({"draw": name, "numpy": one, "stream": two, "secure": three, "secure_speed": one / three})
    return rows


def opendp(sigma: float) -> float | None:
    """Seconds that OpenDP takes for as many integers, or None where it is not installed."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    mechanism, zeros = dp.m.make_gaussian(*space, scale=sigma), [0] * DRAWS
    return seconds(lambda: mechanism(zeros), runs=1)


def discrete() -> list[dict[str, Any]]:
    """Seconds for 100,000 integers from the secure source."""
    source = SecureSource()
    rows = []
    for sigma in (1.0, 100.0, 1e4, 1e6):
        ours = seconds(lambda sigma=sigma: samplers.discrete_gaussian(sigma, DRAWS, source))
        theirs = opendp(sigma)
        rows.append(
            {
                "sigma": sigma,
                "discrete_gaussian": ours,
                "skellam": seconds(lambda sigma=sigma: samplers.skellam(sigma**2, DRAWS, source)),
                "opendp": theirs,
                "ratio": None if theirs is None else theirs / ours,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    result = {"continuous": continuous(), "discrete": discrete()}
    if args.json:
        print(json.dumps(result))
        return
    print(f"Nanoseconds a draw, {NORMALS:,} at a time")
    print(f"{'':16}{'numpy':>8}{'stream':>8}{'secure':>8}   secure source, times numpy's speed")
    for row in result["continuous"]:
        times = "".join(f"{row[name]:8.1f}" for name in ("numpy", "stream", "secure"))
        print(f"{row['draw']:16}{times}   {row['secure_speed']:.2f}")
    print(f"\nSeconds for {DRAWS:,} integers, secure source")
    print(f"{'sigma':>10}{'discrete Gaussian':>20}{'Skellam':>10}{'OpenDP':>10}   times faster")
    for row in result["discrete"]:
        theirs = f"{'-':>10}   -" if row["opendp"] is None else f"{row['opendp']:10.3f}   {row['ratio']:.0f}"
        print(f"{row['sigma']:10g}{row['discrete_gaussian']:20.4f}{row['skellam']:10.4f}{theirs}")


if __name__ == "__main__":
    main()
