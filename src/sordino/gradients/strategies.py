"""Three ways to the gradients of single examples, one interface.

- `Ghost`: one forward and one backward pass for the whole chunk, with book-keeping in every layer (`ghost_modules`). It runs
  the traced model, a fixed list of calls, and never the user's code;
- `Vmap`: `torch.func` forms all gradients of a smaller chunk, for models with other layers;
- `Loop`: one backward pass per example, for what `torch.func` cannot trace.

`select_strategy` says which of them a model may use.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, fx, nn

from sordino.gradients import WINDOW
from sordino.gradients.flat import Flat
from sordino.gradients.fused import Block
from sordino.gradients.ghost_block import BlockAdapter
from sordino.gradients.ghost_layers import Record, Rows
from sordino.gradients.ghost_lstm import LSTMAdapter
from sordino.gradients.ghost_modules import (
    Adapter,
    ConvAdapter,
    EmbeddingAdapter,
    LinearAdapter,
    NormAdapter,
    Tape,
    Unsupported,
)
from sordino.gradients.losses import Loss, checked, rowwise
from sordino.gradients.rewrite import quicken, trace
from sordino.gradients.softmax_head import softmax_head

DENSE = 256  # like `WINDOW`, for models of dense layers only, where a pass is short
_BYTES = 128 << 20  # of per-example gradients alive at a time


def power_of_two(entries: int, most: int = WINDOW) -> int:
    """Examples of `entries` kept numbers each that fit the memory, at most `most`."""
    fits = max(1, _BYTES // (4 * max(1, entries)))
    return min(most, 1 << (fits.bit_length() - 1))


_NORMS = (nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


def adapt(module: nn.Module, tape: Tape) -> Adapter:
    """The adapter of a module that holds trainable parameters itself; `Unsupported` if there is none."""
    kind = type(module)  # subclasses may compute something else
    if kind is nn.Linear:
        return LinearAdapter(module, tape)
    if kind in (nn.Conv1d, nn.Conv2d):
        return ConvAdapter(module, tape)
    if kind is nn.Embedding and not module.scale_grad_by_freq and not module.sparse:
        return EmbeddingAdapter(module, tape)
    if kind in _NORMS:
        return NormAdapter(module, tape)
    if kind is nn.LSTM and not module.proj_size and all(p.requires_grad for p in module.parameters()):
        return LSTMAdapter(module, tape)
    raise Unsupported(f"{kind.__name__} has no adapter")


class PerExampleGrads:
    """The gradients of the examples of one chunk: records and the parameters each one speaks of."""

    def __init__(self, flat: Flat, parts: list[tuple[Record | None, list[int]]], n: int) -> None:
        self.flat, self.n = flat, n
        self.parts = [(record, slots) for record, slots in parts if record is not None]  # the others are zero

    def squares(self) -> Tensor:
        """[n, parameter tensors], in double precision."""
        found = {slot: squares for record, slots in self.parts for slot, squares in zip(slots, record.squares)}
        none = torch.zeros(self.n, dtype=torch.float64, device=self.flat.theta.device)
        return torch.stack([found.get(slot, none) for slot in range(len(self.flat.slots))], 1)

    def weighted(self, factors: list[Tensor]) -> Tensor:
        """The flat sum in double precision, given a factor [n] (doubles) for each parameter tensor."""
        return self._joined(lambda record, slots: record.weighted([factors[i] for i in slots]))

    def rows(self) -> Tensor:
        """[n, d]."""
        out = self.flat.grad.new_zeros(self.n, self.flat.size)
        for record, slots in self.parts:
            for slot, rows in zip(slots, record.rows()):
                window = self.flat.slots[slot]
                out[:, window.offset : window.offset + window.size] = rows
        return out

    def squared_sums(self, real: int) -> Tensor:
        """The flat sum over the first `real` examples of squared entries, in double precision."""
        return self._joined(lambda record, _: record.squared_sums(real))

    def _joined(self, of: Callable[[Record, list[int]], list[Tensor]]) -> Tensor:
        """What each record says of its parameters, in the flat order; zero where there is no record."""
        out, missing = torch.empty_like(self.flat.grad, dtype=torch.float64), dict(enumerate(self.flat.slots))
        for record, slots in self.parts:
            for slot, total in zip(slots, of(record, slots)):
                window = missing.pop(slot)
                out[window.offset : window.offset + window.size] = total.reshape(-1)
        for window in missing.values():
            out[window.offset : window.offset + window.size] = 0.0
        return out

    def drop(self, bad: Tensor) -> None:
        """Make the examples of the mask contribute nothing."""
        for record, _ in self.parts:
            record.drop(bad)


class Strategy(Protocol):
    """Gradients of up to `step` examples at a time. Of x and y the first `real` rows are examples, the rest free slots."""

    step: int

    def run(self, x: Tensor, y: Tensor, real: int | None = None) -> PerExampleGrads: ...


class Ghost:
    """Book-keeping in every layer. Raises `Unsupported` if the model cannot be traced or some layer has no adapter."""

    def __init__(self, flat: Flat, loss: Loss, slots: int | None = None) -> None:
        self.flat, self.given, self.loss, self.tape = flat, loss, rowwise(loss), Tape()
        self.plain = _traced(flat)
        self.net = fx.GraphModule(flat.model, copy.deepcopy(self.plain.graph))
        quicken(self.net)
        self.adapters: list[Adapter] = []
        self.slots: list[list[int]] = []
        places = {id(p): i for i, p in enumerate(flat.parameters)}
        seen: set[int] = set()
        for module in flat.model.modules():
            own = [id(p) for p in module.parameters(recurse=False) if p.requires_grad]
            if not own:
                continue
            if seen & set(own):
                raise Unsupported("two layers share a parameter")
            seen |= set(own)
            self.adapters.append(adapt(module, self.tape))
            self.slots.append([places[i] for i in own])
        if len(seen) != len(flat.parameters):
            raise Unsupported("a parameter belongs to no layer")
        # An activation that a layer overwrites in place can no longer be read back.
        self.overwriting = [m for m in flat.model.modules() if getattr(m, "inplace", False) is True]
        of = {id(a.module): a for a in self.adapters if isinstance(a, ConvAdapter)}
        blocks = [m for m in self.net.modules() if isinstance(m, Block)]
        self.blocks = [BlockAdapter(m, of[id(m._layer[0])], self.tape) for m in blocks if id(m._layer[0]) in of]
        self.stand_ins: list[Adapter | BlockAdapter] = [*self.adapters, *self.blocks]
        dense = all(isinstance(a, LinearAdapter) for a in self.adapters)
        most = power_of_two(sum(a.kept for a in self.adapters), DENSE if dense else WINDOW)
        self.step = most if slots is None else min(slots, most)
        self.head = softmax_head(self.plain, loss)

    def run(self, x: Tensor, y: Tensor, real: int | None = None) -> PerExampleGrads:
        if self.head is not None and self.head.takes(x, y):
            record = self.head.record(x, y, len(x) if real is None else real)
            return PerExampleGrads(self.flat, [(record, self.slots[0])], len(x))
        self.tape.clear(len(x), real)
        for module in self.overwriting:
            module.inplace = False  # type: ignore[assignment]
        for stand_in in self.stand_ins:
            stand_in.install()
        try:
            with torch.enable_grad():
                self.tape.backward(checked(self.loss(self.net(x), y), len(x)))
            records = [adapter.record(len(x)) for adapter in self.adapters]
        finally:
            self.tape.clear()
            for stand_in in self.stand_ins:
                stand_in.remove()
            for module in self.overwriting:
                module.inplace = True  # type: ignore[assignment]
        return PerExampleGrads(self.flat, list(zip(records, self.slots)), len(x))


def _traced(flat: Flat) -> fx.GraphModule:
    """The model as a list of calls of layers, none of which reads a trained parameter past its layer."""
    traced = trace(flat.model)
    if traced is None:
        raise Unsupported("the model cannot be traced")
    trained = {id(p) for p in flat.parameters}
    for node in traced.graph.nodes:
        if node.op == "get_attr":
            value = flat.model
            for part in str(node.target).split("."):
                value = getattr(value, part)
            if id(value) in trained:
                raise Unsupported(f"the model reads {node.target} by itself")
    return traced


class Vmap:
    """All gradients of a chunk through `torch.func`."""

    def __init__(self, flat: Flat, loss: Loss, slots: int | None = None) -> None:
        self.flat, self.loss, self.step = flat, loss, min(power_of_two(flat.size), slots or WINDOW)

    def run(self, x: Tensor, y: Tensor, real: int | None = None) -> PerExampleGrads:
        from torch.func import functional_call, grad, vmap

        model = self.flat.model
        fixed = {name: t.detach() for name, t in model.named_parameters() if not t.requires_grad}
        fixed |= dict(model.named_buffers())
        trained = {s.name: p.detach() for s, p in zip(self.flat.slots, self.flat.parameters)}

        def one(parameters: dict[str, Tensor], xi: Tensor, yi: Tensor) -> Tensor:
            out = functional_call(model, {**fixed, **parameters}, (xi[None],))
            return checked(self.loss(out, yi[None]), 1)[0]

        grads = vmap(grad(one), in_dims=(None, 0, 0), randomness="different")(trained, x, y)
        return kept(self.flat, [grads[s.name] for s in self.flat.slots])


class Loop:
    """One backward pass per example."""

    def __init__(self, flat: Flat, loss: Loss, slots: int | None = None) -> None:
        self.flat, self.loss, self.step = flat, loss, min(power_of_two(flat.size), slots or WINDOW)

    def run(self, x: Tensor, y: Tensor, real: int | None = None) -> PerExampleGrads:
        flat, grads = self.flat, [torch.zeros(len(x), *p.shape, device=p.device) for p in self.flat.parameters]
        with torch.enable_grad():
            for i in range(len(x) if real is None else real):
                loss = checked(self.loss(flat.model(x[i : i + 1]), y[i : i + 1]), 1)[0]
                given = torch.autograd.grad(loss, flat.parameters, allow_unused=True)
                for all_, g in zip(grads, given):
                    if g is not None:
                        all_[i] = g
                flat.guard()  # what one example left behind would reach the next
        return kept(flat, grads)


def kept(flat: Flat, grads: list[Tensor]) -> PerExampleGrads:
    """A pass of gradients [n, *shape] that are all there, put in the flat order."""
    ordered = []
    for slot, g in zip(flat.slots, grads):
        channels_last = len(slot.shape) == 4 and slot.strides[1] == 1
        ordered.append((g.detach().permute(0, 1, 3, 4, 2) if channels_last else g.detach()).flatten(1))
    return PerExampleGrads(flat, [(Rows(ordered), list(range(len(ordered))))], len(grads[0]))
