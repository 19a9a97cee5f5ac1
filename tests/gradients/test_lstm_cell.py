"""The cell of an LSTM, by the kernel and by PyTorch, against the formulas in double precision."""

from __future__ import annotations

import pytest
import torch

from sordino.gradients import lstm_cell
from sordino.native import library


@pytest.fixture(params=["native", "torch"])
def way(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(lstm_cell, "library", lambda: None)
    elif library() is None:
        pytest.skip("the kernels were not built")


def _inputs(n: int, size: int, scale: float = 2.0) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(n + size)
    return [scale * torch.randn(n, k * size, generator=g) for k in (4, 4, 1, 1, 1, 1)]


def _run(gates, more, before, above, later, dcells):
    """Gates, cells, squashed cells, states; then the gradients at the cells before and at the gates."""
    gates, dcells, outs = gates.clone(), dcells.clone(), [torch.empty_like(before) for _ in range(3)]
    lstm_cell.forward(gates, more, before, *outs)
    d = torch.empty_like(gates)
    lstm_cell.backward(gates, before, outs[1], above, later, dcells, d)
    return [gates, *outs, dcells, d]


def _obvious(gates, more, before, above, later, dcells):
    z = (gates.double() + more.double()).requires_grad_()
    c0 = before.double().requires_grad_()
    i, f, g, o = z.chunk(4, 1)
    gates = torch.cat([i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()], 1)
    i, f, g, o = gates.chunk(4, 1)
    cells = f * c0 + i * g
    states = o * cells.tanh()
    given = [above.double() + later.double(), dcells.double()]
    dc, d = torch.autograd.grad([states, cells], [c0, z], given)
    return [t.detach() for t in (gates, cells, cells.tanh(), states, dc, d)]


@pytest.mark.parametrize(("n", "size"), [(1, 1), (3, 7), (5, 8), (2, 9), (4, 37), (3, 256)])
def test_equal_to_the_formulas(way, n, size):
    for scale in (1e-4, 2.0):
        inputs = _inputs(n, size, scale)
        for got, want in zip(_run(*inputs), _obvious(*inputs)):
            torch.testing.assert_close(got.double(), want, rtol=2e-6, atol=1e-6 * scale)


def test_small_tangents_keep_their_digits(way):
    z = torch.zeros(1, 4 * 16)
    z[0, 32:48] = 10.0 ** -torch.arange(16.0)
    gates = _run(z, torch.zeros_like(z), *[torch.zeros(1, 16)] * 4)[0]
    torch.testing.assert_close(gates[0, 32:48].double(), z[0, 32:48].double().tanh(), rtol=3e-7, atol=0)


def test_what_is_far_out_is_at_the_limit_and_nan_stays(way):
    inf, nan = float("inf"), float("nan")
    far = torch.tensor([-inf, -1e38, -200.0, -90.0, 90.0, 200.0, 1e38, inf, nan])
    size = len(far)
    gates = _run(far.repeat(1, 4), torch.zeros(1, 4 * size), *[torch.zeros(1, size)] * 4)[0].view(4, size)
    for k, low in enumerate([0.0, 0.0, -1.0, 0.0]):
        want = torch.tensor([low] * 4 + [1.0] * 4)
        torch.testing.assert_close(gates[k, :8], want, rtol=0, atol=1e-37)
        assert gates[k, 8].isnan()


@pytest.mark.parametrize("size", [5, 16, 21])
def test_no_bit_of_a_row_depends_on_the_others(way, size):
    """Their number, what they hold, the row's place, and where the memory begins."""
    inputs = _inputs(1, size)
    want = _run(*inputs)
    for n in range(1, 19):
        for place, crowd in ((0, float("nan")), (n // 2, float("inf")), (n - 1, 1e30)):
            wide = []
            for one in inputs:
                room = torch.full((n * one.shape[1] + 1,), crowd)[n % 2 :]  # every second time off by four bytes
                room = room[: n * one.shape[1]].view(n, -1)
                room[place] = one[0]
                wide.append(room)
            assert all(torch.equal(got[place], w[0]) for got, w in zip(_run(*wide), want))
