"""Per-example gradients of a convolution (see `ghost_layers`): a dense layer on the windows of its input."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sordino.gradients import products, sums
from sordino.gradients.formed import Formed, blocks
from sordino.gradients.ghost_layers import Record, direct_pays, ghost, zeroed

_MANY = 4  # blocks that are unfolded at a time for a sum: it is read and written once for each of them


class Convolution(Record):
    """One call of a convolution. The unfolded input exists for a few examples at a time only."""

    def __init__(self, layer: nn.Conv1d | nn.Conv2d, x: Tensor, g: Tensor, examples: int) -> None:
        self.layer, self.x, self.g, self.n = layer, x, g, examples
        self.images = x.shape[0] // examples  # per example
        self.t, self.k = self.images * math.prod(g.shape[2:]), math.prod(layer.weight.shape[1:])
        self.o = layer.out_channels // layer.groups
        self.has_weight = layer.weight.requires_grad
        self.has_bias = layer.bias is not None and layer.bias.requires_grad
        self.flip = not _channels_last(x)  # then positions are what is contiguous
        self.kept: Formed | None = None
        self.squares = []
        self.sums = g.flatten(2).sum(2).view(examples, self.images, -1).sum(1) if self.has_bias else g.new_empty(0)
        if self.has_weight and direct_pays(self.t, self.k, self.o):
            self.kept = self._gradients()
            self.squares.append(self.kept.squares)
        elif self.has_weight:
            parts = [ghost([a], g)[0].view(-1, layer.groups).sum(1) for _, a, g in self._matrices(4 * self.t**2)]
            self.squares.append(torch.cat(parts))
        if self.has_bias:
            self.squares.append(sums.squares(self.sums))
        if self.kept is not None or not self.has_weight:
            self.x = self.g = g.new_empty(0)  # done with

    def weighted(self, factors: list[Tensor]) -> list[Tensor]:
        out = []
        if self.has_weight:
            out.append(self._product(factors[0]) if self.kept is None else self.kept.weighted(factors[0]))
        return out + ([sums.weighted(factors[-1], self.sums)] if self.has_bias else [])

    def rows(self) -> list[Tensor]:
        kept = self._gradients() if self.kept is None and self.has_weight else self.kept
        return ([] if kept is None else [kept.rows()]) + ([self.sums] if self.has_bias else [])

    def drop(self, bad: Tensor) -> None:
        if len(self.x):
            images = bad.repeat_interleave(self.images)
            self.x, self.g = zeroed(self.x, images), zeroed(self.g, images)
        if self.kept is not None:
            self.kept.drop(bad)
        self.sums = zeroed(self.sums, bad) if self.has_bias else self.sums

    def _gradients(self) -> Formed:
        formed = Formed(self.g, self.n, self.o, self.k, self.layer.groups, self.flip)
        for s, a, g in self._matrices(formed.least):
            formed.form(s, a, g)
        return formed

    def _matrices(self, extra: int, times: int = 1) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Slices of examples, unfolded input [examples * groups, T, K] and g [examples * groups, T, O]."""
        groups, images = self.layer.groups, self.images
        for s in blocks(self.n, self.t * self.k * groups + extra, times):
            window = slice(s.start * images, s.stop * images)
            g = self.g[window].flatten(2).transpose(1, 2)
            a = unfold(self.layer, self.x[window], tuple(self.g.shape[2:]), self.flip)
            if groups > 1 or images > 1:
                n = s.stop - s.start
                g = g.reshape(n, self.t, groups, self.o).transpose(1, 2).reshape(n * groups, self.t, self.o)
                a = a.reshape(n, self.t, groups, self.k).transpose(1, 2).reshape(n * groups, self.t, self.k)
            yield s, a if groups > 1 or images > 1 else a.squeeze(2), g

    def _product(self, factors: Tensor) -> Tensor:
        """The weighted sum of gradients that are not kept, a few unfolded examples at a time."""
        groups = self.layer.groups
        out = self.g.new_zeros(groups, self.o, self.k, dtype=torch.float64)
        if products.ready(self.g):
            for s, a, g in self._matrices(0, _MANY):
                for j in range(groups):
                    products.add_outer(out[j], factors[s], g[j::groups], a[j::groups])
            return out.flatten()
        for s, a, g in self._matrices(0):
            g64 = g.double() * factors[s].repeat_interleave(groups)[:, None, None]
            for j in range(groups):
                out[j].addmm_(g64[j::groups].flatten(0, 1).t(), a[j::groups].double().flatten(0, 1))
        return out.flatten()


def padded(layer: nn.Conv1d | nn.Conv2d, x: Tensor) -> Tensor:
    """The input with the layer's padding around it."""
    if layer.padding_mode != "zeros":
        return F.pad(x, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)
    if isinstance(layer.padding, str):  # "same" or "valid"
        return F.pad(x, layer._reversed_padding_repeated_twice)
    if any(layer.padding):
        return F.pad(x, [p for p in reversed(layer.padding) for _ in range(2)])
    return x


def unfold(layer: nn.Conv1d | nn.Conv2d, x: Tensor, out: tuple[int, ...], flip: bool) -> Tensor:
    """Windows of the input [images, T, groups, K], K in the order of the weight (channels last in two dimensions).

    `flip` makes positions, not entries, contiguous in memory: the faster copy unless the input is channels-last.
    """
    x = padded(layer, x)
    n, channels = x.shape[:2]
    inside = channels // layer.groups
    one = isinstance(layer, nn.Conv1d)
    kernel, stride, dilation = layer.kernel_size, layer.stride, layer.dilation
    s = x.stride()
    entries = tuple((k, st * d) for k, st, d in zip(kernel, s[2:], dilation))
    within = ((inside, s[1]), *entries) if one else (*entries, (inside, s[1]))
    positions = tuple((o, st * step) for o, st, step in zip(out, s[2:], stride))
    group = (layer.groups, s[1] * inside)
    dims = ((n, s[0]), group, *within, *positions) if flip else ((n, s[0]), *positions, group, *within)
    view = x.as_strided([d[0] for d in dims], [d[1] for d in dims], x.storage_offset())
    t, k = math.prod(out), inside * math.prod(kernel)
    if flip:
        return view.reshape(n, layer.groups, k, t).permute(0, 3, 1, 2)
    return view.reshape(n, t, layer.groups, k)


def _channels_last(x: Tensor) -> bool:
    return x.dim() == 4 and x.shape[1] > 1 and x.stride(1) == 1
