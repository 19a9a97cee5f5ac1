"""The one piece of C: `kernels.c`, built when the package is installed and called through ctypes.

Where it could not be built (no compiler) or would not load, `library` is None and everything runs on PyTorch alone, to the
same result up to the order of additions. ``SORDINO_NATIVE=0`` turns it off. Kernels that were built from another version of
the source (an editable install after an update) are not called: their arguments may mean something else.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import warnings
import zlib
from functools import cache
from pathlib import Path


class Block(ctypes.Structure):
    """The shape of one block, as the kernels take it: input, output channels and kernel, padding, pooling window."""

    _fields_ = [(name, ctypes.c_long) for name in "n h w c o kh kw top left ph pw".split()]


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
    if not _current(made):
        warnings.warn(
            "the compiled kernels are of another version and are not used; install Sordino again.", stacklevel=2
        )
        return None
    pointer, flag = ctypes.c_void_p, ctypes.c_int
    block = ctypes.POINTER(Block)
    made.sordino_convolves.argtypes = [block]
    made.sordino_convolves.restype = flag
    made.sordino_pool.argtypes = [pointer, block, flag, pointer, pointer]
    made.sordino_forward.argtypes = [*[pointer] * 3, block, flag, *[pointer] * 3]
    made.sordino_backward.argtypes = [*[pointer] * 5, block, flag, flag, *[pointer] * 4]
    number = ctypes.c_long
    made.sordino_squares.argtypes = [pointer, number, number, pointer]
    made.sordino_weighted.argtypes = [pointer, pointer, number, number, pointer]
    made.sordino_outer.argtypes = [pointer, pointer, number, number, number, pointer, pointer]
    for run in (
        made.sordino_pool, made.sordino_forward, made.sordino_backward,
        made.sordino_squares, made.sordino_weighted, made.sordino_outer,
    ):  # fmt: skip
        run.restype = None
    for room in (made.sordino_forward_scratch, made.sordino_backward_scratch):
        room.argtypes, room.restype = [block], ctypes.c_long
    return made


def _current(made: ctypes.CDLL) -> bool:
    """Whether the kernels were built from the source that is here."""
    source = Path(__file__).with_name("kernels.c")
    try:
        asked = made.sordino_source
    except AttributeError:
        return False
    asked.argtypes, asked.restype = [], ctypes.c_uint32
    return not source.exists() or asked() == zlib.crc32(source.read_bytes())
