"""Softmax regression, the last layer of which everything else is already done: per-example gradients in one call of our own kernel.

The gradient of one example is the outer product of (softmax - label) and its input, so that its norm is the product of two norms, and a
clipped sum is one matrix product (`ghost_layers.Outer`). What is left is to get at softmax - label without the fixed cost of a
library's forward and backward pass: for 10,000 inputs that cost is most of a step. The kernel takes one example after the other,
so that what it computes of one does not depend on how many there are or where it stands: this is by construction, and not rehearsed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, fx, nn

from sordino.gradients.ghost_layers import Outer
from sordino.gradients.losses import Loss, cross_entropy
from sordino.native import library

_FEW = 64  # outputs up to which the kernel beats a library's product


class SoftmaxHead:
    """A dense layer on flat rows, and cross-entropy behind it."""

    def __init__(self, layer: nn.Linear, flattens: bool) -> None:
        self.layer, self.flattens = layer, flattens

    def takes(self, x: Tensor, y: Tensor) -> bool:
        """Whether these examples are rows of floats with one label each: a question of shapes and types alone."""
        rows = x.dtype == torch.float32 and (self.flattens or x.dim() == 2)
        fits = rows and math.prod(x.shape[1:]) == self.layer.in_features
        return fits and y.dim() == 1 and y.dtype == torch.int64 and x.device.type == y.device.type == "cpu"

    def record(self, x: Tensor, y: Tensor, real: int) -> Outer:
        """The gradients of the first `real` rows; free slots have none."""
        kernels, layer = library(), self.layer
        assert kernels is not None
        x, y, weight = x.detach().flatten(1).contiguous(), y.contiguous(), layer.weight.detach()
        d, o = layer.in_features, layer.out_features
        g, scratch = x.new_zeros(len(x), 1, o), x.new_empty(4 * o, dtype=torch.float64)
        bias = None if layer.bias is None else layer.bias.detach().data_ptr()
        kernels.sordino_softmax(
            x.data_ptr(), weight.data_ptr(), bias, y.data_ptr(), real, d, o, g.data_ptr(), scratch.data_ptr()
        )
        return Outer([x[:, None]], g, 0 if layer.bias is None else 1)


def softmax_head(traced: fx.GraphModule, loss: Loss) -> SoftmaxHead | None:
    """The head, if the traced model is one dense layer (of the flattened input) under cross-entropy and the kernels are there."""
    if loss is not cross_entropy or library() is None:
        return None
    nodes = list(traced.graph.nodes)
    chained = all(list(node.all_input_nodes) == [before] for before, node in zip(nodes, nodes[1:]))
    inner = nodes[1:-1]
    if not chained or not 1 <= len(inner) <= 2 or inner[-1].op != "call_module":
        return None
    flattens = len(inner) == 2
    if flattens and not _flattens(traced, inner[0]):
        return None
    layer = traced.get_submodule(str(inner[-1].target))
    if type(layer) is not nn.Linear or layer.out_features > _FEW:
        return None
    fits = all(p.requires_grad and p.dtype == torch.float32 and p.is_contiguous() for p in layer.parameters())
    return SoftmaxHead(layer, flattens) if fits else None


def _flattens(traced: fx.GraphModule, node: fx.Node) -> bool:
    """Whether this makes one row of each example."""
    if node.op == "call_module":
        layer = traced.get_submodule(str(node.target))
        return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)
    return node.target is torch.flatten and node.args[1:] == (1,) and not node.kwargs
