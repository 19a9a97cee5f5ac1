"""Attacks on products of our own: what stands beside a row, how many rows there are, and where it lies must not reach its bits.

A library's product may take a row through other code at the edge of a tile, or at another alignment. These kernels must not.
"""

from __future__ import annotations

import pytest
import torch

from sordino.gradients import lstm_steps, products
from sordino.gradients.formed import Formed

if not products.ready(torch.zeros(1)):
    pytest.skip("no kernels for this processor", allow_module_level=True)

CROWDS = (float("nan"), float("inf"), 1e30, 0.0)


def _noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _among(one: torch.Tensor, n: int, place: int, crowd: float, at: int = 0) -> torch.Tensor:
    """The record at `place` of n along dimension `at`, in memory that begins off by four bytes every second time."""
    shape = [*one.shape[:at], n, *one.shape[at:]]
    room = torch.full((one.numel() * n + 1,), crowd)[n % 2 :][: one.numel() * n].view(shape)
    room.select(at, place).copy_(one)
    return room


def _places(n: int) -> set[int]:
    return {0, n // 2, n - 1}


@pytest.mark.parametrize(("k", "o"), [(1, 3), (7, 33), (40, 16), (64, 95)])
def test_no_bit_of_a_row_of_a_product_depends_on_the_others(k, o):
    row, w, bias = _noise(k), _noise(o, k), _noise(o)
    want = products.linear(row[None], w, bias)[0]
    for n in (1, 2, 3, 7, 8, 9, 31, 63, 64, 65, 130):
        for place in _places(n):
            for crowd in CROWDS:
                assert torch.equal(products.linear(_among(row, n, place, crowd), w, bias)[place], want)


@pytest.mark.parametrize(("t", "o", "k"), [(1, 1, 1), (5, 3, 40), (6, 40, 3), (20, 24, 33), (3, 32, 32)])
def test_no_bit_of_a_gradient_depends_on_the_others(t, o, k):
    """Its entries and its length; position first in memory, as an LSTM has it, or example first."""
    g, a = _noise(t, o), _noise(t, k)
    alone = Formed(a, 1, o, k)
    alone.form(slice(0, 1), a[None], g[None])
    for n in (1, 2, 5, 8, 17):
        for place in _places(n):
            for at, crowd in zip((0, 1, 0, 1), CROWDS):
                made = Formed(a, n, o, k)
                wide = [_among(one, n, place, crowd, at) for one in (a, g)]
                made.form(slice(0, n), *[one.transpose(0, 1) if at else one for one in wide])
                assert torch.equal(made.rows()[place], alone.rows()[0])
                assert made.squares[place] == alone.squares[0]


@pytest.mark.parametrize(("t", "o", "k"), [(1, 1, 1), (5, 3, 40), (6, 40, 3), (300, 24, 33)])
def test_no_bit_of_a_sum_depends_on_those_that_do_not_enter_it(t, o, k):
    """Free slots, and records that were dropped: their number, their place and what they hold."""
    g, a = _noise(t, o), _noise(t, k)
    want = torch.zeros(o, k, dtype=torch.float64)
    products.add_outer(want, torch.tensor([0.3], dtype=torch.float64), g[None], a[None])
    for n in (1, 2, 5, 8, 17):
        for place in _places(n):
            for at, crowd in zip((0, 1, 0, 1), CROWDS):
                wide = [_among(one, n, place, crowd, at) for one in (g, a)]
                out, f = torch.zeros_like(want), torch.zeros(n, dtype=torch.float64)
                f[place] = 0.3
                products.add_outer(out, f, *[one.transpose(0, 1) if at else one for one in wide])
                assert torch.equal(out, want)


@pytest.mark.parametrize("size", [1, 5, 16, 21])
def test_no_bit_of_a_sequence_depends_on_the_others(size):
    steps, u = 6, 0.3 * _noise(4 * size, size)
    gates, above, h, c = _noise(steps, 4 * size), _noise(steps, size), _noise(size), _noise(size)

    def run(n: int, place: int, crowd: float) -> list[torch.Tensor]:
        z, up = _among(gates, n, place, crowd, 1), _among(above, n, place, crowd, 1)
        states, cells, squashed = (torch.zeros(steps + more, n, size) for more in (1, 1, 0))
        states[0], cells[0] = _among(h, n, place, crowd), _among(c, n, place, crowd)
        lstm_steps.forward(z, u, states, cells, squashed)
        dh, dc, d = torch.zeros(n, size), torch.zeros(n, size), torch.empty(steps, n, 4 * size)
        lstm_steps.backward(z, u, cells, squashed, up, dh, dc, d)
        return [t.select(-2, place) for t in (z, states, cells, squashed, dh, dc, d)]

    want = run(1, 0, 0.0)
    for n in (2, 7, 8, 9, 33, 65):
        for place in _places(n):
            for crowd in CROWDS:
                assert all(torch.equal(got, w) for got, w in zip(run(n, place, crowd), want))
