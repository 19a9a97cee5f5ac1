"""Which way to per-example gradients fits a model: tried on three examples, against single backward passes.

Book-keeping sees layers, not code: a model that reads a layer's weights behind its back would get a wrong gradient
without any error. So the first batch is used once to compare. The same trial refuses models that mix the examples of a
batch, since then no example has a gradient of its own and no bound would hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sordino.errors import BadInput
from sordino.gradients.flat import Flat
from sordino.gradients.ghost_modules import Unsupported
from sordino.gradients.strategies import Ghost, Loop, Loss, Strategy, Vmap, losses

_TOLERANCE = 1e-3  # a wrong gradient is wrong by far more, rounding by far less


def settle(flat: Flat, loss: Loss, ghost: Ghost | None, x: Tensor, y: Tensor) -> Strategy:
    """The fastest strategy that gives the gradients of single backward passes on the head of this batch."""
    pick = torch.arange(3, device=x.device) % len(x)
    x, y = x[pick], y[pick]
    if x.is_floating_point():
        x = torch.nan_to_num(x, nan=0.0, posinf=1.0, neginf=-1.0)
    with _without_dropout(flat.model):
        _refuse_mixing(flat, loss, x, y)
        if ghost is not None and _agrees(ghost, x, y):
            return ghost
        vmap = Vmap(flat, loss)
        try:
            with _seeded():
                vmap.run(x, y)
        except Exception:  # whatever torch.func cannot trace, a loop can
            return Loop(flat, loss)
        return vmap


def _agrees(ghost: Ghost, x: Tensor, y: Tensor) -> bool:
    """Whether norms and a weighted sum are those of one forward and three backward passes of the model as it is."""
    flat, weights = ghost.flat, torch.tensor([1.0, -0.5, 0.25], device=x.device)
    sizes, wanted = [], torch.zeros_like(flat.grad)
    with _seeded(), torch.enable_grad():
        each = losses(ghost.loss, flat.model, x, y)
        for loss, weight in zip(each, weights):
            grads = torch.autograd.grad(loss, flat.parameters, retain_graph=True, allow_unused=True)
            sizes.append(torch.stack([g.norm() for g in grads if g is not None]).norm())
            for window, g in zip(flat.split(wanted), grads):
                if g is not None:
                    window.add_(g * weight)
    try:
        with _seeded():
            taken = ghost.run(x, y)
            squares, total = taken.squares().sum(1), taken.weighted([weights.double()] * len(flat.slots))
    except BadInput:
        raise
    except (Unsupported, RuntimeError, TypeError, ValueError, AttributeError):
        return False
    size = torch.stack(sizes)
    limit = _TOLERANCE * size.max().clamp_min(1e-12)
    return bool(((squares.sqrt() - size).abs() <= limit).all() and (total - wanted).norm() <= limit)


def _refuse_mixing(flat: Flat, loss: Loss, x: Tensor, y: Tensor) -> None:
    other = x.clone()
    other[1:] = x[1:].flip(-1) if x.dim() > 1 else x[1:].flip(0)
    if x.is_floating_point():
        other[1:] += 1.0
    with torch.no_grad():
        with _seeded():
            first = losses(loss, flat.model, x, y)[0]
        with _seeded():
            second = losses(loss, flat.model, other, y)[0]
    if not torch.allclose(first, second, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise BadInput(
            "the model mixes the examples of a batch (the loss of one changes with the others), so no example can be "
            "protected: replace what works across the batch, for instance by GroupNorm."
        )


@contextmanager
def _seeded() -> Iterator[None]:
    """The same draws in every pass (functional dropout), and the generator left as it was."""
    state = torch.random.get_rng_state()
    try:
        torch.random.default_generator.manual_seed(0)
        yield
    finally:
        torch.random.set_rng_state(state)


@contextmanager
def _without_dropout(model: nn.Module) -> Iterator[None]:
    """Layers that draw at random, switched off: their draws need not come in the same order in two strategies."""
    layers = [m for m in model.modules() if isinstance(m, nn.modules.dropout._DropoutNd) and m.training]
    stacks = [(m, m.dropout) for m in model.modules() if isinstance(m, nn.RNNBase)]
    for layer in layers:
        layer.training = False
    for stack, _ in stacks:
        stack.dropout = 0.0
    try:
        yield
    finally:
        for layer in layers:
            layer.training = True
        for stack, rate in stacks:
            stack.dropout = rate
