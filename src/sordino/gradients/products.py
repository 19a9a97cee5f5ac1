"""Matrix products in which no row touches another, by construction: what a library does too, but only as far as a rehearsal can see.

The kernels of `sordino.native` (`product.inc`) take every entry of a result through the same sequence of operations, wherever it
stands. They are for single precision on processors with wide registers; `tile` says whether these are there. What a matrix is
multiplied with comes packed (`packed`), since an LSTM uses the same one in every time step.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sordino.native import library


class Tile(NamedTuple):
    """What the kernels compute at a time on this processor: entries of a result, rows of a product, positions of a sum."""

    rows: int
    columns: int
    band: int
    deep: int


@cache
def _sizes(kernels: ctypes.CDLL) -> Tile | None:
    found = (ctypes.c_long * 4)()
    return Tile(*found) if kernels.sordino_tile(found) else None


def ready(like: Tensor) -> bool:
    """Whether the kernels are there for tensors like this one."""
    kernels = library()
    fits = like.device.type == "cpu" and like.dtype == torch.float32
    return fits and kernels is not None and _sizes(kernels) is not None


def packed(matrix: Tensor) -> Tensor:
    """A matrix [k, m] as `multiply` wants it."""
    depth, count = matrix.shape
    matrix = matrix.detach().contiguous()
    to = matrix.new_empty(depth * _up(count, _tile().columns))
    _kernels().sordino_pack(matrix.data_ptr(), count, depth, count, to.data_ptr())
    return to


def scratch(like: Tensor, depth: int, more: int = 0) -> Tensor:
    """Room that a product over `depth` entries needs, behind `more` floats."""
    return like.new_empty(more + _tile().band * depth)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same as ``F.linear``."""
    if not ready(x) or weight.dtype != x.dtype:
        return F.linear(x, weight, bias)
    x, (count, depth) = x.detach().contiguous(), weight.shape
    start = None if bias is None else F.pad(bias.detach(), (0, _up(count, _tile().columns) - count)).contiguous()
    out, matrix, room = x.new_empty(*x.shape[:-1], count), packed(weight.t()), scratch(x, depth)
    n, first = x.numel() // max(1, depth), None if start is None else start.data_ptr()
    _kernels().sordino_multiply(
        x.data_ptr(), matrix.data_ptr(), first, n, depth, count, out.data_ptr(), room.data_ptr()
    )
    return out


def upright(rows: int, columns: int) -> bool:
    """Whether the gradients of such a matrix fill more of their tiles than the other way round. A function of shapes alone."""
    r, c = _tile()[:2]
    return _up(rows, r) * _up(columns, c) <= _up(columns, r) * _up(rows, c)


def outer_each(g: Tensor, a: Tensor, out: Tensor, squares: Tensor) -> None:
    """``out[i] = sum_t g[i, t] a[i, t]'`` [n, O, K] of g [n, T, O] and a [n, T, K], and its squared lengths, as doubles [n]."""
    g, a, (n, t, o), k = _entries(g), _entries(a), g.shape, a.shape[2]
    r, c = _tile()[:2]
    room = a.new_empty(t * (_up(o, r) + _up(k, c)))
    _kernels().sordino_outer_each(
        g.data_ptr(), g.stride(0), g.stride(1), a.data_ptr(), a.stride(0), a.stride(1), n, t, o, k,
        out.data_ptr(), squares.data_ptr(), room.data_ptr(),
    )  # fmt: skip


def add_outer(out: Tensor, factors: Tensor, g: Tensor, a: Tensor) -> None:
    """Add ``sum_it factors[i] g[i, t] a[i, t]'`` to doubles [O, K], without forming gradients.

    Each entry is one sum in double precision, term after term. An example whose factor is zero is not read: it may hold anything.
    """
    g, a, (n, t, o), k = _entries(g), _entries(a), g.shape, a.shape[2]
    tile, factors = _tile(), factors.contiguous()
    room = out.new_empty(tile.deep * (_up(o, tile.rows) + tile.columns))
    _kernels().sordino_add_outer(
        g.data_ptr(), g.stride(0), g.stride(1), a.data_ptr(), a.stride(0), a.stride(1), factors.data_ptr(), n, t, o, k,
        out.data_ptr(), room.data_ptr(),
    )  # fmt: skip


def _entries(t: Tensor) -> Tensor:
    """With entries that lie one after the other."""
    return t if t.stride(2) == 1 else t.contiguous()


def _kernels() -> ctypes.CDLL:
    found = library()
    assert found is not None
    return found


def _tile() -> Tile:
    found = _sizes(_kernels())
    assert found is not None
    return found


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
