"""The LSTM, written out so that its backward pass hands over what per-example gradients need.

With the gates z_t = W x_t + U h_(t-1) + b, the gradients of W, U and b for one example are sums over time of d_t x_t',
d_t h_(t-1)' and d_t, where d_t is the loss gradient at z_t: dense layers on sequences. PyTorch's fused kernel never
shows d_t; this one keeps it and computes no weight gradients. Gate order (input, forget, cell, output) as in
``torch.nn.LSTM``. Time comes first in every tensor here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sordino.gradients import lstm_steps, products
from sordino.gradients.ghost_layers import KEEP, Record, dense
from sordino.gradients.ghost_modules import Adapter, Unsupported, short

Keep = Callable[[Tensor, Tensor, Tensor], None]


class LSTMLayer(torch.autograd.Function):
    """``apply(x, h0, c0, w, u, bias, keep, probe) -> (states [T, n, H], last cell [n, H])``.

    `keep(x, earlier states, d)` is called in the backward pass. `probe` is an empty tensor that requires grad, so that
    the backward pass also runs when nothing below the layer needs gradients.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        h0: Tensor,
        c0: Tensor,
        w: Tensor,
        u: Tensor,
        bias: Tensor | None,
        keep: Keep,
        probe: Tensor,
    ) -> tuple[Tensor, Tensor]:
        steps, n, _ = x.shape
        size = u.shape[1]
        gates = products.linear(x, w, bias).contiguous()
        states = x.new_empty(steps + 1, n, size)
        cells = x.new_empty(steps + 1, n, size)
        squashed = x.new_empty(steps, n, size)  # tanh of the cells
        states[0], cells[0] = h0, c0
        lstm_steps.forward(gates, u, states, cells, squashed)
        ctx.save_for_backward(x, w, u, gates, states, cells, squashed)
        ctx.keep = keep
        return states[1:].clone(), cells[-1].clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dstates, dcell = grads
        x, w, u, gates, states, cells, squashed = ctx.saved_tensors
        steps, n, size = squashed.shape
        d = torch.empty_like(gates)
        dc, dh = dcell.clone(memory_format=torch.contiguous_format), dcell.new_zeros(n, size)
        lstm_steps.backward(gates, u, cells, squashed, dstates.contiguous(), dh, dc, d)
        ctx.keep(x, states[:-1], d)
        needs = ctx.needs_input_grad
        dx = products.linear(d, w.t()) if needs[0] else None
        return dx, dh if needs[1] else None, dc if needs[2] else None, None, None, None, None, dc.new_zeros(0)


class LSTMAdapter(Adapter):
    """Every layer and direction of ``nn.LSTM``; packed sequences and projections go to the fallback."""

    module: nn.LSTM
    # Every matrix has many positions, so that larger ones are worth keeping than elsewhere.
    most = 2 * KEEP

    def forward(self, x: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
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
                keep, h, c = self._keeper(weights), hx[0][k], hx[1][k]
                seen = x.flip(0) if direction else x
                if self.tape.even:
                    seen, h, c, w, u, bias, keep = _even(seen, h, c, w, u, bias, keep)
                probe = self.tape.probe(x)
                states, cell = LSTMLayer.apply(seen, h, c, w, u, bias, keep, probe)
                states, cell = states[:, :, : m.hidden_size], cell[:, : m.hidden_size]
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

    def read(self, x: Tensor, g: Tensor, n: int) -> Record:
        raise Unsupported("an LSTM is read layer by layer")

    def _keeper(self, weights: list[nn.Parameter]) -> Any:
        call: list[Any] = []
        self.calls.append(call)

        def keep(x: Tensor, states: Tensor, d: Tensor) -> None:
            if d.shape[1] != self.tape.examples:
                raise Unsupported("the LSTM's batch is not that of the examples")
            inputs = [x.detach().transpose(0, 1), states.transpose(0, 1)]
            with torch.no_grad():
                call.append((dense(inputs, d.transpose(0, 1), len(weights) - 2, self.most), weights))

        return keep

    def record(self, n: int) -> Record | None:
        if len(self.calls) > self.module.num_layers * (1 + self.module.bidirectional):
            raise Unsupported("an LSTM that is called twice")
        places = {id(p): i for i, p in enumerate(self.parameters)}
        parts = [(record, [places[id(p)] for p in weights]) for call in self.calls for record, weights in call]
        return Several(parts, [p.numel() for p in self.parameters], n) if parts else None


def _even(
    x: Tensor, h: Tensor, c: Tensor, w: Tensor, u: Tensor, bias: Tensor | None, keep: Keep
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Keep]:
    """The same layer with inputs and units of even number (`ghost_modules.EVEN`): units without weights stay at zero."""
    size, inside = u.shape[1], x.shape[2]
    more, rest = short(size), short(inside)

    def gates(t: Tensor, columns: int) -> Tensor:
        return F.pad(t.view(4, size, -1), (0, columns, 0, more)).flatten(0, 1)

    def kept(x: Tensor, states: Tensor, d: Tensor) -> None:
        steps, n = d.shape[:2]
        d = d.view(steps, n, 4, size + more)[..., :size].reshape(steps, n, 4 * size)
        keep(x[..., :inside], states[..., :size], d)

    wide = None if bias is None else gates(bias, 0)[:, 0]
    return F.pad(x, (0, rest)), F.pad(h, (0, more)), F.pad(c, (0, more)), gates(w, rest), gates(u, more), wide, kept


class Several(Record):
    """The records of the layers of one module, put back in the order of its parameters."""

    def __init__(self, parts: list[tuple[Record, list[int]]], sizes: list[int], n: int) -> None:
        self.parts, self.sizes, self.n = parts, sizes, n

    @cached_property
    def squares(self) -> list[Tensor]:  # type: ignore[override]
        return self._gather([r.squares for r, _ in self.parts], lambda t, _: t.new_zeros(self.n))

    def _gather(self, answers: list[list[Tensor]], missing: Any) -> list[Tensor]:
        found = {place: t for (_, places), ts in zip(self.parts, answers) for place, t in zip(places, ts)}
        like = answers[0][0]
        return [found[i] if i in found else missing(like, size) for i, size in enumerate(self.sizes)]

    def weighted(self, factors: list[Tensor]) -> list[Tensor]:
        answers = [r.weighted([factors[i] for i in places]) for r, places in self.parts]
        return self._gather(answers, lambda t, size: t.new_zeros(size))

    def rows(self) -> list[Tensor]:
        return self._gather([r.rows() for r, _ in self.parts], lambda t, size: t.new_zeros(self.n, size))

    def squared_sums(self, real: int) -> list[Tensor]:
        return self._gather([r.squared_sums(real) for r, _ in self.parts], lambda t, size: t.new_zeros(size))

    def drop(self, bad: Tensor) -> None:
        for r, _ in self.parts:
            r.drop(bad)
