"""Adapters: run a layer so that it leaves behind what per-example gradients need, and read that as a record.

For the length of one pass an adapter stands in for the ``forward`` of its module. The layer runs with its parameters
detached, so that the backward pass skips weight gradients; a hook keeps the loss gradient at its output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sordino.clients.ghost_layers import KEEP, Convolution, Dense, Lookup, Record, Rows
from sordino.clients.ghost_lstm import LSTMLayer


class Unsupported(Exception):
    """A layer, or a use of one, that only the general fallback handles."""


class Tape:
    """What one pass must differentiate by: the outputs of layers that nothing before them needed gradients for."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.leaves: list[Tensor] = []
        self.calls: list[Call | None] = []

    def watch(self, out: Tensor, call: Call) -> Tensor:
        if out.requires_grad:
            out.register_hook(call.keep)
        elif torch.is_grad_enabled():
            self.leaves.append(out.requires_grad_())
            self.calls.append(call)
        return out

    def probe(self, like: Tensor) -> Tensor:
        leaf = like.new_zeros(0, requires_grad=True)
        self.leaves.append(leaf)
        self.calls.append(None)
        return leaf

    def backward(self, loss: Tensor) -> None:
        """Run the backward pass; every call of every layer then holds its g."""
        if not self.leaves:
            return
        for call, g in zip(self.calls, torch.autograd.grad(loss, self.leaves, allow_unused=True)):
            if call is not None and g is not None:
                call.keep(g)


class Call:
    """One call of one layer: its input (which must not change afterwards) and, later, the gradient at its output."""

    def __init__(self, x: Tensor) -> None:
        self.x, self.version, self.g = x, x._version, None

    def keep(self, g: Tensor) -> None:
        self.g = g.detach()  # type: ignore[assignment]

    def pair(self) -> tuple[Tensor, Tensor]:
        if self.x._version != self.version:
            raise Unsupported("an input was changed in place")
        return self.x.detach(), self.g  # type: ignore[return-value]


class Adapter(ABC):
    """One module under book-keeping, between `install` and `remove`."""

    def __init__(self, module: nn.Module, tape: Tape) -> None:
        self.module, self.tape = module, tape
        self.parameters = [p for p in module.parameters(recurse=False) if p.requires_grad]
        self.calls: list[Any] = []

    def install(self) -> None:
        self.calls.clear()
        self.module.__dict__["forward"] = self.forward  # what nn.Module calls before the class's own

    def remove(self) -> None:
        self.calls.clear()
        self.module.__dict__.pop("forward", None)

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any: ...

    @abstractmethod
    def read(self, call: Any, n: int) -> Record | None:
        """The record of one call for n examples; None if nothing flowed back."""

    def record(self, n: int) -> Record | None:
        """Gradients of all calls in the last pass together."""
        records = [r for r in (self.read(call, n) for call in self.calls) if r is not None]
        if len(records) < 2:
            return records[0] if records else None
        return Rows([sum(parts[1:], parts[0]) for parts in zip(*(r.rows() for r in records))])

    @property
    def kept(self) -> int:
        """An upper bound on the entries per example that a record keeps, from shapes alone."""
        return sum(p.numel() for p in self.parameters if p.numel() < KEEP)

    def _run(self, x: Tensor, out: Tensor) -> Tensor:
        call = Call(x)
        self.calls.append(call)
        return self.tape.watch(out, call)


def _detached(p: Tensor | None) -> Tensor | None:
    return None if p is None else p.detach()


def _split(t: Tensor, n: int, last: int) -> Tensor:
    """[n, T, entries] of a tensor whose first dimension holds n examples and whose last `last` are entries."""
    if t.shape[0] % n:
        raise Unsupported("the first dimension is not that of the examples")
    entries = t.shape[t.dim() - last :].numel() if last else 1
    return t.reshape(n, -1, entries)


class LinearAdapter(Adapter):
    module: nn.Linear

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.module.weight.detach(), _detached(self.module.bias)
        if x.dim() <= 2:
            return self._run(x, F.linear(x, weight, bias))
        # A view that is changed in place later would lose its hook.
        out = F.linear(x.flatten(0, -2), weight, bias)
        return self._run(x, torch.ops.aten._unsafe_view(out, [*x.shape[:-1], out.shape[1]]))

    def read(self, call: Call, n: int) -> Record | None:
        if call.g is None:
            return None
        x, g = call.pair()
        weight, bias = self.module.weight, self.module.bias
        inputs = [_split(x, n, 1)] if weight.requires_grad else []
        return Dense(inputs, _split(g, n, 1), int(bias is not None and bias.requires_grad))


class ConvAdapter(Adapter):
    module: nn.Conv1d | nn.Conv2d

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != self.module.weight.dim():
            raise Unsupported("a convolution without a batch")
        m = self.module
        return self._run(x, m._conv_forward(x, m.weight.detach(), _detached(m.bias)))

    def read(self, call: Call, n: int) -> Record | None:
        if call.g is None:
            return None
        x, g = call.pair()
        if x.shape[0] % n:
            raise Unsupported("the first dimension is not that of the examples")
        return Convolution(self.module, x, g, n)


class EmbeddingAdapter(Adapter):
    module: nn.Embedding

    def forward(self, x: Tensor) -> Tensor:
        return self._run(x, F.embedding(x, self.module.weight.detach(), self.module.padding_idx))

    def read(self, call: Call, n: int) -> Record | None:
        if call.g is None:
            return None
        x, g = call.pair()
        indices, g = _split(x, n, 0)[:, :, 0], _split(g, n, 1)
        if self.module.padding_idx is not None:
            g = g * (indices != self.module.padding_idx)[:, :, None]
        return Lookup(indices, g, self.module.num_embeddings)


class NormAdapter(Adapter):
    """GroupNorm, LayerNorm and InstanceNorm: scale and shift are small, their gradients are kept."""

    def forward(self, x: Tensor) -> Tensor:
        m = self.module
        weight, bias = _detached(m.weight), _detached(m.bias)  # type: ignore[arg-type]
        return self._run(x, self._normalise(x, weight, bias))

    def _normalise(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        m = self.module
        if isinstance(m, nn.GroupNorm):
            return F.group_norm(x, m.num_groups, weight, bias, m.eps)
        if isinstance(m, nn.LayerNorm):
            return F.layer_norm(x, m.normalized_shape, weight, bias, m.eps)
        return F.group_norm(x, x.shape[1], weight, bias, m.eps)  # type: ignore[arg-type]  # one channel, one group

    def read(self, call: Call, n: int) -> Record | None:
        if call.g is None:
            return None
        x, g = call.pair()
        m, out = self.module, []
        if m.weight.requires_grad:
            out.append(self._total(g * self._normalise(x, None, None), n))
        if m.bias is not None and m.bias.requires_grad:
            out.append(self._total(g, n))
        return Rows(out)

    def _total(self, t: Tensor, n: int) -> Tensor:
        if isinstance(self.module, nn.LayerNorm):
            return _split(t, n, len(self.module.normalized_shape)).sum(1)
        if t.shape[0] % n:
            raise Unsupported("the first dimension is not that of the examples")
        return t.flatten(2).sum(2).view(n, -1, t.shape[1]).sum(1)


class LSTMAdapter(Adapter):
    """Every layer and direction of ``nn.LSTM``; packed sequences and projections go to the fallback."""

    module: nn.LSTM

    def forward(self, x: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> Any:
        m = self.module
        if not isinstance(x, Tensor) or x.dim() != 3:
            raise Unsupported("a packed or unbatched sequence")
        x = x.transpose(0, 1) if m.batch_first else x
        directions, hidden, cells = 1 + m.bidirectional, [], []
        if hx is None:
            zeros = x.new_zeros(m.num_layers * directions, x.shape[1], m.hidden_size)
            hx = zeros, zeros
        for layer in range(m.num_layers):
            outputs = []
            for direction in range(directions):
                k = layer * directions + direction
                weights = self._weights(layer, direction)
                w, u = weights[0].detach(), weights[1].detach()
                bias = (weights[2] + weights[3]).detach() if m.bias else None
                call: list[Any] = [weights]
                self.calls.append(call)
                seen = x.flip(0) if direction else x
                probe = self.tape.probe(x)
                states, cell = LSTMLayer.apply(seen, hx[0][k], hx[1][k], w, u, bias, _keeper(call), probe)
                hidden.append(states[-1])
                cells.append(cell)
                outputs.append(states.flip(0) if direction else states)
            x = torch.cat(outputs, 2) if directions > 1 else outputs[0]
            if m.dropout and layer < m.num_layers - 1:
                x = F.dropout(x, m.dropout, m.training)
        return (x.transpose(0, 1) if m.batch_first else x), (torch.stack(hidden), torch.stack(cells))

    def _weights(self, layer: int, direction: int) -> list[nn.Parameter]:
        suffix = f"l{layer}" + ("_reverse" if direction else "")
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh") if self.module.bias else ("weight_ih", "weight_hh")
        return [getattr(self.module, f"{kind}_{suffix}") for kind in kinds]

    def read(self, call: list[Any], n: int) -> Record | None:
        raise Unsupported("read layer by layer")

    def record(self, n: int) -> Record | None:
        count = self.module.num_layers * (1 + self.module.bidirectional)
        if len(self.calls) > count:
            raise Unsupported("an LSTM that is called twice")
        parts: list[tuple[Record, list[int]]] = []
        places = {id(p): i for i, p in enumerate(self.parameters)}
        for weights, *kept in self.calls:
            if not kept:
                continue
            x, states, d = (t.transpose(0, 1) for t in kept[0])
            if d.shape[0] != n:
                raise Unsupported("the LSTM's batch is not that of the examples")
            parts.append((Dense([x, states], d, len(weights) - 2), [places[id(p)] for p in weights]))
        return Several(parts, [p.numel() for p in self.parameters], n) if parts else None


def _keeper(call: list[Any]) -> Any:
    return lambda x, states, d: call.append((x.detach(), states, d))


class Several(Record):
    """The records of the layers of one module, put back in the order of its parameters."""

    def __init__(self, parts: list[tuple[Record, list[int]]], sizes: list[int], n: int) -> None:
        self.parts, self.sizes, self.n = parts, sizes, n

    def _gather(self, answers: list[list[Tensor]], missing: Any) -> list[Tensor]:
        found = {place: t for (_, places), ts in zip(self.parts, answers) for place, t in zip(places, ts)}
        like = answers[0][0]
        return [found[i] if i in found else missing(like, size) for i, size in enumerate(self.sizes)]

    def squares(self) -> list[Tensor]:
        return self._gather([r.squares() for r, _ in self.parts], lambda t, _: t.new_zeros(self.n))

    def weighted(self, factors: list[Tensor]) -> list[Tensor]:
        answers = [r.weighted([factors[i] for i in places]) for r, places in self.parts]
        return self._gather(answers, lambda t, size: t.new_zeros(size))

    def rows(self) -> list[Tensor]:
        return self._gather([r.rows() for r, _ in self.parts], lambda t, size: t.new_zeros(self.n, size))

    def drop(self, bad: Tensor) -> None:
        for r, _ in self.parts:
            r.drop(bad)


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
