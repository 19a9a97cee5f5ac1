"""Per-example gradients of one layer: their norms and weighted sums, formed or not.

The gradient of a dense or convolutional layer for one example is a sum over positions t of outer products
``sum_t g_t a_t'`` of what entered the layer (a) and the loss gradient at its output (g). Two ways to its norm:

- *ghost* (Goodfellow 2015; Li et al. 2022, eq. 3): ``sum_ts <a_t, a_s> <g_t, g_s>``, which never forms the gradient:
  T^2 (K + O) products for T positions of K inputs and O outputs. For T = 1 it is ``|a|^2 |g|^2``.
- *direct*: one small matrix product per example, kept until the factors are known: K O numbers of memory.

Each layer takes the cheaper one (mixed ghost clipping, Bu et al. 2022). Either way one forward and one backward pass
serve both the norms and the clipped sum (book-keeping, Bu et al. 2023), and the backward pass computes no weight
gradients at all.

A record answers, for the examples of one chunk: the squared norm for each parameter tensor, the sum of gradients
weighted by given factors, and the gradients themselves. Norms are taken when it is made, in the midst of the backward
pass, so that a layer whose gradients are kept lets go of a and g at once. Entries are in the order of
`sordino.gradients.flat`.

Norms are upper bounds, and weighted sums are those of what was measured, both in double precision (`sums`). A gradient
that is formed is measured as it is, whatever rounding went into it. A gradient that is not formed is a sum over positions,
and positions may cancel: with A = sum_t |a_t| |g_t| its Gram product is right to (K + O + T^2) 2^-53 A^2, and the rounding
of its weighted sum is relative to A too. So `CANCEL` A^2 is added to its squared norm. This covers the first error for
every layer with K + O + T^2 < 2^31, and an example never enters a sum with terms of more than 2^11 times its bound.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import torch
from torch import Tensor

from sordino.gradients import products, sums
from sordino.gradients.formed import Formed, blocks

KEEP = 1 << 18  # gradients of at least this many entries per example are never kept for a whole chunk
_PASSES = 128  # products in single precision that cost as much as writing one kept entry and reading it twice
CANCEL = 2.0**-22  # of (sum of lengths of terms)^2, added to the squared norm of a gradient that is not formed


def direct_pays(t: int, k: int, o: int, most: int = KEEP) -> bool:
    """Whether keeping K x O gradients is cheaper than not forming them. A function of shapes alone.

    Either way there is a product of T K O. What is not formed needs it in double precision, at twice the price, and so
    T x T Gram matrices before.
    """
    return t > 1 and k * o < most and t * k * o + 2 * t * t * (k + o) > _PASSES * k * o


class Record(ABC):
    """The gradients of one layer for every example of a chunk.

    `squares` are upper bounds of their squared norms [examples], doubles, one tensor per parameter.
    """

    squares: list[Tensor]

    @abstractmethod
    def weighted(self, factors: list[Tensor]) -> list[Tensor]:
        """Sums over examples of factor times gradient, factors and sums in double precision, one per parameter.

        Every example must be finite (see `drop`).
        """

    @abstractmethod
    def rows(self) -> list[Tensor]:
        """The gradients [examples, entries], one tensor per parameter."""

    @abstractmethod
    def drop(self, bad: Tensor) -> None:
        """Make the examples of the mask `bad` contribute nothing, even where they hold NaN."""

    def squared_sums(self, real: int) -> list[Tensor]:
        """Sums over the first `real` examples of squared entries, in double precision, one per parameter."""
        return [rows[:real].square().sum(0, dtype=torch.float64) for rows in self.rows()]


class Rows(Record):
    """Gradients that are simply kept."""

    def __init__(self, gradients: list[Tensor]) -> None:
        self.gradients = gradients
        self.squares = [sums.squares(g) for g in gradients]

    def weighted(self, factors: list[Tensor]) -> list[Tensor]:
        return [sums.weighted(f, g) for f, g in zip(factors, self.gradients)]

    def rows(self) -> list[Tensor]:
        return self.gradients

    def drop(self, bad: Tensor) -> None:
        self.gradients = [zeroed(g, bad) for g in self.gradients]


def dense(inputs: list[Tensor], g: Tensor, biases: int, most: int = KEEP) -> Record:
    """Weights and biases that share one g [examples, T, O]; inputs are [examples, T, K]."""
    return Outer(inputs, g, biases) if g.shape[1] == 1 else Dense(inputs, g, biases, most)


class Outer(Record):
    """One position: gradients are outer products of g [examples, 1, O] and inputs [examples, 1, K]."""

    def __init__(self, inputs: list[Tensor], g: Tensor, biases: int) -> None:
        self.g, self.biases = g, biases
        self._inputs, self._g = [a.flatten(1) for a in inputs], g.flatten(1)

    @cached_property
    def squares(self) -> list[Tensor]:  # type: ignore[override]
        length = sums.squares(self._g)
        return [sums.squares(a).mul_(length) for a in self._inputs] + [length] * self.biases

    def weighted(self, factors: list[Tensor]) -> list[Tensor]:
        whole = [sums.outer(f, self._g, a) for f, a in zip(factors, self._inputs)]
        return whole + [sums.weighted(f, self._g) for f in factors[len(self._inputs) :]]

    def rows(self) -> list[Tensor]:
        return [(self._g[:, :, None] * a[:, None]).flatten(1) for a in self._inputs] + [self._g] * self.biases

    def squared_sums(self, real: int) -> list[Tensor]:
        g = self._g[:real].square()  # the square of an outer product is that of the squares
        own = g.sum(0, dtype=torch.float64)
        return [(g.t() @ a[:real].square()).double() for a in self._inputs] + [own] * self.biases

    def drop(self, bad: Tensor) -> None:
        self._inputs, self.g = [zeroed(a, bad) for a in self._inputs], zeroed(self.g, bad)
        self._g = self.g.flatten(1)


class Dense(Record):
    """Several positions: a dense layer on a sequence, or the matrices of a recurrent one (see `dense`)."""

    def __init__(self, inputs: list[Tensor], g: Tensor, biases: int, most: int = KEEP) -> None:
        self.inputs, self.g, self.biases, self.most = inputs, g, biases, most
        self.sums = g.sum(1)

    @cached_property
    def formed(self) -> list[Formed | None]:
        """Gradients of the weights that are cheaper to keep; squared entries alone need none."""
        t, o = self.g.shape[1:]
        return [self._form(a) if direct_pays(t, a.shape[2], o, self.most) else None for a in self.inputs]

    def _form(self, a: Tensor) -> Formed:
        n, _, o = self.g.shape
        formed = Formed(a, n, o, a.shape[2])
        for s in blocks(n, o * a.shape[2]):
            formed.form(s, a[s], self.g[s])
        return formed

    @cached_property
    def squares(self) -> list[Tensor]:  # type: ignore[override]
        n, t, _ = self.g.shape
        others = [a for a, formed in zip(self.inputs, self.formed) if formed is None]
        parts = [ghost([a[s] for a in others], self.g[s]) for s in blocks(n, 4 * t * t)] if others else []
        found = iter([torch.cat(p) for p in zip(*parts)])
        own = [sums.squares(self.sums)] * self.biases if self.biases else []
        return [next(found) if formed is None else formed.squares for formed in self.formed] + own

    def weighted(self, factors: list[Tensor]) -> list[Tensor]:
        whole = [
            self._product(f, a) if formed is None else formed.weighted(f)
            for a, formed, f in zip(self.inputs, self.formed, factors)
        ]
        return whole + [sums.weighted(f, self.sums) for f in factors[len(self.inputs) :]]

    def _product(self, factors: Tensor, a: Tensor) -> Tensor:
        out = a.new_zeros(self.g.shape[2], a.shape[2], dtype=torch.float64)
        if products.ready(a):
            products.add_outer(out, factors, self.g, a)
            return out
        for s in blocks(len(a), 2 * a.shape[1] * (a.shape[2] + self.g.shape[2])):
            g64, a64 = self.g[s].double() * factors[s, None, None], a[s].double()
            out.addmm_(g64.flatten(0, 1).t(), a64.flatten(0, 1))
        return out

    def rows(self) -> list[Tensor]:
        return [torch.bmm(self.g.transpose(1, 2), a).flatten(1) for a in self.inputs] + [self.sums] * self.biases

    def squared_sums(self, real: int) -> list[Tensor]:
        own = self.sums[:real].square().sum(0, dtype=torch.float64)
        return [self._squared(a, real) for a in self.inputs] + [own] * self.biases

    def _squared(self, a: Tensor, real: int) -> Tensor:
        """Gradients of a few examples at a time, so that they never leave the cache."""
        o, k = self.g.shape[2], a.shape[2]
        out = a.new_zeros(o * k, dtype=torch.float64)
        for s in blocks(real, o * k):
            sums.add_squares(out, torch.bmm(self.g[s].transpose(1, 2), a[s]).flatten(1))
        return out

    def drop(self, bad: Tensor) -> None:
        self.inputs, self.g = [zeroed(a, bad) for a in self.inputs], zeroed(self.g, bad)
        self.sums = zeroed(self.sums, bad)
        for formed in vars(self).get("formed", ()):  # if there are none yet, they will be made of what was zeroed here
            if formed is not None:
                formed.drop(bad)


class Lookup(Record):
    """The rows of an embedding that the examples looked up: indices [examples, T] and g [examples, T, D]."""

    def __init__(self, indices: Tensor, g: Tensor, rows: int) -> None:
        self.indices, self.g, self.count = indices, g, rows
        n, t, d = g.shape
        if t == 1:
            self.squares = [sums.squares(g.flatten(1))]
            return
        most = sums.squares(g.flatten(0, 1)).sqrt().view(n, t).sum(1).square()
        if rows * d < KEEP and 8 * rows <= t * t:
            found = [self._scatter(s).flatten(1).square().sum(1) for s in blocks(n, 2 * rows * d)]
        else:
            found = [self._ghost(s) for s in blocks(n, 4 * t * t)]
        self.squares = [torch.cat(found).add_(most, alpha=CANCEL)]

    def _ghost(self, s: slice) -> Tensor:
        g, same = self.g[s].double(), self.indices[s, :, None] == self.indices[s, None, :]
        return (torch.bmm(g, g.transpose(1, 2)) * same).sum((1, 2)).clamp_min(0)

    def _scatter(self, s: slice) -> Tensor:
        n, t, d = self.g[s].shape
        first = torch.arange(n, device=self.g.device)[:, None] * self.count
        flat = self.g.new_zeros(n * self.count, d, dtype=torch.float64)
        places, g = (self.indices[s] + first).flatten(), self.g[s].flatten(0, 1).double()
        return flat.index_add_(0, places, g).view(n, self.count, d)

    def weighted(self, factors: list[Tensor]) -> list[Tensor]:
        g = (self.g.double() * factors[0][:, None, None]).flatten(0, 1)
        return [g.new_zeros(self.count, self.g.shape[2]).index_add_(0, self.indices.flatten(), g)]

    def rows(self) -> list[Tensor]:
        return [self._scatter(slice(0, self.g.shape[0])).flatten(1).float()]

    def drop(self, bad: Tensor) -> None:
        self.g = zeroed(self.g, bad)


def ghost(inputs: list[Tensor], g: Tensor) -> list[Tensor]:
    """Upper bounds of the squared norms of ``sum_t g_t a_t'`` for each a in `inputs`, by Gram matrices in double precision.

    Rounding is relative to (sum_t |a_t| |g_t|)^2, which bounds every partial sum, and not to the result, which may be a
    small difference: a share of that is added, so that no norm is understated (see the head of this file).
    """
    g = g.double()
    gram = torch.bmm(g, g.transpose(1, 2))
    lengths = gram.diagonal(dim1=1, dim2=2).sqrt()
    out = []
    for a in inputs:
        product = torch.bmm(a := a.double(), a.transpose(1, 2))
        most = (product.diagonal(dim1=1, dim2=2).sqrt() * lengths).sum(1).square()
        out.append(product.mul_(gram).sum((1, 2)).clamp_min_(0.0).add_(most, alpha=CANCEL))
    return out


def zeroed(t: Tensor, bad: Tensor) -> Tensor:
    """With the entries of bad examples set to zero."""
    return t.masked_fill(bad.view(-1, *(1,) * (t.dim() - 1)), 0.0)
