"""What every contender shares: the work file, the clock, and one line of JSON at the end. Needs numpy only."""

from __future__ import annotations

import argparse
import json
import time
from types import SimpleNamespace

import numpy as np

WARM = 2  # rounds that are not counted


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("work", help="work file")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--variant", default="")
    return parser.parse_args()


def work(path: str) -> SimpleNamespace:
    with np.load(path) as file:
        loaded = {key: file[key] for key in file.files}
    return SimpleNamespace(**{k: v.item() if v.ndim == 0 else v for k, v in loaded.items()})


def client(w: SimpleNamespace, k: int) -> slice:
    return slice(int(w.offsets[k]), int(w.offsets[k + 1]))


class Clock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self.laps: list[float] = []
        self.last = time.perf_counter()

    def lap(self) -> None:
        now = time.perf_counter()
        self.laps.append(now - self.last)
        self.last = now


def emit(name: str, laps: list[float], accuracy: float | None, **more) -> None:
    counted = laps[WARM:] or laps
    row = {
        "contender": name,
        "seconds": float(np.median(counted)),
        "spread": float(np.ptp(counted)),
        "accuracy": accuracy,
        **more,
    }
    print(json.dumps(row), flush=True)
