"""A proof that no example of a batch touches another: which example every number of a forward pass belongs to.

A model that was traced with `torch.fx` is a fixed list of calls of PyTorch's own functions and layers: no code of the user
runs any more, no control flow depends on data, nothing is remembered from call to call. `prove` runs this list once, on
synthetic input of the fixed shape of every later batch, and gives each number an *owner*: the example that it was computed
from, or none (`owners`). What the input holds makes no difference, since only operations and shapes decide.

A layer with weights of its own must get rows of examples, in order: book-keeping (`ghost_modules`) cuts there.
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

from sordino.gradients.owners import Mixes, Owners
from sordino.plain import Json

_ROWS = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.Embedding, nn.GroupNorm,
    nn.LayerNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)  # fmt: skip


def static(model: fx.GraphModule) -> None:
    """Raise `Mixes` unless the graph calls PyTorch's own functions and layers only, and no hook runs in between."""
    layers = dict(model.named_modules())
    if _hooked(model):
        raise Mixes("a hook is installed")
    for node in model.graph.nodes:
        if node.op == "call_function" and not _known(node.target):
            raise Mixes(f"{node.target} is not a function of PyTorch")
        if node.op == "call_module":
            layer = layers[str(node.target)]
            for part in layer.modules():
                if getattr(nn, type(part).__name__, None) is not type(part) or "forward" in vars(part):
                    raise Mixes(f"{type(part).__name__} is not a layer of PyTorch")
                if _hooked(part):
                    raise Mixes("a hook is installed")


def _hooked(module: nn.Module) -> bool:
    return any(
        vars(module).get(kind)
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    )


def _known(target: object) -> bool:
    rooms = (torch, F, operator, math, builtins, torch.Tensor, torch.special, torch.linalg, torch._C._nn, torch.nn.init)
    name = getattr(target, "__name__", "")
    if any(getattr(room, name, None) is target for room in rooms):
        return target not in (eval, exec, setattr, delattr, open, print, input)
    return any(target is found for found in _WRAPPED)


_WRAPPED = [f for f in vars(F).values() if callable(f) and getattr(f, "__module__", "").startswith("torch")]


def prove(model: fx.GraphModule, x: Tensor) -> None:
    """Raise `Mixes` unless row i of ``model(x)`` is a function of x[i] and constants alone, for every input of this shape."""
    static(model)
    with torch.no_grad(), Owners(len(x)) as mode:
        mode.claim(x)
        out = _Walk(model, mode).run(x)
    if not isinstance(out, Tensor) or out.dim() < 1 or len(out) != len(x):
        raise Mixes("the output has no row for each example")
    mode.rows(out)


class _Walk(fx.Interpreter):
    """Runs a traced model; layers with weights are taken as wholes."""

    def __init__(self, model: fx.GraphModule, mode: Owners) -> None:
        super().__init__(model)
        self.mode = mode

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: Json) -> Any:
        layer = self.fetch_attr(target)
        if type(layer) is nn.LSTM:
            return self._lstm(layer, *args, **kwargs)
        if type(layer) not in _ROWS or kwargs or len(args) != 1:
            return super().call_module(target, args, kwargs)
        (x,) = args
        if not _batched(layer, x):
            raise Mixes(f"{type(layer).__name__} gets an input without a batch")
        self.mode.rows(x)
        with _disable_current_modes():
            out = layer(x)
        return self.mode.claim(out)

    def _lstm(self, layer: nn.LSTM, x: Tensor, hx: Any = None) -> Any:
        at, n = 0 if layer.batch_first else 1, self.mode.n
        if x.dim() != 3 or hx is not None or x.shape[at] != n:
            raise Mixes("an LSTM whose batch is not that of the examples")
        self.mode.rows(x.transpose(0, at))
        with _disable_current_modes():
            out, (h, c) = layer(x)
        self.mode.claim(out, at)
        return out, (self.mode.claim(h, 1), self.mode.claim(c, 1))


def _batched(layer: nn.Module, x: Tensor) -> bool:
    """Whether the layer takes the first dimension for samples."""
    if isinstance(layer, nn.modules.conv._ConvNd):
        return x.dim() == layer.weight.dim()
    if isinstance(layer, nn.LayerNorm):
        return x.dim() > len(layer.normalized_shape)
    norms: dict[type[nn.Module], int] = {nn.InstanceNorm1d: 3, nn.InstanceNorm2d: 4, nn.InstanceNorm3d: 5}
    exact = norms.get(type(layer))
    return x.dim() == exact if exact else x.dim() >= (1 if isinstance(layer, nn.Embedding) else 2)
