"""Budget to multiplier: ours against dp-accounting's ``calibrate_dp_mechanism`` over privacy loss distributions.

    python benchmarks/accounting.py            a table; the library needs a few minutes
    python benchmarks/accounting.py --quick    two settings only
    python benchmarks/accounting.py --json     one JSON object

Each of our answers is timed cold (nothing cached, but modules imported) and must be at least the library's value and at
most 0.5% above it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import scipy.special  # noqa: F401  (ours imports it when it is first needed; imports are not timed for either side)

from sordino.privacy import calibration, renyi
from sordino.privacy.dp_accounting_check import quiet

# rate, rounds, epsilon, delta
SETTINGS = [
    (1.0, 30, 4.0, 1e-5),
    (0.1, 200, 8.0, 1e-5),
    (0.1, 200, 4.0, 1e-3),
    (0.05, 500, 1.0, 1e-6),
    (0.05, 500, 8.0, 1e-6),
    (256 / 60_000, 4680, 2.0, 1e-5),
    (0.01, 1000, 3.0, 1e-6),
]


def ours(rate: float, rounds: int, epsilon: float, delta: float) -> tuple[float, float]:
    """Multiplier and seconds."""
    calibration._multiplier_for.cache_clear()
    renyi._binomial_table.cache_clear()
    start = time.perf_counter()
    return calibration.multiplier_for(epsilon, delta, rounds, rate), time.perf_counter() - start


def library(rate: float, rounds: int, epsilon: float, delta: float) -> tuple[float, float]:
    """The same, as the library's manual has it."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    def event(multiplier: float) -> dp_accounting.DpEvent:
        noise = dp_accounting.GaussianDpEvent(multiplier)
        sampled = noise if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, noise)
        return dp_accounting.SelfComposedDpEvent(sampled, rounds)

    start = time.perf_counter()
    with quiet():
        found = dp_accounting.calibrate_dp_mechanism(PLDAccountant, event, epsilon, delta)
    return float(found), time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    rows = []
    if not args.json:
        names = ("rate", "rounds", "epsilon", "delta", "library", "ours", "faster", "above")
        print("".join(f"{name:>{width}}" for name, width in zip(names, (8, 7, 8, 7, 18, 18, 8, 9))))
    for setting in SETTINGS[1:3] if args.quick else SETTINGS:
        mine, seconds = ours(*setting)
        theirs, library_seconds = library(*setting)
        row = dict(zip(("rate", "rounds", "epsilon", "delta"), setting))
        row |= {
            "multiplier": mine,
            "seconds": seconds,
            "library_multiplier": theirs,
            "library_seconds": library_seconds,
        }
        row |= {"speedup": library_seconds / seconds, "above": mine / theirs - 1}
        rows.append(row)
        if not args.json:
            print(
                f"{row['rate']:8.5f} {row['rounds']:6d} {row['epsilon']:7g} {row['delta']:6g} "
                f"{theirs:8.4f} {library_seconds:7.2f}s {mine:8.4f} {seconds:7.3f}s "
                f"{row['speedup']:6.0f}x {100 * row['above']:7.4f}%",
                flush=True,
            )
    good = all(0 <= row["above"] <= 0.005 and row["seconds"] < 1 and row["speedup"] >= 20 for row in rows)
    if args.json:
        print(json.dumps({"settings": rows, "least_speedup": min(r["speedup"] for r in rows), "good": good}))
    else:
        print("All at least 20 times faster, none below the library." if good else "NOT as promised.", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
