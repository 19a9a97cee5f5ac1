"""What the machine offers to this process."""

from __future__ import annotations

import ctypes
import gc
import os
import sys


def cores() -> int:
    """The processor cores that this process may use, at least 1. A container or `taskset` may allow fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def give_back_memory() -> None:
    """Free what only cycles of references hold, and hand free pages back to the system; on glibc only.

    For after a large piece of work that does not repeat: what it leaves is in pieces, between which the next one finds no room.
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
