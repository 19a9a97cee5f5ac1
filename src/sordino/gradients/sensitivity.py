"""How strongly the features of one layer answer to their own example: |d r_j / d x| for every example and feature.

The obvious way is one backward pass for each example and each feature. Here all examples go through one forward pass. Each
example is in a feature of its own in every backward pass, so features that do not answer at all (a rectified zero) cost nothing;
one probe with uneven weights finds out whether zeros of this layer are of that kind.

Where the model has blocks of convolution, pooling and ReLU, a pass takes one feature of every example: what flows back from one
feature is nearly all zeros, which the native block skips (`fused`). Else passes run for many features at a time
(`is_grads_batched`), by the input alone: no weight gradient is formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sordino.gradients.fused import Block
from sordino.gradients.rewrite import faster

FEATURES = 16  # that run backwards at a time; more leave the cache


def first_inner_dense(model: nn.Module, x: Tensor) -> str | None:
    """The name of the first dense layer that sees features and not the example itself; None if there is none.

    It must be called once, with one row of features for each example. `x` is synthetic input.
    """
    calls: list[tuple[str, nn.Module, tuple[int, ...]]] = []

    def note(name: str, module: nn.Module) -> None:
        def hook(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            calls.append((name, module, tuple(given[0].shape)))

        handles.append(module.register_forward_pre_hook(hook))

    handles: list[torch.utils.hooks.RemovableHandle] = []
    for name, module in model.named_modules():
        if next(module.parameters(recurse=False), None) is not None:
            note(name, module)
    with _evaluating(model), torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    for place, (name, module, shape) in enumerate(calls):
        once = sum(1 for other, *_ in calls if other == name) == 1
        if place > 0 and once and type(module) is nn.Linear and module.weight.requires_grad and len(shape) == 2:
            return name
    return None


def features(model: nn.Module, layer: str, x: Tensor, forward: nn.Module | None = None) -> Tensor:
    """What enters `layer`, as it evaluates: [examples, features]. `forward` is an equal rearrangement of the model."""
    found: list[Tensor] = []
    handle = model.get_submodule(layer).register_forward_pre_hook(lambda _, given: found.append(given[0]))
    try:
        with _evaluating(model):
            (forward or model)(x)
    finally:
        handle.remove()
    return found[0]


def sensitivities(model: nn.Module, layer: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """(|d r_j / d x_i|, r_ij), both [examples, features]."""
    x = x.detach().requires_grad_()
    quick = faster(model)
    sparse = any(isinstance(module, Block) for module in quick.modules())
    with torch.enable_grad():
        r = features(model, layer, x, quick if sparse else None)
    out, (order, answering) = r.new_zeros(r.shape), _answering(r, x)
    step = 1 if sparse else FEATURES
    for start in range(0, answering, step):
        mine = order[:, start : min(start + step, answering)]  # each example has its own features here
        out.scatter_(1, mine, _one_each(r, x, mine[:, 0])[:, None] if sparse else _many(r, x, mine))
    return out, r.detach()


def _one_each(r: Tensor, x: Tensor, mine: Tensor) -> Tensor:
    """Lengths [examples] of the gradients of one feature of each example."""
    rows = torch.zeros_like(r).scatter_(1, mine[:, None], 1.0)
    (given,) = torch.autograd.grad(r, x, rows, retain_graph=True)
    return given.flatten(1).norm(dim=1)


def _many(r: Tensor, x: Tensor, mine: Tensor) -> Tensor:
    """Lengths [examples, features] of the gradients of some features of each example."""
    rows = torch.zeros(mine.shape[1], *r.shape, dtype=r.dtype, device=r.device)
    rows.permute(1, 0, 2).scatter_(2, mine[:, :, None], 1.0)
    (given,) = torch.autograd.grad(r, x, rows, retain_graph=True, is_grads_batched=True)
    return given.flatten(2).norm(dim=2).t()


def _answering(r: Tensor, x: Tensor) -> tuple[Tensor, int]:
    """Features of each example in an order in which those that may answer come first, and how many passes they need."""
    zero = r.detach() == 0
    weights = torch.linspace(1.0, 2.0, r.shape[1], dtype=r.dtype, device=r.device).sin()
    (given,) = torch.autograd.grad(r, x, zero * weights, retain_graph=True)
    if bool(given.any()):  # a zero that is no rectified one
        zero = torch.zeros_like(zero)
    return zero.to(torch.uint8).argsort(dim=1, stable=True), int((~zero).sum(1).max())


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Layers that draw at random are still, and each has its own flag back afterwards."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training
