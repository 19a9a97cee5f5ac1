"""Norms and weighted sums of single-precision rows, in double precision.

A product of two floats is exact in a double, and no square of a float leaves the range of doubles. So the squared norm of d
entries taken here is right to d 2^-53, and a sum of n rows, each of length at most C, is off by at most n^2 2^-53 C: what one
record adds is not visible in the rounding of the others. `per_example.SLACK` covers both.

The kernels of `sordino.native` read each float once; without them the same is done by PyTorch, block by block.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from sordino.native import library

_FEW = 64  # output entries up to which the kernel beats a library's product
_BLOCK = 1 << 18  # doubles that exist at a time without the kernels


def squares(rows: Tensor) -> Tensor:
    """Squared lengths of rows [n, d], as doubles [n]."""
    rows, kernels = _rows(rows), _kernels(rows)
    out = rows.new_empty(rows.shape[0], dtype=torch.float64)
    if kernels is not None:
        kernels.sordino_squares(rows.data_ptr(), *rows.shape, out.data_ptr())
        return out
    for s in _blocks(rows):
        out[s] = rows[s].double().square().sum(1)
    return out


def add_squares(out: Tensor, rows: Tensor) -> None:
    """Add the squared entries of rows [n, d] to doubles [d], which lie one after the other."""
    rows, kernels = _rows(rows), _kernels(rows)
    if kernels is not None:
        kernels.sordino_add_squares(rows.data_ptr(), *rows.shape, out.data_ptr())
        return
    for s in _blocks(rows):
        out += rows[s].double().square().sum(0)


def weighted(factors: Tensor, rows: Tensor) -> Tensor:
    """``sum_i factors[i] rows[i]`` of rows [n, d], as doubles [d]. A row that is not finite must have the factor zero."""
    out = rows.new_zeros(rows.shape[1], dtype=torch.float64)
    add_weighted(out, factors, rows)
    return out


def add_weighted(out: Tensor, factors: Tensor, rows: Tensor) -> None:
    """Add the same to doubles [d], which lie one after the other."""
    rows, kernels = _rows(rows), _kernels(rows)
    if kernels is not None:
        factors = factors.contiguous()
        kernels.sordino_weighted(rows.data_ptr(), factors.data_ptr(), *rows.shape, out.data_ptr())
        return
    for s in _blocks(rows):
        part = rows[s].double()
        out += factors[s] @ part.masked_fill(factors[s, None] == 0, 0.0)


def outer(factors: Tensor, g: Tensor, a: Tensor) -> Tensor:
    """``sum_i factors[i] g_i a_i'`` of g [n, O] and a [n, K], as doubles [O, K]. All rows must be finite."""
    kernels, (n, o), d = _kernels(a), g.shape, a.shape[1]
    if kernels is None or o > _FEW:
        return (g.double() * factors[:, None]).t() @ a.double()
    g, a, factors = _rows(g), _rows(a), factors.contiguous()
    out, room = factors.new_empty(o, d), factors.new_empty(n, o)
    pointers = [t.data_ptr() for t in (a, g, factors)]
    kernels.sordino_outer(*pointers, n, d, o, out.data_ptr(), room.data_ptr())
    return out


def _kernels(x: Tensor) -> ctypes.CDLL | None:
    return library() if x.device.type == "cpu" and x.dtype == torch.float32 else None


def _rows(x: Tensor) -> Tensor:
    return x.detach().contiguous()


def _blocks(rows: Tensor) -> list[slice]:
    step = max(1, _BLOCK // max(1, rows.shape[1]))
    return [slice(k, k + step) for k in range(0, rows.shape[0], step)]
