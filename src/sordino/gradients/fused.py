"""Convolution, max pooling and ReLU as one layer, on the processor.

Most networks for images and signals are made of this block. After pooling by two by two its backward pass has a gradient at
one position in eight, which the kernels of `sordino.native` use; they also convolve where they are faster than PyTorch.
`fuse` finds the blocks in a traced model (pooling before ReLU, see `rewrite`) and puts one call in their place. Values and
gradients are those of the separate layers, up to the order of additions; the layers and parameters stay the user's own. In
one dimension the block is that of an image of height one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from sordino import native
from sordino.native import library

Conv = nn.Conv1d | nn.Conv2d
_POOLS = {  # what pools in how many dimensions
    nn.MaxPool1d: 1, nn.MaxPool2d: 2,
    F.max_pool1d: 1, torch.max_pool1d: 1, F.max_pool2d: 2, torch.max_pool2d: 2,
}  # fmt: skip
_POOLED = 4  # positions from which one gradient is left; with fewer, skipping the others gains nothing


class Form(NamedTuple):
    """What a block does around its convolution, in two dimensions."""

    pad: tuple[int, int]
    pool: tuple[int, int]
    relu: bool

    def separate(self, x: Tensor, layer: Conv) -> Tensor:
        """The same by PyTorch's layers one by one."""
        y = F.max_pool1d(layer(x), self.pool[1]) if isinstance(layer, nn.Conv1d) else F.max_pool2d(layer(x), self.pool)
        return F.relu(y) if self.relu else y


class Size(NamedTuple):
    """What the kernels need to know of one shape of input, worked out once: a small batch would feel it in every step."""

    block: native.Block  # n is how many examples are computed: the rows after them are free slots
    out: tuple[int, int, int, int]  # channels last
    own: bool  # the kernels convolve, not PyTorch
    forward: int  # floats of scratch
    backward: int


@lru_cache(maxsize=4096)
def _size(x: torch.Size, weight: torch.Size, form: Form, real: int | None) -> Size:
    (n, c, h, w), (o, _, kh, kw) = x, weight
    filled = n if real is None else real
    kernels, block = library(), native.Block(filled, h, w, c, o, kh, kw, *form.pad, *form.pool)
    assert kernels is not None
    height, width = _pooled(x, weight, form)
    own = bool(kernels.sordino_convolves(block))
    room = kernels.sordino_forward_scratch(block), kernels.sordino_backward_scratch(block)
    return Size(block, (n, height, width, o), own, *room)


@lru_cache(maxsize=1024)
def _pooled(x: torch.Size, weight: torch.Size, form: Form) -> tuple[int, int]:
    """Height and width of the result; of a signal the height is one."""
    height, width = (
        (size + 2 * pad - kernel + 1) // pool
        for size, pad, kernel, pool in zip(_two(x[2:], 1), form.pad, _two(weight[2:], 1), form.pool)
    )
    return height, width


class ConvPool(torch.autograd.Function):
    """max_pool2d(conv2d(x, weight, bias)), rectified if asked for."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, form: Form) -> Tensor:
        out, where = forward(x, weight, bias, form)
        ctx.save_for_backward(x, weight, out, where)
        ctx.form, ctx.biased = form, bias is not None
        return out.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, out, where = ctx.saved_tensors
        dw, db, dx = backward(grad, x, weight, out, where, ctx.form, ctx.needs_input_grad[0])
        return dx, dw.permute(0, 3, 1, 2), db if ctx.biased else None, None


def forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, form: Form, real: int | None = None
) -> tuple[Tensor, Tensor]:
    """What the block gives, and where in its input every pooling found it; channels last.

    Only the first `real` examples are computed, if that is given; the result of the others is zero. The kernels take one
    example after the other, so their number reaches none of them.
    """
    kernels, size = library(), _size(x.shape, weight.shape, form, real)
    assert kernels is not None
    out, where = x.new_empty(size.out), torch.empty(size.out, dtype=torch.int32)
    out[size.block.n :].zero_()
    if size.own:
        x, weight, scratch = _last(x), _last(weight), x.new_empty(size.forward)
        kernels.sordino_forward(
            x.data_ptr(), weight.data_ptr(), None if bias is None else bias.data_ptr(),
            size.block, form.relu, out.data_ptr(), where.data_ptr(), scratch.data_ptr(),
        )  # fmt: skip
    else:
        y = _last(torch.conv2d(_last(x).permute(0, 3, 1, 2), weight, bias, padding=form.pad))
        kernels.sordino_pool(y.data_ptr(), size.block, form.relu, out.data_ptr(), where.data_ptr())
    return out, where


def backward(
    grad: Tensor, x: Tensor, weight: Tensor, out: Tensor, where: Tensor, form: Form, inside: bool, each: bool = False,
    real: int | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Gradients by weight (channels last), bias and, if `inside`, input; of `each` example by itself if asked for.

    `real` as in `forward`.
    """
    kernels, size = library(), _size(x.shape, weight.shape, form, real)
    assert kernels is not None
    x, weight, g = _last(x), _last(weight), _last(grad)
    lead = size.out[:1] if each else ()
    dw, db = x.new_empty(*lead, *weight.shape), x.new_empty(*lead, size.out[3])
    dx = torch.empty_like(x) if inside else None
    for rows in (dw, db) if each else ():
        rows[size.block.n :].zero_()
    if dx is not None:
        dx[size.block.n :].zero_()
    scratch = x.new_empty(size.backward)
    kernels.sordino_backward(
        g.data_ptr(), out.data_ptr(), where.data_ptr(), x.data_ptr(), weight.data_ptr(), size.block, form.relu, each,
        dw.data_ptr(), db.data_ptr(), None if dx is None else dx.data_ptr(), scratch.data_ptr(),
    )  # fmt: skip
    return dw, db, None if dx is None else dx.permute(0, 3, 1, 2)


def conv_pool(x: Tensor, layer: Conv, form: Form) -> Tensor:
    """The block: by the kernels if they take this input, else by PyTorch's layers."""
    if not fits(x, layer.weight, form):
        return form.separate(x, layer)
    if x.dim() == 4:
        return ConvPool.apply(x, layer.weight, layer.bias, form)
    return ConvPool.apply(x.unsqueeze(2), layer.weight.unsqueeze(2), layer.bias, form).squeeze(2)


def fits(x: Tensor, weight: Tensor, form: Form) -> bool:
    """Whether the kernels take this input: a batch of floats on the processor, large enough to leave something."""
    plain = x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32 and x.dim() == weight.dim()
    return plain and min(_pooled(x.shape, weight.shape, form)) > 0


class Block(nn.Module):
    """Stands in the graph for the layers that it was made of; it owns nothing."""

    def __init__(self, layer: Conv, form: Form) -> None:
        super().__init__()
        self._layer, self.form = [layer], form  # in a list: the parameters are registered where the user has them

    def forward(self, x: Tensor) -> Tensor:
        return conv_pool(x, self._layer[0], self.form)


def fuse(traced: fx.GraphModule) -> int:
    """Replace every block of a traced model in place; how many there were."""
    if library() is None:
        return 0
    layers, count = dict(traced.named_modules()), 0
    for node in list(traced.graph.nodes):
        pool = _window(node, layers)
        if pool is None:
            continue
        conv = node.args[0]
        if not (isinstance(conv, fx.Node) and conv.op == "call_module" and len(conv.users) == 1):
            continue
        layer = layers[str(conv.target)]
        if not _fits(layer, len(pool)):
            continue
        after = next(iter(node.users)) if len(node.users) == 1 else None
        relu = after is not None and _is_relu(after, layers)
        name = f"fused_block_{count}"
        traced.add_submodule(name, Block(layer, Form(_two(layer.padding, 0), _two(pool, 1), relu)))
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


def _fits(layer: nn.Module, dimensions: int) -> bool:
    return (
        type(layer) is (nn.Conv1d if dimensions == 1 else nn.Conv2d)
        and set(layer.stride) == {1}
        and set(layer.dilation) == {1}
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
        and layer.weight.device.type == "cpu"
    )


def _window(node: fx.Node, layers: dict[str, nn.Module]) -> tuple[int, ...] | None:
    """The windows of a max pooling, if they cover the input side by side."""
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
    given: Mapping[str, object]
    if node.op == "call_module":
        pool = layers[str(node.target)]
        dimensions, given = _POOLS.get(type(pool)), {name: getattr(pool, name, None) for name in names}
    elif node.op == "call_function":
        dimensions, given = _POOLS.get(node.target), dict(zip(names, node.args[1:])) | dict(node.kwargs)
    else:
        return None
    if dimensions is None or given.get("ceil_mode") or given.get("return_indices"):
        return None

    def each(name: str, usual: object) -> tuple[Any, ...]:
        value = usual if given.get(name) in (None, ()) else given[name]
        return tuple(value) if isinstance(value, (tuple, list)) else (value,) * dimensions

    size = each("kernel_size", None)
    apart = each("stride", size) == size and set(each("padding", 0)) == {0} and set(each("dilation", 1)) == {1}
    known = all(isinstance(n, int) for n in size)  # not the result of another node
    return size if apart and known and math.prod(size) >= _POOLED else None


def _is_relu(node: fx.Node, layers: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return type(layers[str(node.target)]) is nn.ReLU
    if node.op == "call_method":
        return node.target in ("relu", "relu_")
    return node.op == "call_function" and node.target in (F.relu, torch.relu, F.relu_, torch.relu_)


def _two(sizes: tuple[int, ...], height: int) -> tuple[int, int]:
    """Of an image; a signal gets a height."""
    return (height, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])


def _last(x: Tensor) -> Tensor:
    """Channels last, as the kernels read it; a copy only where the memory is in another order."""
    return x.permute(0, 2, 3, 1).contiguous()
