"""How fast noise is drawn: the secure source against numpy, exact integers against noise in doubles and OpenDP.

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

from sordino.privacy import grid_noise, samplers
from sordino.privacy.mechanisms import FixedPoint
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
    for sigma in (1.0, 100.0, 1e4, 1e6, 2.0**40):
        ours = seconds(lambda sigma=sigma: samplers.discrete_gaussian(sigma, DRAWS, source))
        theirs = opendp(sigma)
        rows.append(
            {
                "sigma": sigma,
                "discrete_gaussian": ours,
                "rounded_laplace": seconds(lambda sigma=sigma: samplers.rounded_laplace(sigma, DRAWS, source)),
                "opendp": theirs,
                "ratio": None if theirs is None else theirs / ours,
            }
        )
    return rows


def on_the_grid() -> list[dict[str, Any]]:
    """Nanoseconds a coordinate of noise on a sum of 2^40 steps to the bound: doubles rounded to the grid, exact integers."""
    grid, std = FixedPoint(2.0**40), 1.3
    rows = []
    for length in (10**4, 10**5, 10**6):
        codes, row = np.zeros(length, np.int64), {"length": length}
        for name, source in (("stream", stream(0, 0, 0, "benchmark")), ("secure", SecureSource())):
            doubles = seconds(lambda: codes + grid.round(std * source.standard_normal(length)))  # noqa: B023
            exact = seconds(lambda: codes + grid_noise.gaussian(std * grid.scale, length, source))  # noqa: B023
            row[f"{name}_doubles"], row[f"{name}_exact"] = doubles / length * 1e9, exact / length * 1e9
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    result = {"continuous": continuous(), "discrete": discrete(), "on_the_grid": on_the_grid()}
    if args.json:
        print(json.dumps(result))
        return
    print(f"Nanoseconds a draw, {NORMALS:,} at a time")
    print(f"{'':16}{'numpy':>8}{'stream':>8}{'secure':>8}   secure source, times numpy's speed")
    for row in result["continuous"]:
        times = "".join(f"{row[name]:8.1f}" for name in ("numpy", "stream", "secure"))
        print(f"{row['draw']:16}{times}   {row['secure_speed']:.2f}")
    print(f"\nSeconds for {DRAWS:,} integers, secure source")
    print(f"{'sigma':>10}{'discrete Gaussian':>20}{'Laplace':>10}{'OpenDP':>10}   times faster")
    for row in result["discrete"]:
        theirs = f"{'-':>10}   -" if row["opendp"] is None else f"{row['opendp']:10.3f}   {row['ratio']:.0f}"
        print(f"{row['sigma']:10g}{row['discrete_gaussian']:20.4f}{row['rounded_laplace']:10.4f}{theirs}")
    print("\nNanoseconds a coordinate on the grid")
    print(f"{'length':>10}{'stream, doubles':>17}{'exact':>8}{'secure, doubles':>17}{'exact':>8}")
    for row in result["on_the_grid"]:
        stream_times, secure_times = (
            f"{row[f'{name}_doubles']:17.1f}{row[f'{name}_exact']:8.1f}" for name in ("stream", "secure")
        )
        print(f"{row['length']:10}{stream_times}{secure_times}")


if __name__ == "__main__":
    main()
