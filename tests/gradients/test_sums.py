"""Norms and sums in double precision, with the kernels and without."""

from __future__ import annotations

import pytest
import torch

from sordino.gradients import sums


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("n", "d", "o"), [(1, 1, 1), (5, 37, 3), (16, 32, 5), (130, 1500, 11), (7, 9, 70), (3, 0, 2)])
def test_equal_to_the_obvious(n, d, o, native, monkeypatch):
    if not native:
        monkeypatch.setattr(sums, "library", lambda: None)
    torch.manual_seed(0)
    x, g, f = torch.randn(n, d), torch.randn(n, o), torch.rand(n, dtype=torch.float64)
    torch.testing.assert_close(sums.squares(x), x.double().square().sum(1))
    torch.testing.assert_close(sums.weighted(f, x), f @ x.double())
    before = torch.arange(d, dtype=torch.float64)
    sums.add_squares(after := before.clone(), x)
    torch.testing.assert_close(after, before + x.double().square().sum(0))
    torch.testing.assert_close(sums.outer(f, g, x), (g.double() * f[:, None]).t() @ x.double())


@pytest.mark.parametrize("native", [True, False])
def test_rows_with_the_factor_zero_may_hold_anything(native, monkeypatch):
    if not native:
        monkeypatch.setattr(sums, "library", lambda: None)
    x = torch.ones(6, 40)
    x[1], x[4] = float("nan"), float("inf")
    f = torch.tensor([1.0, 0, 2, 3, 0, 4], dtype=torch.float64)
    assert torch.equal(sums.weighted(f, x), torch.full((40,), 10.0, dtype=torch.float64))
    assert not torch.isfinite(sums.squares(x)[[1, 4]]).any()
