"""Exact rearrangements of a model that make it cheaper: max pooling before ReLU.

Most networks write ``max_pool(relu(x))``. Both are monotone, so ``relu(max_pool(x))`` is the same function with the
same gradient, and ReLU works on a quarter of the numbers. The model is traced with `torch.fx`; the result shares
every layer and parameter with the original. Where tracing cannot be trusted (control flow on data, randomness or
state in ``forward``, a graph that differs between training and evaluation) the model is returned as it is.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import torch
from numpy.random import get_state, set_state
from torch import fx, nn
from torch.nn import functional as F

_RELUS = {F.relu, torch.relu, torch.relu_, F.relu_}
_POOLS = {F.max_pool1d, F.max_pool2d, F.max_pool3d, torch.max_pool1d, torch.max_pool2d, torch.max_pool3d}
_POOL_LAYERS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)


def pool_first(model: nn.Module) -> nn.Module:
    """The same function with every ``max_pool(relu(.))`` turned round; `model` itself where nothing can be gained."""
    traced = _trace(model)
    if traced is None or not _swap(traced):
        return model
    traced.graph.lint()
    traced.recompile()
    return traced


def faster(model: nn.Module) -> nn.Module:
    """The same function for training: pooling first, and blocks of convolution, pooling and ReLU as one (see `fused`)."""
    from sordino.gradients.fused import fuse

    traced = _trace(model)
    if traced is None or not (_swap(traced) | (fuse(traced) > 0)):
        return model
    traced.graph.lint()
    traced.recompile()
    return traced


def trace(model: nn.Module) -> fx.GraphModule | None:
    """The model with its flags as they are, as a fixed list of calls on its own layers; None if it cannot be traced.

    Tracing runs the user's code with stand-ins, on a copy, so that nothing it does reaches the model.
    """
    if any(m._forward_hooks or m._forward_pre_hooks for m in model.modules()):
        return None
    before = _generators()
    try:
        trial = copy.deepcopy(model)
        state, tracer = _state(trial), fx.Tracer()
        graph = tracer.trace(trial)
        if state != _state(trial) or before != _generators():
            return None
        if any(node.op == "get_attr" and "_tensor_constant" in str(node.target) for node in graph.nodes):
            return None  # a tensor made in forward would be frozen
        return fx.GraphModule(model, graph)
    except Exception:  # whatever tracing raises, the model itself still works
        return None
    finally:
        _restore(before)


def quicken(traced: fx.GraphModule) -> None:
    """Pooling first, and blocks of convolution, pooling and ReLU as one, in a traced model in place."""
    from sordino.gradients.fused import fuse

    if _swap(traced) | (fuse(traced) > 0):
        traced.graph.lint()
        traced.recompile()


def _trace(model: nn.Module) -> fx.GraphModule | None:
    """The traced model, or None unless two traces (training and evaluation) agree."""
    flags, graphs = [(m, m.training) for m in model.modules()], []
    try:
        for training in (True, False):
            for module, _ in flags:
                module.training = training
            graphs.append(trace(model))
    finally:
        for module, flag in flags:
            module.training = flag
    first, second = graphs
    if first is None or second is None or first.code != second.code:
        return None
    if [n for n, _ in first.named_parameters()] != [n for n, _ in model.named_parameters()]:
        return None
    return first


def _swap(traced: fx.GraphModule) -> bool:
    """Turn round every ReLU whose only reader is a max pooling; whether there was any."""
    changed = False
    layers = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        if not _is_pool(node, layers) or not node.args or not isinstance(node.args[0], fx.Node):
            continue
        relu = node.args[0]
        if not _is_relu(relu, layers) or len(relu.users) != 1 or not isinstance(relu.args[0], fx.Node):
            continue
        # x -> relu -> pool -> readers becomes x -> pool -> relu -> readers
        source = relu.args[0]
        if _overwrites(relu, layers) and len(source.users) != 1:
            continue
        node.replace_input_with(relu, source)
        node.append(relu)
        node.replace_all_uses_with(relu)
        relu.replace_input_with(source, node)
        changed = True
    return changed


def _is_pool(node: fx.Node, layers: dict[str, nn.Module]) -> bool:
    if node.kwargs.get("return_indices") or len(node.args) > 6:
        return False
    if node.op == "call_module":
        layer = layers[str(node.target)]
        return type(layer) in _POOL_LAYERS and not layer.return_indices
    return node.op == "call_function" and node.target in _POOLS


def _is_relu(node: fx.Node, layers: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return type(layers[str(node.target)]) is nn.ReLU
    if node.op == "call_method":
        return node.target in ("relu", "relu_")
    return node.op == "call_function" and node.target in _RELUS


def _overwrites(node: fx.Node, layers: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return bool(layers[str(node.target)].inplace)
    return True if str(node.target).endswith("relu_") else bool(node.kwargs.get("inplace") or len(node.args) > 1)


def _generators() -> tuple[Any, ...]:
    name, keys, *rest = get_state()
    return random.getstate(), (name, np.asarray(keys).tobytes(), *rest), torch.random.get_rng_state().numpy().tobytes()


def _restore(state: tuple[Any, ...]) -> None:
    python, (name, keys, *rest), draws = state
    random.setstate(python)
    set_state((name, np.frombuffer(keys, dtype=np.uint32), *rest))
    torch.random.set_rng_state(torch.frombuffer(bytearray(draws), dtype=torch.uint8))


def _state(model: nn.Module) -> list[dict[str, str]]:
    """Plain attributes of every module, to see whether `forward` keeps count of something."""
    plain = (bool, int, float, str, list, tuple, dict, set)
    return [
        {k: repr(v) for k, v in vars(m).items() if isinstance(v, plain) and not k.startswith("_") and k != "training"}
        for m in model.modules()
    ]
