"""A network as a chain of layers with four passes, read off its traced graph; None where it is no such chain."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from sordino.attacks.inversion.activations import Relu, Sigmoid, Tanh
from sordino.attacks.inversion.layers import Convolution, Dense, Layer
from sordino.attacks.inversion.pooling import Flatten, MaxPool, MeanPool

_POINTWISE: dict[Any, Callable[[], Layer]] = {
    torch.sigmoid: Sigmoid, F.sigmoid: Sigmoid, nn.Sigmoid: Sigmoid, "sigmoid": Sigmoid,
    torch.tanh: Tanh, F.tanh: Tanh, nn.Tanh: Tanh, "tanh": Tanh,
    torch.relu: Relu, F.relu: Relu, nn.ReLU: Relu, "relu": Relu,
}  # fmt: skip
_MAX_POOLS = {F.max_pool2d, torch.max_pool2d}


class Chain:
    """The layers in order. Parameters lie in the order of the layers, each weight in row-major order, then its bias."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self.size = sum(layer.size for layer in layers)
        first = next(i for i, layer in enumerate(layers) if layer.size)
        self._first = first  # below it no cotangent is needed for the gradient
        self._rooms: dict[int, Tensor] = {}  # memory for gradients, by the number of groups
        self._outs: list[Tensor | None] = []  # cotangents of the layers' outputs in the last backward pass
        self.features: list[Tensor] = []  # what convolutions gave in the last forward pass

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images (example, channel, height, width)."""
        x = x.permute(0, 2, 3, 1).contiguous() if x.dim() == 4 else x
        self.features = []
        for layer in self.layers:
            x = layer.forward(x)
            if isinstance(layer, Convolution):
                self.features.append(x)
        return x

    def gradient(self, out: Tensor, groups: int) -> Tensor:
        """After `forward`: the gradient of each group, [groups, size], for the cotangent `out` of the logits.

        The next call with as many groups writes over it.
        """
        found = self._rooms.get(groups)
        if found is None:
            found = self._rooms[groups] = out.new_empty(groups, self.size)
        stop = self.size
        self._outs = [None] * len(self.layers)
        for i in range(len(self.layers) - 1, self._first - 1, -1):
            layer = self.layers[i]
            self._outs[i] = out
            out = layer.backward(out, i > self._first)
            if layer.size:
                layer.gradient(found[:, stop - layer.size : stop])
                stop -= layer.size
        return found

    def tangent(self, v: Tensor) -> Tensor:
        """The tangent of the logits while the parameters move along `v`, [groups, size]."""
        du: Tensor | None = None
        start = 0
        for layer in self.layers:
            du = layer.tangent(du, v[:, start : start + layer.size] if layer.size else None)
            start += layer.size
        assert du is not None
        return du

    def reverse(self, out: Tensor, scale: Tensor, features: list[Tensor] | None = None) -> Tensor:
        """After the other passes: the cotangent of the input.

        `out` is the cotangent of the logits. That of their tangent is the one that `gradient` was given, times `scale` of each example.
        `features` are cotangents of the outputs of convolutions (`self.features`) that a prior adds.
        """
        left = [] if features is None else list(features)
        for layer, kept in zip(reversed(self.layers), reversed(self._outs)):
            if left and isinstance(layer, Convolution):
                out = out + left.pop()
            out = layer.reverse(out, None if kept is None else kept * scale.view(-1, *[1] * (kept.dim() - 1)))
        return out.permute(0, 3, 1, 2) if out.dim() == 4 else out


def chain_of(module: nn.Module) -> tuple[Chain, list[str]] | None:
    """The chain of `module` and the names of its parameters in the chain's order, or None if it is none.

    The module is read in evaluation mode. Every trainable parameter must belong to the chain.
    """
    try:
        graph = fx.symbolic_trace(module.eval()).graph
    except Exception:  # tracing runs the user's code with stand-ins; whatever it raises, autograd still works
        return None
    layers: list[Layer] = []
    names: list[str] = []
    last: fx.Node | None = None
    for node in graph.nodes:
        if node.op == "placeholder":
            if last is not None:
                return None
            last = node
        elif node.op == "output":
            if node.args[0] is not last:
                return None
        else:
            if not node.args or node.args[0] is not last or _others(node):
                return None
            made = _layer(module, node)
            if made is None:
                return None
            layer, mine = made
            if layer is not None:
                layers.append(layer)
            names += mine
            last = node
    trained = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    if sorted(names) != sorted(trained):
        return None
    return Chain(layers), names


def _others(node: fx.Node) -> bool:
    """Whether the node reads anything besides its first argument."""
    return len(node.all_input_nodes) != 1


def _layer(module: nn.Module, node: fx.Node) -> tuple[Layer | None, list[str]] | None:
    if node.op == "call_module":
        inner = module.get_submodule(str(node.target))
        made = _of_module(inner)
        if made is None:
            return None
        return made[0], [f"{node.target}.{name}" for name, _ in inner.named_parameters()]
    made = _of_function(node)
    return None if made is None else (made[0], [])


def _of_module(inner: nn.Module) -> tuple[Layer | None] | None:
    if type(inner) in _POINTWISE:
        return (_POINTWISE[type(inner)](),)
    if type(inner) is nn.Linear:
        return (Dense(inner.weight, inner.bias),)
    if type(inner) is nn.Conv2d:
        plain = inner.groups == 1 and inner.dilation == (1, 1) and inner.padding_mode == "zeros"
        return (Convolution(inner),) if plain and not isinstance(inner.padding, str) else None
    if type(inner) is nn.MaxPool2d:
        plain = inner.dilation == 1 and not inner.ceil_mode and not inner.return_indices
        return _max_pool(inner.kernel_size, inner.stride, inner.padding) if plain else None
    if type(inner) is nn.AvgPool2d:
        plain = inner.stride in (None, inner.kernel_size) and inner.padding == 0 and not inner.ceil_mode
        return (MeanPool(inner.kernel_size),) if plain and isinstance(inner.kernel_size, int) else None
    if type(inner) is nn.Flatten:
        return (Flatten(),) if inner.start_dim == 1 and inner.end_dim == -1 else None
    if type(inner) in (nn.Identity, nn.Dropout):  # evaluation mode: dropout passes through
        return (None,)
    return None


def _of_function(node: fx.Node) -> tuple[Layer | None] | None:
    target, rest, named = node.target, list(node.args[1:]), dict(node.kwargs)
    if target in _POINTWISE:
        named.pop("inplace", None)
        return None if rest or named else (_POINTWISE[target](),)
    if target in _MAX_POOLS:
        kernel = rest.pop(0) if rest else named.pop("kernel_size", None)
        stride = rest.pop(0) if rest else named.pop("stride", None)
        padding = rest.pop(0) if rest else named.pop("padding", 0)
        harmless = named.pop("dilation", 1) == 1 and not named.pop("ceil_mode", False)
        harmless = harmless and not named.pop("return_indices", False)
        return None if rest or named or not harmless else _max_pool(kernel, stride, padding)
    if target in (torch.flatten, "flatten"):
        start = rest.pop(0) if rest else named.pop("start_dim", 0)
        return (Flatten(),) if start == 1 and not rest and not named else None
    return None


def _max_pool(kernel: Any, stride: Any, padding: Any) -> tuple[Layer | None] | None:
    stride = kernel if stride is None else stride
    if not all(isinstance(n, int) for n in (kernel, stride, padding)):
        return None
    return (MaxPool(operator.index(kernel), operator.index(stride), operator.index(padding)),)
