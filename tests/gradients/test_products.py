"""Products in which no row touches another, with the kernels and without, against the obvious ones in double precision."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sordino.gradients import formed, lstm_steps, products, sums
from sordino.gradients.formed import Formed, blocks

needed = pytest.mark.skipif(not products.ready(torch.zeros(1)), reason="no kernels for this processor")


@pytest.fixture(params=["native", "torch"])
def way(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(products, "library", lambda: None)
    elif not products.ready(torch.zeros(1)):
        pytest.skip("no kernels for this processor")


def _noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize(("n", "k", "o"), [(1, 1, 1), (3, 7, 5), (8, 16, 32), (70, 33, 31), (130, 256, 80)])
def test_linear_is_the_obvious_product(way, n, k, o):
    x, w, b = _noise(2, n, k), _noise(o, k + 2)[:, 1:-1], _noise(o)
    for bias in (None, b):
        want = x.double() @ w.double().t() + (0 if bias is None else b.double())
        torch.testing.assert_close(products.linear(x, w, bias).double(), want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("n", "t", "o", "k"), [(1, 1, 1, 1), (5, 9, 3, 40), (7, 20, 40, 3), (9, 4, 16, 33)])
def test_gradients_are_the_obvious_sums_over_positions(way, monkeypatch, n, t, o, k, groups):
    monkeypatch.setattr(formed, "_BLOCK", 64)  # so that there are several pieces
    g, a = _noise(n * groups, t, o), _noise(t, n * groups, k).transpose(0, 1)
    want = (g.double().transpose(1, 2) @ a.double()).reshape(n, -1)
    made, f = Formed(a, n, o, k, groups), torch.arange(n, dtype=torch.float64)
    for s in blocks(n, made.least):
        both = slice(s.start * groups, s.stop * groups)
        made.form(s, a[both], g[both])
    torch.testing.assert_close(made.rows().double(), want, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(made.squares, made.rows().double().square().sum(1), rtol=1e-14, atol=0)
    torch.testing.assert_close(made.weighted(f), f @ made.rows().double(), rtol=1e-12, atol=1e-12)
    made.drop(f == n - 1)
    assert not made.rows()[-1].any() and (n == 1 or made.rows()[-2].any())


@pytest.mark.parametrize(("steps", "n", "size"), [(1, 1, 1), (3, 5, 7), (6, 70, 16)])
def test_all_steps_are_those_of_the_layer(way, steps, n, size):
    torch.manual_seed(0)
    layer = nn.LSTM(3, size).double()
    x, above = _noise(steps, n, 3), _noise(steps, n, size)
    w, u, *biases = [p.detach().float() for p in layer.parameters()]
    gates, d = products.linear(x, w, biases[0] + biases[1]), torch.empty(steps, n, 4 * size)
    states, cells, squashed = (torch.zeros(steps + more, n, size) for more in (1, 1, 0))
    lstm_steps.forward(gates, u, states, cells, squashed)
    dh, dc = torch.zeros(n, size), torch.zeros(n, size)
    lstm_steps.backward(gates, u, cells, squashed, above, dh, dc, d)
    (wide := x.double()).requires_grad_()
    h, c = torch.zeros(1, n, size, dtype=torch.float64), torch.zeros(1, n, size, dtype=torch.float64)
    out, (_, end) = layer(wide, (h.requires_grad_(), c.requires_grad_()))
    first = torch.autograd.grad(out, [h, c, wide, layer.bias_ih_l0], above.double())
    for got, want in zip([dh[None], dc[None], d @ w, d.sum((0, 1)), states[1:], cells[-1:]], [*first, out, end]):
        torch.testing.assert_close(got.double(), want.detach(), rtol=1e-4, atol=1e-5)


@needed
@pytest.mark.parametrize(("n", "t", "o", "k"), [(1, 1, 1, 1), (5, 9, 3, 40), (70, 20, 40, 3), (9, 300, 16, 33)])
def test_sums_of_what_is_not_formed_are_the_obvious_ones(n, t, o, k):
    g, a, f = _noise(n, t, o), _noise(t, n, k).transpose(0, 1), torch.arange(n, dtype=torch.float64)
    out = _noise(o, k).double()
    want = out + ((f[:, None, None] * g.double()).flatten(0, 1).t() @ a.double().flatten(0, 1))
    products.add_outer(out, f, g, a)
    torch.testing.assert_close(out, want, rtol=1e-12, atol=1e-11)


@needed
def test_a_gradient_is_measured_as_it_is_stored():
    """In double precision, to the last bits, also where single precision would over- or underflow."""
    for scale in (1e-30, 1.0, 1e18):
        g, a = _noise(3, 11, 21) * scale, _noise(3, 11, 19)
        made = Formed(a, 3, 21, 19)
        made.form(slice(0, 3), a, g)
        torch.testing.assert_close(made.squares, sums.squares(made.rows()), rtol=1e-14, atol=0)
