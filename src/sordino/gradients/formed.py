"""Gradients of one matrix for every example of a chunk, formed, measured, and kept until their factors are known.

They are kept in pieces of some megabytes: a larger block of memory would go back to the system after every pass and come anew, page by
page. The kernel of `products` measures a gradient while it is still in registers; without it a library forms a few at a time, which are
measured before they leave the cache.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from sordino.gradients import products, sums

_BLOCK = 1 << 19  # floats of unfolded input or Gram matrices alive at a time: about a second-level cache
_PIECES = 8  # blocks in a piece


def blocks(examples: int, floats: int, times: int = 1) -> Iterator[slice]:
    """Slices of examples that need about `_BLOCK` floats each, or some times that; powers of two, whatever the machine."""
    step = _step(times * _BLOCK, floats)
    for start in range(0, examples, step):
        yield slice(start, min(start + step, examples))


def _step(room: int, floats: int) -> int:
    return 1 << max(0, (room // max(1, floats)).bit_length() - 1)


class Formed:
    """The gradients of `groups` matrices [O, K] each, kept as [O, K] or, if they are `turned`, as [K, O].

    `like` is a tensor of their kind. With `flip`, positions lie one after the other, and not entries: a case for the library.
    """

    def __init__(self, like: Tensor, n: int, o: int, k: int, groups: int = 1, flip: bool = False) -> None:
        self.n, self.o, self.k, self.groups = n, o, k, groups
        self.own = products.ready(like) and not flip
        # The library's faster way round if rows fill registers; the kernel's if they fill tiles.
        self.turned = not products.upright(o, k) if self.own else flip and o % 16 == 0
        self.step, entries = _step(_PIECES * _BLOCK, groups * o * k), groups * o * k
        self.pieces = [like.new_empty(min(self.step, n - i), entries) for i in range(0, n, self.step)]
        self.squares = like.new_empty(n, dtype=torch.float64)

    @property
    def least(self) -> int:
        """So many floats an example must be counted for in `blocks`, so that every slice lies in one piece."""
        return self.groups * self.o * self.k // _PIECES + 1

    def form(self, s: slice, a: Tensor, g: Tensor) -> None:
        """Those of a slice of examples, from a [examples * groups, T, K] and g [examples * groups, T, O]."""
        left, right = (a, g) if self.turned else (g, a)
        first = s.start % self.step
        rows = self.pieces[s.start // self.step][first : first + s.stop - s.start]
        if not self.own:
            torch.bmm(left.transpose(1, 2), right, out=rows.view(len(g), left.shape[2], right.shape[2]))
            self.squares[s] = sums.squares(rows)
            return
        lengths = self.squares[s] if self.groups == 1 else self.squares.new_empty(len(g))
        products.outer_each(left, right, rows, lengths)
        if self.groups > 1:
            self.squares[s] = lengths.view(-1, self.groups).sum(1)

    def weighted(self, factors: Tensor) -> Tensor:
        """Their sum under factors, as doubles."""
        out = self.pieces[0].new_zeros(self.pieces[0].shape[1], dtype=torch.float64)
        for piece, f in zip(self.pieces, factors.split(self.step)):
            sums.add_weighted(out, f, piece)
        return self._order(out)

    def rows(self) -> Tensor:
        """The gradients themselves [n, entries]."""
        return self._order(torch.cat(self.pieces))

    def drop(self, bad: Tensor) -> None:
        """Set those of the examples of the mask to zero."""
        for piece, some in zip(self.pieces, bad.split(self.step)):
            piece[some] = 0.0

    def _order(self, t: Tensor) -> Tensor:
        """From the way round of the product to that of the weight."""
        if not self.turned:
            return t
        return t.view(*t.shape[:-1], self.groups, self.k, self.o).transpose(-1, -2).reshape(t.shape)
