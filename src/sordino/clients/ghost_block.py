"""Per-example gradients of convolution, max pooling by two and ReLU as one block, with the kernels of `sordino.native`.

Pooling and ReLU let the gradient of about one position in eight through; the kernels skip the others. Run on one example
at a time they give that example's weight gradient and its input gradient in one sweep, cheaper than the dense products
of a whole batch. Used where the gradients of a layer are kept anyway (`ghost_layers.direct_pays`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sordino.clients import fused, ghost_layers
from sordino.clients.fused import Block
from sordino.clients.ghost_modules import ConvAdapter, Tape


class BlockFunction(torch.autograd.Function):
    """``apply(x, weight, bias, pad, relu, keep, probe)``; `keep(dw [n, entries], db [n, out])` in the backward pass.

    `probe` is an empty tensor that requires grad, so that the backward pass also runs in the first layer.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, pad: int, relu: bool, keep: Any, probe: Tensor
    ) -> Tensor:
        out, which = fused.forward(x, weight, bias, pad, relu)
        ctx.save_for_backward(x, weight, out, which)
        ctx.pad, ctx.relu, ctx.keep = pad, relu, keep
        return out.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inside = ctx.needs_input_grad[0]
        x, weight, out, which = ctx.saved_tensors
        dw, db, dx = fused.backward(grads[0], x, weight, out, which, ctx.pad, ctx.relu, inside, each=True)
        ctx.keep(dw.flatten(1), db)
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
        conv = self.layer.module
        assert isinstance(conv, nn.Conv2d)
        if not self._fits(conv, x):
            y = F.max_pool2d(conv(x), 2)
            return F.relu(y) if self.block.relu else y
        call = Kept(conv.weight.requires_grad, conv.bias is not None and conv.bias.requires_grad)
        self.layer.calls.append(call)
        bias = None if conv.bias is None else conv.bias.detach()
        pad, probe = int(conv.padding[0]), self.tape.probe(x)
        return BlockFunction.apply(x, conv.weight.detach(), bias, pad, self.block.relu, call.keep, probe)

    def _fits(self, conv: nn.Conv2d, x: Tensor) -> bool:
        pad, (kh, kw) = int(conv.padding[0]), conv.kernel_size
        if x.dim() != 4 or x.device.type != "cpu" or x.dtype != torch.float32 or x.shape[0] != self.tape.examples:
            return False
        height, width = (x.shape[2] + 2 * pad - kh + 1) // 2, (x.shape[3] + 2 * pad - kw + 1) // 2
        enough = height > 0 and width > 0 and torch.is_grad_enabled()
        return enough and ghost_layers.direct_pays(4 * height * width, kh * kw * conv.in_channels, conv.out_channels)


class Kept:
    """One call of a block, with the gradients that its backward pass left."""

    def __init__(self, weight: bool, bias: bool) -> None:
        self.weight, self.bias = weight, bias
        self.record: ghost_layers.Rows | None = None

    def keep(self, dw: Tensor, db: Tensor) -> None:
        self.record = ghost_layers.Rows([t for t, wanted in ((dw, self.weight), (db, self.bias)) if wanted])
