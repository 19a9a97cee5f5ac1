"""The fused block against the separate layers of PyTorch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sordino.clients.fused import Block, conv_pool
from sordino.clients.rewrite import faster
from sordino.native import library

needs_native = pytest.mark.skipif(library() is None, reason="the native kernels were not built here")

SHAPES = [
    # channels in, out, kernel, padding, size
    (1, 16, 5, 0, 28),
    (16, 32, 5, 0, 12),
    (3, 5, 3, 1, 9),
    (1, 16, 3, 1, 8),
    (16, 7, 3, 0, 7),
    (4, 6, (3, 5), 0, 11),
    (32, 48, 3, 1, 10),
    (2, 3, 1, 0, 4),
    (3, 32, 5, 0, 13),
    (1, 16, 4, 0, 9),
]


def gradients(forward, x, layer):
    x = x.clone().requires_grad_(True)
    layer.zero_grad()
    out = forward(x, layer)
    weights = torch.sin(torch.arange(out.numel(), dtype=torch.float32)).view_as(out)
    (out * weights).sum().backward()
    return out.detach(), x.grad, layer.weight.grad, None if layer.bias is None else layer.bias.grad


@needs_native
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_the_separate_layers(shape, relu, bias):
    c, o, k, pad, size = shape
    torch.manual_seed(0)
    layer = nn.Conv2d(c, o, k, padding=pad, bias=bias)
    x = torch.randn(6, c, size, size)

    def separate(x, layer):
        y = F.max_pool2d(layer(x), 2)
        return F.relu(y) if relu else y

    fused = gradients(lambda x, layer: conv_pool(x, layer, relu), x, layer)
    plain = gradients(separate, x, layer)
    for a, b in zip(fused, plain):
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))


@needs_native
def test_the_first_layer_needs_no_gradient_of_its_input():
    torch.manual_seed(0)
    layer, x = nn.Conv2d(1, 16, 5), torch.randn(4, 1, 12, 12)
    conv_pool(x, layer, True).square().sum().backward()
    other = copy.deepcopy(layer)
    other.zero_grad()
    F.relu(F.max_pool2d(other(x), 2)).square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, other.weight.grad, rtol=1e-4, atol=1e-3)


@needs_native
def test_a_number_that_is_none_stays_one():
    layer, x = nn.Conv2d(1, 16, 3), torch.zeros(1, 1, 6, 6)
    x[0, 0, 2, 2] = float("nan")
    with torch.no_grad():
        ours, theirs = conv_pool(x, layer, True), F.relu(F.max_pool2d(layer(x), 2))
    assert torch.equal(torch.isnan(ours), torch.isnan(theirs))


class Usual(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.out = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3), nn.Linear(6 * 25, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.one(x)), 2)
        x = F.max_pool2d(F.relu(self.two(x)), 2)
        return self.out(torch.flatten(x, 1))


@needs_native
@pytest.mark.parametrize(
    "model",
    [
        Usual(),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 144, 3)),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 144, 3)),
    ],
)
def test_blocks_are_found_in_models_as_people_write_them(model):
    quick = faster(model)
    assert any(isinstance(m, Block) for m in quick.modules())
    x, y = torch.randn(5, 1, 26, 26), torch.tensor([0, 1, 2, 0, 1])
    results = []
    for net in (model, quick):
        model.zero_grad()
        F.cross_entropy(net(x), y).backward()
        results.append([p.grad.clone() for p in model.parameters()])
    assert [n for n, _ in quick.named_parameters()] == [n for n, _ in model.named_parameters()]
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(3)),
        nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)),
        nn.Sequential(nn.Conv2d(1, 4, 3, padding_mode="reflect", padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    ],
)
def test_what_the_kernels_do_not_cover_is_left_alone(model):
    assert not any(isinstance(m, Block) for m in faster(model).modules())
