"""All time steps of one LSTM layer, one after the other: the products with the states, and the cell (`lstm_cell`).

Time comes first: gates are [T, n, 4 units], states and cells [T + 1, n, units] with what the layer begins with in their first row.
Where the kernels of `products` are there, one call runs through all steps; else every step is a product of PyTorch's and a cell.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sordino.gradients import lstm_cell, products
from sordino.native import library


def forward(gates: Tensor, u: Tensor, states: Tensor, cells: Tensor, squashed: Tensor) -> None:
    """From the input's share of the gates: the gates themselves (in place), states, cells and their tanh."""
    steps, n, size = squashed.shape
    turned = u.t().contiguous()  # once: a product with a matrix that lies the other way takes up to twice as long
    kernels = library()
    if kernels is not None and products.ready(gates):
        tensors = (gates, products.packed(turned), states, cells, squashed)
        room = products.scratch(gates, size, more=4 * n * size)
        kernels.sordino_lstm_forward(*[t.data_ptr() for t in tensors], steps, n, size, room.data_ptr())
        return
    h, c, more = states.unbind(), cells.unbind(), gates.new_empty(n, 4 * size)
    for t, (z, s) in enumerate(zip(gates.unbind(), squashed.unbind())):
        torch.mm(h[t], turned, out=more)
        lstm_cell.forward(z, more, c[t], c[t + 1], s, h[t + 1])


def backward(
    gates: Tensor, u: Tensor, cells: Tensor, squashed: Tensor, above: Tensor, dh: Tensor, dc: Tensor, d: Tensor
) -> None:
    """The gradient `d` at the gates, given that at the states (`above`).

    `dh` and `dc` come as the gradients at what the layer ends with and leave as those at what it begins with.
    """
    steps, n, size = squashed.shape
    kernels = library()
    if kernels is not None and products.ready(gates):
        tensors = (gates, products.packed(u), cells, squashed, above, dh, dc, d)
        room = products.scratch(gates, 4 * size)
        kernels.sordino_lstm_backward(*[t.data_ptr() for t in tensors], steps, n, size, room.data_ptr())
        return
    rows = [t.unbind() for t in (gates, cells, squashed, above, d)]
    for z, c, s, a, dz in reversed(list(zip(*rows))):  # of the cells those before each step
        lstm_cell.backward(z, c, s, a, dh, dc, dz)
        torch.mm(dz, u, out=dh)
