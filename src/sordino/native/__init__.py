"""The two pieces of C, built when the package is installed and called through ctypes: `kernels.c` (with `block.inc`, `product.inc` and `lstm.c`), of training, and
`passes.c`, of gradient matching.

Where one could not be built (no compiler) or would not load, `library` (or `passes`) is None and everything runs on PyTorch alone, to the
same result up to the order of additions. ``SORDINO_NATIVE=0`` turns both off. What was built from another version of the source (an
editable install after an update) is not called: its arguments may mean something else.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import warnings
import zlib
from functools import cache
from pathlib import Path

SUFFIXES = (".c", ".h", ".inc")  # as in setup.py


class Block(ctypes.Structure):
    """The shape of one block, as the kernels take it: input, output channels and kernel, padding, pooling window."""

    _fields_ = [(name, ctypes.c_long) for name in "n h w c o kh kw top left ph pw".split()]


class Layer(ctypes.Structure):
    """One layer of a chain, as the passes take it; see `passes.c`."""

    _fields_ = [
        *[(name, ctypes.c_long) for name in "kind h w c oh ow o kh kw sh sw top left at".split()],
        *[(name, ctypes.c_void_p) for name in "weight bias rows drows y dy out bar slope taken".split()],
    ]


class Chain(ctypes.Structure):
    """The layers in order, and scratch memory."""

    _fields_ = [
        *[(name, ctypes.c_long) for name in "count first n size".split()],
        *[(name, ctypes.c_void_p) for name in "layers padded patch turned by at".split()],
    ]


def _built(name: str) -> ctypes.CDLL | None:
    """The library that was made of `name`.c, if it is there and made of this version of it."""
    if os.environ.get("SORDINO_NATIVE") == "0":
        return None
    found = importlib.util.find_spec(f"sordino.native._{name}")
    if found is None or found.origin is None:
        return None
    try:
        made = ctypes.CDLL(found.origin)
    except OSError:
        return None
    if not _current(made):
        warnings.warn(
            f"the compiled {name} are of another version and are not used; install Sordino again.", stacklevel=3
        )
        return None
    return made


@cache
def passes() -> ctypes.CDLL | None:
    """The passes of gradient matching, if they were compiled."""
    made = _built("passes")
    if made is None:
        return None
    pointer, number, chain = ctypes.c_void_p, ctypes.c_long, ctypes.POINTER(Chain)
    made.sordino_forward_pass.argtypes = [chain, pointer]
    made.sordino_gradient_pass.argtypes = [chain, pointer, number, pointer]
    made.sordino_tangent_pass.argtypes = [chain, pointer, number, pointer]
    made.sordino_reverse_pass.argtypes = [chain, number, pointer, pointer, pointer, pointer]
    for run in (
        made.sordino_forward_pass, made.sordino_gradient_pass, made.sordino_tangent_pass, made.sordino_reverse_pass,
    ):  # fmt: skip
        run.restype = None
    return made


@cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels, if there are any."""
    made = _built("kernels")
    if made is None:
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
    made.sordino_add_squares.argtypes = [pointer, number, number, pointer]
    made.sordino_weighted.argtypes = [pointer, pointer, number, number, pointer]
    made.sordino_outer.argtypes = [*[pointer] * 3, *[number] * 3, *[pointer] * 2]
    made.sordino_softmax.argtypes = [*[pointer] * 4, number, number, number, pointer, pointer]
    made.sordino_cell_forward.argtypes = [*[pointer] * 6, number, number]
    made.sordino_cell_backward.argtypes = [*[pointer] * 7, number, number]
    made.sordino_tile.argtypes, made.sordino_tile.restype = [ctypes.POINTER(number)], flag
    made.sordino_pack.argtypes = [pointer, *[number] * 3, pointer]
    made.sordino_multiply.argtypes = [*[pointer] * 3, *[number] * 3, *[pointer] * 2]
    made.sordino_outer_each.argtypes = [pointer, *[number] * 2, pointer, *[number] * 6, *[pointer] * 3]
    made.sordino_add_outer.argtypes = [
        pointer,
        *[number] * 2,
        pointer,
        *[number] * 2,
        pointer,
        *[number] * 4,
        *[pointer] * 2,
    ]
    made.sordino_lstm_forward.argtypes = [*[pointer] * 5, *[number] * 3, pointer]
    made.sordino_lstm_backward.argtypes = [*[pointer] * 8, *[number] * 3, pointer]
    for run in (
        made.sordino_pool, made.sordino_forward, made.sordino_backward,
        made.sordino_squares, made.sordino_weighted, made.sordino_outer, made.sordino_softmax,
        made.sordino_add_squares, made.sordino_cell_forward, made.sordino_cell_backward,
        made.sordino_pack, made.sordino_multiply, made.sordino_outer_each, made.sordino_add_outer,
        made.sordino_lstm_forward, made.sordino_lstm_backward,
    ):  # fmt: skip
        run.restype = None
    for room in (made.sordino_forward_scratch, made.sordino_backward_scratch):
        room.argtypes, room.restype = [block], ctypes.c_long
    return made


def _current(made: ctypes.CDLL) -> bool:
    """Whether the library was built from the sources that are here."""
    sources = sorted(file for file in Path(__file__).parent.iterdir() if file.suffix in SUFFIXES)
    try:
        asked = made.sordino_source
    except AttributeError:
        return False
    asked.argtypes, asked.restype = [], ctypes.c_uint32
    return not sources or asked() == zlib.crc32(b"".join(file.read_bytes() for file in sources))
