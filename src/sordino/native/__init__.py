"""The one piece of C: `kernels.c`, built when the package is installed and called through ctypes.

Where it could not be built (no compiler) or would not load, `library` is None and everything runs on PyTorch alone, to the
same result up to the order of additions. ``SORDINO_NATIVE=0`` turns it off.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from functools import cache


@cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels, if there are any."""
    if os.environ.get("SORDINO_NATIVE") == "0":
        return None
    found = importlib.util.find_spec("sordino.native._kernels")
    if found is None or found.origin is None:
        return None
    try:
        made = ctypes.CDLL(found.origin)
    except OSError:
        return None
    pointer, size, flag = ctypes.c_void_p, ctypes.c_long, ctypes.c_int
    made.sordino_pool.argtypes = [pointer, size, size, size, size, flag, pointer, pointer]
    made.sordino_pool.restype = None
    made.sordino_narrow.argtypes = [size] * 4
    made.sordino_narrow.restype = flag
    made.sordino_forward.argtypes = [*[pointer] * 3, *[size] * 7, flag, *[pointer] * 3]
    made.sordino_forward.restype = None
    for backward in (made.sordino_backward, made.sordino_backward_each):
        backward.argtypes = [*[pointer] * 5, *[size] * 8, flag, *[pointer] * 4]
        backward.restype = None
    made.sordino_scratch.argtypes = [size] * 6
    made.sordino_scratch.restype = size
    return made
