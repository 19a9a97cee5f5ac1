"""One LSTM layer, written out so that its backward pass hands over what per-example gradients need.

With the gates z_t = W x_t + U h_(t-1) + b, the gradients of W, U and b for one example are sums over time of d_t x_t',
d_t h_(t-1)' and d_t, where d_t is the loss gradient at z_t: dense layers on sequences. PyTorch's fused kernel never
shows d_t; this one keeps it and computes no weight gradients. Gate order (input, forget, cell, output) as in
``torch.nn.LSTM``. Time comes first in every tensor here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Keep = Callable[[Tensor, Tensor, Tensor], None]

# g (1 - t^2) in one pass over memory; the same for the sigmoid is slower than its parts
_tanh_into = torch.ops.aten.tanh_backward.grad_input
_tanh = torch.ops.aten.tanh_backward


class LSTMLayer(torch.autograd.Function):
    """``apply(x, h0, c0, w, u, bias, keep, probe) -> (states [T, n, H], last cell [n, H])``.

    `keep(x, earlier states, d)` is called in the backward pass. `probe` is an empty tensor that requires grad, so that
    the backward pass also runs when nothing below the layer needs gradients.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, c0: Tensor, w: Tensor, u: Tensor, bias: Tensor | None, keep: Keep, probe:
        Tensor
    ) -> tuple[Tensor, Tensor]:
        steps, n, _ = x.shape
        size = u.shape[1]
        gates = torch.nn.functional.linear(x, w, bias)
        states = x.new_empty(steps + 1, n, size)
        cells = x.new_empty(steps + 1, n, size)
        squashed = x.new_empty(steps, n, size)  # tanh of the cells
        states[0], cells[0] = h0, c0
        transposed = u.t()
        for t in range(steps):
            z = gates[t].addmm_(states[t], transposed)
            z[:, : 2 * size].sigmoid_()
            z[:, 2 * size : 3 * size].tanh_()
            z[:, 3 * size :].sigmoid_()
            i, f, g, o = z.split(size, dim=1)
            torch.mul(f, cells[t], out=cells[t + 1]).addcmul_(i, g)
            torch.tanh(cells[t + 1], out=squashed[t])
            torch.mul(o, squashed[t], out=states[t + 1])
        ctx.save_for_backward(x, w, u, gates, states, cells, squashed)
        ctx.keep = keep
        return states[1:].clone(), cells[-1].clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dstates, dcell = grads
        x, w, u, gates, states, cells, squashed = ctx.saved_tensors
        steps, n, size = squashed.shape
        d = torch.empty_like(gates)
        dc, dh = dcell.clone(), torch.zeros_like(dcell)
        for t in range(steps - 1, -1, -1):
            i, f, g, o = gates[t].split(size, dim=1)
            di, df, dg, do = d[t].split(size, dim=1)
            dh += dstates[t]
            dc += _tanh(dh * o, squashed[t])
            pair = gates[t, :, : 2 * size]
            pair, last = torch.addcmul(pair, pair, pair, value=-1), torch.addcmul(o, o, o, value=-1)  # s (1 - s)
            torch.mul(dc * g, pair[:, :size], out=di)
            torch.mul(dc * cells[t], pair[:, size:], out=df)
            _tanh_into(dc * i, g, grad_input=dg)
            torch.mul(dh * squashed[t], last, out=do)
            dc *= f
            torch.mm(d[t], u, out=dh)
        ctx.keep(x, states[:-1], d)
        needs = ctx.needs_input_grad
        dx = d @ w if needs[0] else None
        return dx, dh if needs[1] else None, dc if needs[2] else None, None, None, None, None, dc.new_zeros(0)
