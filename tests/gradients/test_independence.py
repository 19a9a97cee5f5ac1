"""Proofs that examples do not mix: what must be proven, and what must not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sordino.gradients.independence import Mixes, prove
from sordino.gradients.rewrite import trace


class Model(nn.Module):
    """A layer, and what a test does around it."""

    def __init__(self, does: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.does = nn.Linear(6, 6), does

    def forward(self, x):
        return self.does(self.layer, x)


def _overlap(f, x):
    y = x.clone()
    y[1:].add_(x[:-1])  # through a view of the same memory
    return f(y)


def _behind_a_view(f, x):
    z = torch.zeros_like(x)
    z.view(-1, 6)[1:].copy_(x[:-1])
    return f(x) + z


APART = {
    "relu": lambda f, x: F.relu(f(x)),
    "in place": lambda f, x: F.relu_(f(x)),
    "view": lambda f, x: f(x.view(x.shape[0], 2, 3).flatten(1)),
    "softmax of classes": lambda f, x: F.softmax(f(x), dim=1),
    "norm of each": lambda f, x: f(x) / x.norm(dim=1, keepdim=True),
    "mean of each": lambda f, x: x - f(x).mean(1, keepdim=True),
    "transposed twice": lambda f, x: f(x).t().t(),
    "powers": lambda f, x: F.gelu(f(x)) + x**2,
    "cat": lambda f, x: f(torch.cat([x[:, :3], x[:, 3:]], 1)),
    "flipped entries": lambda f, x: f(x.flip(1)),
    "dropout": lambda f, x: F.dropout(f(x), 0.5, True),
    "inner product": lambda f, x: torch.einsum("bi,bi->b", f(x), x)[:, None],
    "products of each": lambda f, x: torch.bmm(f(x)[:, None], x[:, :, None]).flatten(1),
    "where": lambda f, x: torch.where(x > 0, f(x), x),
    "fixed batch size": lambda f, x: f(x) / x.shape[0],
    "standardised": lambda f, x: (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True) + f(x),
    "noise": lambda f, x: f(x + torch.rand_like(x)),
    "columns": lambda f, x: f(x)[:, [0, 2]],
}
MIXED = {
    "mean": lambda f, x: f(x - x.mean(0)),
    "softmax of examples": lambda f, x: F.softmax(f(x), dim=0),
    "cumsum": lambda f, x: f(x).cumsum(0),
    "flip": lambda f, x: f(x) + x.flip(0),
    "roll": lambda f, x: f(x.roll(1, 0)),
    "flip of outputs": lambda f, x: f(x).flip(0),
    "the first": lambda f, x: f(x) + x[0],
    "sum of all": lambda f, x: f(x) / x.sum(),
    "products of examples": lambda f, x: f(x) @ x.t(),
    "sort": lambda f, x: f(x).sort(0).values,
    "batch norm": lambda f, x: F.batch_norm(f(x), None, None, training=True),
    "reshape": lambda f, x: f(x.t().reshape(x.shape)),
    "overlap": _overlap,
    "behind a view": _behind_a_view,
    "a layer on constants": lambda f, x: x + f(torch.ones_like(x)).flip(0),
    "coins of others": lambda f, x: f(x) + torch.bernoulli(x.sigmoid().flip(0)),
    "variance": lambda f, x: f(x) / x.var(0),
    "maximum": lambda f, x: f(x) + x.amax(0),
    "attention": lambda f, x: F.scaled_dot_product_attention(x[None], x[None], f(x)[None])[0],
    "unknown": lambda f, x: f(x) + torch.unique(x).sum(),
}


@pytest.mark.parametrize("name", APART)
def test_examples_that_are_apart_are_proven(name):
    traced = trace(Model(APART[name]))
    assert traced is not None
    prove(traced, torch.randn(8, 6))


@pytest.mark.parametrize("name", MIXED)
def test_examples_that_mix_are_not(name):
    traced = trace(Model(MIXED[name]))
    assert traced is not None
    with pytest.raises(Mixes):
        prove(traced, torch.randn(8, 6))


def test_code_of_the_users_is_never_proven():
    class Sub(nn.Linear):
        pass

    Sub.__module__ = "torch.nn.modules.linear"  # so that tracing takes it for a layer of PyTorch
    traced = trace(nn.Sequential(Sub(6, 6)))
    assert traced is not None
    with pytest.raises(Mixes, match="not a layer of PyTorch"):
        prove(traced, torch.randn(8, 6))
    traced = trace(nn.Sequential(nn.Linear(6, 6)))
    assert traced is not None
    traced.get_submodule("0").register_forward_hook(lambda m, i, o: o.flip(0))
    with pytest.raises(Mixes, match="hook"):
        prove(traced, torch.randn(8, 6))
