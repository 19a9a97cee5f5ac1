"""Convolution, max pooling by two and ReLU as one layer, on the processor.

Most image networks are made of this block. Its backward pass has a gradient at one position in eight, which the kernels of
`sordino.native` use; the forward convolution is PyTorch's, unless the input has few channels. `fuse` finds the blocks in a traced model (pooling before ReLU,
see `rewrite`) and puts one call in their place. Values and gradients are those of the separate layers, up to the order of
additions; the layers and parameters stay the user's own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from sordino.native import library


class ConvPool(torch.autograd.Function):
    """max_pool2d(conv2d(x, weight, bias), 2), rectified if asked for."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, pad: int, relu: bool) -> Tensor:
        out, which = forward(x, weight, bias, pad, relu)
        ctx.save_for_backward(x, weight, out, which)
        ctx.pad, ctx.relu, ctx.biased = pad, relu, bias is not None
        return out.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, out, which = ctx.saved_tensors
        dw, db, dx = backward(grad, x, weight, out, which, ctx.pad, ctx.relu, ctx.needs_input_grad[0])
        return dx, dw.permute(0, 3, 1, 2), db if ctx.biased else None, None, None


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, pad: int, relu: bool) -> tuple[Tensor, Tensor]:
    """What the block gives, and which of its four inputs every pooling chose; channels last."""
    native = library()
    assert native is not None
    (n, c, hx, wx), (o, _, kh, kw) = x.shape, weight.shape
    hp, wp = (hx + 2 * pad - kh + 1) // 2, (wx + 2 * pad - kw + 1) // 2
    out, which = x.new_empty(n, hp, wp, o), torch.empty(n, hp, wp, o, dtype=torch.int32)
    if native.sordino_narrow(c, o, kw, pad):
        x, weight, scratch = _last(x), _last(weight), x.new_empty(kh * kw * c * o)
        native.sordino_forward(
            x.data_ptr(), weight.data_ptr(), 0 if bias is None else bias.data_ptr(),
            n, hx, wx, c, o, kh, kw, relu, out.data_ptr(), which.data_ptr(), scratch.data_ptr(),
        )  # fmt: skip
    else:
        y = _last(torch.conv2d(x, weight, bias, padding=pad))
        native.sordino_pool(y.data_ptr(), n, y.shape[1], y.shape[2], o, relu, out.data_ptr(), which.data_ptr())
    return out, which


def backward(
    grad: Tensor, x: Tensor, weight: Tensor, out: Tensor, which: Tensor, pad: int, relu: bool, inside: bool,
    each: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Gradients by weight (channels last), bias and, if `inside`, input; of `each` example by itself if asked for."""
    native = library()
    assert native is not None
    x, weight, g = _last(x), _last(weight), _last(grad)
    (n, hx, wx, c), (o, kh, kw, _) = x.shape, weight.shape
    lead = (n,) if each else ()
    dw, db = x.new_empty(*lead, o, kh, kw, c), x.new_empty(*lead, o)
    dx = torch.empty_like(x) if inside else None
    scratch = x.new_empty(native.sordino_scratch(c, o, kh, kw, out.shape[1], out.shape[2]))
    run = native.sordino_backward_each if each else native.sordino_backward
    run(
        g.data_ptr(), out.data_ptr(), which.data_ptr(), x.data_ptr(), weight.data_ptr(),
        n, hx, wx, c, o, kh, kw, pad, relu,
        dw.data_ptr(), db.data_ptr(), 0 if dx is None else dx.data_ptr(), scratch.data_ptr(),
    )  # fmt: skip
    return dw, db, None if dx is None else dx.permute(0, 3, 1, 2)


def conv_pool(x: Tensor, layer: nn.Conv2d, relu: bool) -> Tensor:
    """The block, by whichever way fits this input."""
    if x.device.type == "cpu" and x.dtype == torch.float32 and x.dim() == 4 and layer.weight.dtype == torch.float32:
        return ConvPool.apply(x, layer.weight, layer.bias, int(layer.padding[0]), relu)
    y = F.max_pool2d(layer(x), 2)
    return F.relu(y) if relu else y


class Block(nn.Module):
    """Stands in the graph for the layers that it was made of; it owns nothing."""

    def __init__(self, layer: nn.Conv2d, relu: bool) -> None:
        super().__init__()
        self._layer, self.relu = [layer], relu  # in a list: the parameters are registered where the user has them

    def forward(self, x: Tensor) -> Tensor:
        return conv_pool(x, self._layer[0], self.relu)


def fuse(traced: fx.GraphModule) -> int:
    """Replace every block of a traced model in place; how many there were."""
    if library() is None:
        return 0
    layers, count = dict(traced.named_modules()), 0
    for node in list(traced.graph.nodes):
        if not _is_pool_by_two(node, layers):
            continue
        conv = node.args[0]
        if not (
            isinstance(conv, fx.Node)
            and conv.op == "call_module"
            and len(conv.users) == 1
            and _fits(layers[conv.target])
        ):
            continue
        after = next(iter(node.users)) if len(node.users) == 1 else None
        relu = after is not None and _is_relu(after, layers)
        name = f"fused_block_{count}"
        traced.add_submodule(name, Block(layers[conv.target], relu))
        last = after if relu and after is not None else node
        with traced.graph.inserting_after(last):
            block = traced.graph.call_module(name, (conv.args[0],))
        last.replace_all_uses_with(block)
        if last is not node:
            traced.graph.erase_node(last)
        traced.graph.erase_node(node)
        traced.graph.erase_node(conv)
        count += 1
    if count:
        traced.graph.lint()
        traced.recompile()
    return count


def _fits(layer: nn.Module) -> bool:
    return (
        type(layer) is nn.Conv2d
        and layer.stride == (1, 1)
        and layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
        and layer.padding[0] == layer.padding[1]
        and layer.weight.device.type == "cpu"
    )


def _is_pool_by_two(node: fx.Node, layers: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        pool = layers[str(node.target)]
        if type(pool) is not nn.MaxPool2d:
            return False
        given: tuple[Any, ...] = (
            pool.kernel_size,
            pool.stride,
            pool.padding,
            pool.dilation,
            pool.ceil_mode,
            pool.return_indices,
        )
    elif node.op == "call_function" and node.target in (F.max_pool2d, torch.max_pool2d):
        names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
        values = dict(zip(names, node.args[1:])) | dict(node.kwargs)
        given = tuple(values.get(n, d) for n, d in zip(names, (None, None, 0, 1, False, False)))
    else:
        return False
    size, stride, padding, dilation, ceil, indices = given
    stride = size if stride in (None, ()) else stride
    two = all(v in (2, (2, 2), [2, 2]) for v in (size, stride))
    return two and padding in (0, (0, 0)) and dilation in (1, (1, 1)) and not ceil and not indices


def _is_relu(node: fx.Node, layers: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return type(layers[str(node.target)]) is nn.ReLU
    if node.op == "call_method":
        return node.target in ("relu", "relu_")
    return node.op == "call_function" and node.target in (F.relu, torch.relu, F.relu_, torch.relu_)


def _last(x: Tensor) -> Tensor:
    """Channels last, as the kernels read it; a copy only where the memory is in another order."""
    return x.permute(0, 2, 3, 1).contiguous()
