"""Softmax regression in our own kernel, beside the obvious version."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sordino.gradients import softmax_head as room
from sordino.gradients.losses import cross_entropy, squared_error
from sordino.gradients.per_example import PerExample
from sordino.gradients.rewrite import trace
from sordino.gradients.softmax_head import SoftmaxHead, softmax_head
from sordino.models import build
from sordino.native import library
from sordino.privacy.bounds import Flat

pytestmark = pytest.mark.skipif(library() is None, reason="the kernels are not built")


def obvious(layer, x, y):
    """softmax - label, one example at a time, in double precision."""
    bias = 0.0 if layer.bias is None else layer.bias.detach().double()
    scores = [one.double() @ layer.weight.detach().double().t() + bias for one in x]
    return torch.stack([F.softmax(s, 0) - F.one_hot(t, len(s)) for s, t in zip(scores, y)])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n", "d", "o"), [(1, 1, 1), (5, 37, 3), (16, 32, 10), (7, 203, 11), (9, 8, 2), (6, 15, 64)])
def test_equal_to_the_obvious(n, d, o, bias):
    torch.manual_seed(0)
    layer, x, y = nn.Linear(d, o, bias=bias), torch.randn(n, d), torch.randint(0, o, (n,))
    record = SoftmaxHead(layer, False).record(x, y, n)
    torch.testing.assert_close(record.g[:, 0].double(), obvious(layer, x, y), atol=2e-6, rtol=2e-5)


def test_a_clipped_sum_is_that_of_a_loop():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(30, 4))
    x, y = torch.randn(70, 2, 15), torch.randint(0, 4, (70,))
    for made in (model, build("linear", (2, 15), 4)):
        assert softmax_head(trace(made), cross_entropy) is not None
        with torch.no_grad():
            for p in made.parameters():
                p.normal_()
        fast, slow = PerExample(made), PerExample(made, mode="loop")
        one, other = fast.clipped_sum(x, y, Flat(1.0)), slow.clipped_sum(x, y, Flat(1.0))
        np.testing.assert_allclose(one[0], other[0], atol=1e-4)
        np.testing.assert_allclose(one[1], other[1], rtol=1e-4, atol=1e-5)  # a library takes 1 from a softmax near 1


def test_an_example_has_the_same_bits_in_every_place_and_company():
    torch.manual_seed(0)
    layer = nn.Linear(101, 10)
    x, y = torch.randn(13, 101), torch.randint(0, 10, (13,))
    head = SoftmaxHead(layer, False)
    alone = [head.record(x[i : i + 1], y[i : i + 1], 1).g[0, 0] for i in range(13)]
    for count in range(1, 14):
        for shift in range(count):
            order = torch.arange(count).roll(shift)
            found = head.record(x[order], y[order], count).g[:, 0]
            assert all(torch.equal(found[i], alone[k]) for i, k in enumerate(order.tolist()))
    loud = x.clone()
    loud[1::2] = float("inf")
    found = head.record(loud, y, 13).g[:, 0]
    assert all(torch.equal(found[i], alone[i]) for i in range(0, 13, 2))


def test_what_has_no_gradient_adds_nothing():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 5))
    x, y = torch.randn(6, 20), torch.tensor([0, 5, 2, -100, 4, 1])
    x[4, 3] = float("nan")
    engine = PerExample(model)
    total, _ = engine.clipped_sum(x, y, Flat(1.0))
    good = [0, 2, 5]
    assert np.array_equal(total, engine.clipped_sum(x[good], y[good], Flat(1.0))[0])


def test_free_slots_have_no_gradient():
    record = SoftmaxHead(nn.Linear(6, 3), False).record(torch.zeros(8, 6), torch.zeros(8, dtype=torch.int64), 5)
    assert record.g[:5].any() and not record.g[5:].any()


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(x) + self.out(x)


def test_only_a_single_dense_layer_under_cross_entropy_is_taken(monkeypatch):
    def found(model, loss=cross_entropy):
        return softmax_head(trace(model), loss)

    assert found(nn.Sequential(nn.Linear(6, 3))) is not None and found(build("head", (6,), 3)) is not None
    assert found(nn.Sequential(nn.Linear(6, 3)), squared_error) is None
    assert found(nn.Sequential(nn.Linear(6, 3), nn.Tanh())) is None
    assert found(nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 3))) is None
    assert found(nn.Sequential(Doubled(6, 3))) is None and found(Twice()) is None
    assert found(nn.Sequential(nn.Linear(6, 65))) is None
    frozen = nn.Sequential(nn.Linear(6, 3))
    frozen[0].bias.requires_grad_(False)
    assert found(frozen) is None
    head = found(nn.Sequential(nn.Linear(6, 3)))
    assert head.takes(torch.zeros(2, 6), torch.zeros(2, dtype=torch.int64))
    assert not head.takes(torch.zeros(2, 4, 6), torch.zeros(2, 4, dtype=torch.int64))  # one loss for each position
    assert not head.takes(torch.zeros(2, 6, dtype=torch.float64), torch.zeros(2, dtype=torch.int64))
    assert not head.takes(torch.zeros(2, 6), torch.zeros(2, dtype=torch.int32))
    monkeypatch.setattr(room, "library", lambda: None)
    assert found(nn.Sequential(nn.Linear(6, 3))) is None
