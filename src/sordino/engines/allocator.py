"""Keep freed memory in the process: training frees and allocates the same activations in every step.

By default glibc hands large blocks back to the kernel and gets them again, zeroed, page by page; that costs a tenth of a
training step. Only processes that end with the run are tuned: workers, and `sordino train` itself. On another
C library nothing happens.
"""

from __future__ import annotations

import ctypes
import sys

# mallopt(3): trim threshold, padding of the heap, and the size from which blocks are mapped (32 MiB is the most it takes)
_SETTINGS = ((-1, 2**31 - 1), (-2, 64 << 20), (-3, 32 << 20))


def keep_memory() -> bool:
    """Tell glibc's malloc to keep what is freed; whether it did."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all(mallopt(option, value) == 1 for option, value in _SETTINGS)
