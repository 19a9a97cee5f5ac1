"""The cell of an LSTM: one time step without its matrix products, forwards and backwards.

Gates are [n, 4 units] in the order of ``torch.nn.LSTM`` (input, forget, cell, output), everything else is [n, units], all of it
contiguous floats. One kernel of `sordino.native` does in one pass over memory what takes PyTorch about ten; both work entry by
entry, so that no example touches another.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from sordino.native import library

# g (1 - t^2) in one pass over memory; the same for the sigmoid is slower than its parts
_tanh_into = torch.ops.aten.tanh_backward.grad_input
_tanh = torch.ops.aten.tanh_backward


def forward(gates: Tensor, more: Tensor, before: Tensor, cells: Tensor, squashed: Tensor, states: Tensor) -> None:
    """From the sum of `gates` and `more` and the cells `before`: the gates (in place), cells, their tanh and states."""
    n, size = before.shape
    kernels = _kernels(gates)
    if kernels is not None:
        tensors = (gates, more, before, cells, squashed, states)
        kernels.sordino_cell_forward(*[t.data_ptr() for t in tensors], n, size)
        return
    gates += more
    gates[:, : 2 * size].sigmoid_()
    gates[:, 2 * size : 3 * size].tanh_()
    gates[:, 3 * size :].sigmoid_()
    i, f, g, o = gates.split(size, dim=1)
    torch.mul(f, before, out=cells).addcmul_(i, g)
    torch.tanh(cells, out=squashed)
    torch.mul(o, squashed, out=states)


def backward(
    gates: Tensor, before: Tensor, squashed: Tensor, above: Tensor, later: Tensor, dcells: Tensor, d: Tensor
) -> None:
    """The gradient `d` at the gates, given those at the states (`above` and `later`, which add up) and at the cells.

    `dcells` becomes the gradient at the cells before.
    """
    n, size = before.shape
    kernels = _kernels(gates)
    if kernels is not None:
        tensors = (gates, before, squashed, above, later, dcells, d)
        kernels.sordino_cell_backward(*[t.data_ptr() for t in tensors], n, size)
        return
    i, f, g, o = gates.split(size, dim=1)
    di, df, dg, do = d.split(size, dim=1)
    dh = above + later
    dcells += _tanh(dh * o, squashed)
    pair = gates[:, : 2 * size]
    pair, last = torch.addcmul(pair, pair, pair, value=-1), torch.addcmul(o, o, o, value=-1)  # s (1 - s)
    torch.mul(dcells * g, pair[:, :size], out=di)
    torch.mul(dcells * before, pair[:, size:], out=df)
    _tanh_into(dcells * i, g, grad_input=dg)
    torch.mul(dh * squashed, last, out=do)
    dcells *= f


def _kernels(x: Tensor) -> ctypes.CDLL | None:
    return library() if x.device.type == "cpu" and x.dtype == torch.float32 else None
