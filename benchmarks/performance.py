"""docs/performance.md, from the figures of `run.py` and `scale.py`."""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent
INTRO = """# Performance

Made by `make bench`; do not edit. Ratios are medians over passes in which all contenders took turns on one machine
({machine}); absolute seconds only compare within a table. *Times Sordino* is how many times as long a contender takes; the bar
to reach is given where there is one (for the limits it is the largest allowed share, turned round).

Sordino runs through the public `sordino.train` with ledger, filter, metrics and checkpoints on; the peers run bare. *Like for
like* is a hand-written loop with two processes, channels-last, pooling before ReLU and a tuned allocator. The limit is the
workload's multiplications at the rate of a large matrix product on both cores; Sordino can come under twice of it because the
backward pass of a pooled convolution has a gradient at one position in eight, and the kernel skips the rest.
"""


def write(report: dict, tables: list[str]) -> None:
    parts = [INTRO.format(machine=report["machine"]), *tables]
    scale = HERE / "results" / "scale.json"
    if scale.exists():
        parts.append(json.loads(scale.read_text())["text"])
    (HERE.parent / "docs" / "performance.md").write_text("\n\n".join(parts) + "\n")
