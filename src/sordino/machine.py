"""What the machine offers to this process."""

from __future__ import annotations

import os


def cores() -> int:
    """The processor cores that this process may use, at least 1. A container or `taskset` may allow fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
