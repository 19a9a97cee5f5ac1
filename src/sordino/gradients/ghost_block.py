"""Per-example gradients of convolution, max pooling and ReLU as one block, with the kernels of `sordino.native`.

Pooling and ReLU let the gradient of about one position in eight through; the kernels skip the others. Run on one example
at a time they give that example's weight gradient and its input gradient in one sweep, cheaper than the dense products
of a whole batch. Used where the gradients of a layer are kept anyway (`ghost_layers.direct_pays`).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from sordino.gradients import fused, ghost_layers
from sordino.gradients.fused import Block, Conv, Form
from sordino.gradients.ghost_modules import ConvAdapter, Tape


class BlockFunction(torch.autograd.Function):
    """``apply(x, weight, bias, form, keep, real, probe)``; `keep(dw [n, out, kernel, in], db [n, out])` in the backward pass.

    The first `real` rows of x are computed, the rest are free slots. `probe` is an empty tensor that requires grad, so that the backward pass also runs in the first layer.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, form: Form, keep: Any, real: int, probe: Tensor
    ) -> Tensor:
        out, where = fused.forward(x, weight, bias, form, real)
        ctx.save_for_backward(x, weight, out, where)
        ctx.form, ctx.keep, ctx.real = form, keep, real
        return out.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inside = ctx.needs_input_grad[0]
        x, weight, out, where = ctx.saved_tensors
        dw, db, dx = fused.backward(grads[0], x, weight, out, where, ctx.form, inside, True, ctx.real)
        ctx.keep(dw, db)
        return dx, None, None, None, None, None, db.new_zeros(0)


class BlockAdapter:
    """Stands in for a block of the rearranged model; what it learns belongs to the convolution's own adapter."""

    def __init__(self, block: Block, layer: ConvAdapter, tape: Tape) -> None:
        self.block, self.layer, self.tape = block, layer, tape

    def install(self) -> None:
        self.block.__dict__["forward"] = self.forward

    def remove(self) -> None:
        self.block.__dict__.pop("forward", None)

    def forward(self, x: Tensor) -> Tensor:
        conv, form = self.layer.module, self.block.form
        if not self._fits(conv, x):
            return form.separate(x, conv)
        call = Kept(conv)
        self.layer.calls.append(call)
        weight, bias, flat = conv.weight.detach(), None if conv.bias is None else conv.bias.detach(), x.dim() == 3
        if flat:  # a signal is an image of height one
            x, weight = x.unsqueeze(2), weight.unsqueeze(2)
        out = BlockFunction.apply(x, weight, bias, form, call.keep, self.tape.real, self.tape.probe(x))
        return out.squeeze(2) if flat else out

    def _fits(self, conv: Conv, x: Tensor) -> bool:
        if not torch.is_grad_enabled() or x.shape[0] != self.tape.examples:
            return False
        if not fused.fits(x, conv.weight, self.block.form):
            return False
        out = conv.weight.shape[0]
        pads = self.block.form.pad[-len(conv.kernel_size) :]
        positions = math.prod(n + 2 * p - k + 1 for n, p, k in zip(x.shape[2:], pads, conv.kernel_size))
        return ghost_layers.direct_pays(positions, conv.weight.numel() // out, out)


class Kept:
    """One call of a block, with the gradients that its backward pass left."""

    def __init__(self, conv: Conv) -> None:
        self.weight, self.bias = conv.weight.requires_grad, conv.bias is not None and conv.bias.requires_grad
        self.turned = isinstance(conv, nn.Conv1d)  # its weights lie in the flat vector by channel, then by place
        self.record: ghost_layers.Rows | None = None

    def keep(self, dw: Tensor, db: Tensor) -> None:
        dw = dw.movedim(-1, 2).flatten(1) if self.turned else dw.flatten(1)
        self.record = ghost_layers.Rows([t for t, wanted in ((dw, self.weight), (db, self.bias)) if wanted])
