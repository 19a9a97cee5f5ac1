"""What the ledger costs: a grant with its fsync, opening a long ledger, and charging populations of a million clients.

    python benchmarks/ledger.py            a quarter of a minute
    python benchmarks/ledger.py --quick    a few seconds

Times are the median of several runs on one core, in milliseconds unless said otherwise. The folder is a temporary one:
what fsync costs depends on the disk under it (set TMPDIR to try another).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from sordino.privacy import events
from sordino.privacy.client_budgets import ClientBudgets
from sordino.privacy.filter import Filter, GdpFilter, NoBudget, RdpFilter, ScheduleFilter
from sordino.privacy.ledger import Ledger

ABOUT = {"unit": "client", "relation": "add-remove", "observer": "public"}
PLAN = "ab" * 16
ROUND = events.poisson(0.01, events.gaussian(4.0))


def timed(call: Callable[[int], object], times: int) -> float:
    """Median milliseconds of one call."""
    taken = []
    for number in range(times):
        start = time.perf_counter()
        call(number)
        taken.append(time.perf_counter() - start)
    return 1e3 * median(taken)


def show(what: str, milliseconds: float) -> None:
    print(f"{what:<66}{milliseconds:>12.3f} ms", flush=True)


def grants(folder: Path, times: int) -> None:
    budgets: dict[str, tuple[Filter, Callable[[int], object]]] = {
        "schedule of 100,000": (ScheduleFilter([(ROUND, 100_000)], 8.0, 1e-5), lambda number: ROUND),
        "RDP, one event": (RdpFilter(8.0, 1e-5, 8.0), lambda number: ROUND),
        "RDP, a new multiplier each time": (
            RdpFilter(8.0, 1e-5, 8.0),
            lambda number: events.poisson(0.01, events.gaussian(4.0 + number * 1e-6)),
        ),
        "GDP, a new multiplier each time": (
            GdpFilter(8.0, 1e-5),
            lambda number: events.gaussian(400.0 + number * 1e-6),
        ),
    }
    for name, (budget, event) in budgets.items():
        with Ledger.create(folder / f"{name}.jsonl", PLAN, budget, ABOUT) as ledger:
            show(f"grant, with fsync ({name})", timed(lambda n: ledger.request(event(n), n), times))  # noqa: B023


def length(folder: Path, count: int) -> None:
    path = folder / "long.jsonl"
    sync = os.fsync
    with Ledger.create(path, PLAN, ScheduleFilter([(ROUND, 10 * count)], 8.0, 1e-5), ABOUT) as ledger:
        os.fsync = lambda fd: None  # only to fill the file
        try:
            taken = timed(lambda n: ledger.request(ROUND, n), count)
            show(f"grant, without fsync, while writing {count:,} lines", taken)
        finally:
            os.fsync = sync
        show(f"grant, with fsync, after {count:,} lines", timed(lambda n: ledger.request(ROUND, count + n), 50))
    show(f"open, verify and replay {count:,} lines", timed(lambda n: Ledger.open(path, PLAN).close(), 3))
    print(f"{'file':<66}{path.stat().st_size / 1e6:>12.1f} MB")


def clients(folder: Path, times: int) -> None:
    rng = np.random.default_rng(0)
    population = 1_000_000
    some = np.sort(rng.choice(population, 1000, replace=False))
    everyone = np.arange(population)
    spread = rng.random(population) * 1e-5
    table = np.round(spread, 7)  # as from a lookup table of a hundred prices
    spending = ClientBudgets(population, 8.0, 1e-6, 4.0)
    for name, cohort, costs in (
        ("1,000 clients, one cost", some, 1e-5),
        ("1,000 clients, a cost each", some, spread[:1000]),
        ("1,000,000 clients, one cost", everyone, 1e-5),
        ("1,000,000 clients, a cost each", everyone, spread),
    ):
        show(f"charge {name}", timed(lambda n: spending.charge(cohort, costs), times))  # noqa: B023
        show(f"who can afford it: {name}", timed(lambda n: spending.affordable(cohort, costs), times))  # noqa: B023
    budget = NoBudget("each client has its own")
    with Ledger.create(
        folder / "clients.jsonl", PLAN, budget, ABOUT, ClientBudgets(population, 8.0, 1e-6, 4.0)
    ) as ledger:
        at = 0
        for name, cohort, costs in (
            ("1,000 of 1,000,000, one cost", some, None),
            ("1,000 of 1,000,000, a cost each", some, spread[:1000]),
            ("all 1,000,000, one cost", everyone, None),
            ("all 1,000,000, a cost each from a table", everyone, table),
            ("all 1,000,000, a cost each", everyone, spread),
        ):
            before = ledger.path.stat().st_size
            taken = timed(lambda n: ledger.request(ROUND, at + n, cohort, costs), 5)  # noqa: B023
            at += 5
            show(f"grant with its cohort on disk: {name}", taken)
            print(f"{'  line':<66}{(ledger.path.stat().st_size - before) / 5e3:>12.1f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, a ledger of 10,000 lines")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as name:
        grants(Path(name), 50 if quick else 500)
        length(Path(name), 10_000 if quick else 100_000)
        clients(Path(name), 5 if quick else 20)


if __name__ == "__main__":
    main()
