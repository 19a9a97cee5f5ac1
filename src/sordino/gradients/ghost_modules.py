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

from sordino.gradients.ghost_convolution import Convolution
from sordino.gradients.ghost_layers import KEEP, Lookup, Record, Rows, dense

EVEN = 16  # a library's products give rows at different places different bits unless sizes are even


class Unsupported(Exception):
    """A layer, or a use of one, that only the general fallback handles."""


class Tape:
    """What one pass must differentiate by: the outputs of layers that nothing before them needed gradients for."""

    def __init__(self, even: bool = False) -> None:
        self.even = even  # products are padded to even sizes
        self.clear()

    def clear(self, examples: int = 0, real: int | None = None) -> None:
        """Begin a pass over so many slots, of which `real` hold examples."""
        self.examples = examples
        # How many of the slots hold examples: kernels of our own, which take one example at a time, skip the others.
        self.real = examples if real is None else real
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
        """An empty leaf whose gradient makes the backward pass run through a layer."""
        leaf = like.new_zeros(0, requires_grad=True)
        self.leaves.append(leaf)
        self.calls.append(None)
        return leaf

    def backward(self, losses: Tensor) -> None:
        """Run the backward pass of all losses; every call of every layer then holds its g."""
        if not self.leaves:
            return
        ones = torch.ones_like(losses)
        for call, g in zip(self.calls, torch.autograd.grad(losses, self.leaves, ones, allow_unused=True)):
            if call is not None and g is not None:
                call.keep(g)


class Call:
    """One call of one layer: its input, which must not change until the gradient at its output arrives."""

    def __init__(self, adapter: Adapter, x: Tensor) -> None:
        self.adapter, self.x, self.version = adapter, x, x._version
        self.record: Record | None = None

    def keep(self, g: Tensor) -> None:
        if self.x._version != self.version:
            raise Unsupported("an input was changed in place")
        with torch.no_grad():
            self.record = self.adapter.read(self.x.detach(), g.detach(), self.adapter.tape.examples)
        del self.x


class Adapter(ABC):
    """One module under book-keeping, between `install` and `remove`."""

    most = KEEP  # entries of a gradient from which on it is never kept

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
    def read(self, x: Tensor, g: Tensor, n: int) -> Record:
        """The record of one call for n examples, from what went in and the gradient at what came out."""

    def record(self, n: int) -> Record | None:
        """Gradients of all calls in the last pass together; None if nothing flowed back."""
        records = [call.record for call in self.calls if call.record is not None]
        if len(records) < 2:
            return records[0] if records else None
        return Rows([sum(parts[1:], parts[0]) for parts in zip(*(r.rows() for r in records))])

    @property
    def kept(self) -> int:
        """An upper bound on the entries per example that a record keeps, from shapes alone."""
        return sum(p.numel() for p in self.parameters if p.numel() < self.most)

    def _run(self, x: Tensor, out: Tensor) -> Tensor:
        call = Call(self, x)
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
    """A dense layer."""

    module: nn.Linear

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.module.weight.detach(), _detached(self.module.bias)
        if self.tape.even:
            out = _even(x.flatten(0, -2), weight, bias)
        elif x.dim() <= 2:
            return self._run(x, F.linear(x, weight, bias))
        else:
            out = F.linear(x.flatten(0, -2), weight, bias)
        # A view that is changed in place later would lose its hook.
        return self._run(x, torch.ops.aten._unsafe_view(out, [*x.shape[:-1], out.shape[1]]))

    def read(self, x: Tensor, g: Tensor, n: int) -> Record:
        weight, bias = self.module.weight, self.module.bias
        inputs = [_split(x, n, 1)] if weight.requires_grad else []
        return dense(inputs, _split(g, n, 1), int(bias is not None and bias.requires_grad))


def short(size: int) -> int:
    """What a dimension lacks to a multiple of `EVEN`."""
    return -size % EVEN


def _even(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The same as F.linear, with zeros around, so that products forwards and backwards have even sizes."""
    o, k = short(weight.shape[0]), short(weight.shape[1])
    bias = None if bias is None else F.pad(bias, (0, o))
    return F.linear(F.pad(x, (0, k)), F.pad(weight, (0, k, 0, o)), bias)[:, : weight.shape[0]].clone()


class ConvAdapter(Adapter):
    """A convolution in one or two dimensions."""

    module: nn.Conv1d | nn.Conv2d

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != self.module.weight.dim():
            raise Unsupported("a convolution without a batch")
        m = self.module
        return self._run(x, m._conv_forward(x, m.weight.detach(), _detached(m.bias)))

    def read(self, x: Tensor, g: Tensor, n: int) -> Record:
        if x.shape[0] % n:
            raise Unsupported("the first dimension is not that of the examples")
        return Convolution(self.module, x, g, n)


class EmbeddingAdapter(Adapter):
    """A table of rows that are looked up."""

    module: nn.Embedding

    def forward(self, x: Tensor) -> Tensor:
        return self._run(x, F.embedding(x, self.module.weight.detach(), self.module.padding_idx))

    def read(self, x: Tensor, g: Tensor, n: int) -> Record:
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

    def read(self, x: Tensor, g: Tensor, n: int) -> Record:
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
