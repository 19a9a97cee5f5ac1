"""The fused block against the separate layers of PyTorch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sordino.gradients import fused
from sordino.gradients.fused import Block, Form, conv_pool
from sordino.gradients.rewrite import faster
from sordino.native import library

needs_native = pytest.mark.skipif(library() is None, reason="the native kernels were not built here")

SHAPES = [
    # channels in, out, kernel, padding, size, pool; in one dimension where these are single numbers
    (1, 16, (5, 5), (0, 0), (28, 28), (2, 2)),
    (16, 32, (5, 5), (0, 0), (12, 12), (2, 2)),
    (3, 5, (3, 3), (1, 1), (9, 9), (2, 2)),
    (1, 16, (3, 3), (1, 1), (8, 8), (2, 2)),
    (16, 7, (3, 3), (0, 0), (7, 7), (2, 2)),
    (4, 6, (3, 5), (0, 0), (11, 11), (2, 2)),
    (32, 48, (3, 3), (1, 1), (10, 10), (2, 2)),
    (2, 3, (1, 1), (0, 0), (4, 4), (2, 2)),
    (3, 32, (5, 5), (0, 0), (13, 13), (2, 2)),
    (1, 16, (4, 4), (0, 0), (9, 9), (2, 2)),
    (16, 32, (3, 3), (1, 1), (14, 26), (2, 2)),
    (6, 8, (5, 5), (2, 2), (10, 18), (2, 2)),
    (5, 12, (3, 3), (0, 0), (13, 24), (2, 3)),
    (3, 20, (3, 3), (1, 1), (6, 6), (2, 2)),
    (6, 16, (5, 5), (0, 0), (14, 14), (2, 2)),
    (1, 6, (5, 5), (2, 2), (12, 14), (2, 2)),
    (16, 4, (7, 13), (1, 2), (9, 20), (3, 2)),
    (2, 16, (3, 4), (2, 0), (10, 12), (3, 3)),
    (1, 16, 7, 3, 61, 4),
    (16, 32, 7, 3, 31, 4),
    (3, 5, 4, 1, 23, 5),
    (2, 16, 3, 0, 19, 4),
    (5, 3, 3, 2, 9, 8),
    (1, 1, 1, 0, 4, 4),
]


def block(shape, relu=True, bias=True):
    """The layer of a shape, the form of its block, and the same by separate layers."""
    c, o, kernel, pad, size, pool = shape
    if isinstance(size, int):
        layer, form = nn.Conv1d(c, o, kernel, padding=pad, bias=bias), Form((0, pad), (1, pool), relu)
    else:
        layer, form = nn.Conv2d(c, o, kernel, padding=pad, bias=bias), Form(pad, pool, relu)

    def separate(x, layer):
        y = F.max_pool1d(layer(x), pool) if isinstance(size, int) else F.max_pool2d(layer(x), pool)
        return F.relu(y) if relu else y

    return layer, form, separate, (c, size) if isinstance(size, int) else (c, *size)


def gradients(forward, x, layer):
    x = x.clone().requires_grad_(True)
    layer.zero_grad()
    out = forward(x, layer)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(3))
    (out * weights).sum().backward()
    return out.detach(), x.grad, layer.weight.grad, None if layer.bias is None else layer.bias.grad


@needs_native
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_the_separate_layers(shape, relu, bias):
    torch.manual_seed(0)
    layer, form, separate, size = block(shape, relu, bias)
    x = torch.randn(6, *size)
    fast = gradients(lambda x, layer: conv_pool(x, layer, form), x, layer)
    exact = gradients(separate, x.double(), copy.deepcopy(layer).double())
    for a, b in zip(fast, exact):
        if a is not None:
            torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5 * float(b.abs().max()))


@needs_native
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("real", [0, 1, 3, 5])
def test_free_slots_are_zero_and_change_no_bit(shape, real):
    torch.manual_seed(1)
    layer, form, separate, size = block(shape)
    x = torch.randn(5, *size)
    grad = torch.randn_like(separate(x, layer))
    lift = (lambda t: t.detach().unsqueeze(2)) if x.dim() == 3 else torch.Tensor.detach
    args = lift(x), lift(layer.weight)
    values, where = fused.forward(*args, layer.bias.detach(), form)
    all_ = fused.backward(lift(grad), *args, values, where, form, True, each=True)
    few_values, few_where = fused.forward(*args, layer.bias.detach(), form, real)
    few = fused.backward(lift(grad), *args, few_values, few_where, form, True, True, real)
    for whole, part in zip((values, *all_), (few_values, *few)):
        assert torch.equal(whole[:real], part[:real]) and not part[real:].any()


@needs_native
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("inside", [True, False])
def test_gradients_of_each_example_by_itself(shape, inside):
    torch.manual_seed(1)
    layer, form, separate, size = block(shape)
    x = torch.randn(5, *size)
    out = separate(x, layer)
    grad = torch.randn_like(out)
    flat = x.dim() == 3
    lift = (lambda t: t.detach().unsqueeze(2)) if flat else torch.Tensor.detach
    args = lift(x), lift(layer.weight)
    values, where = fused.forward(*args, layer.bias.detach(), form)
    dw, db, dx = fused.backward(lift(grad), *args, values, where, form, inside, each=True)
    assert (dx is not None) == inside
    double = copy.deepcopy(layer).double()
    for i in range(len(x)):
        one = x[i : i + 1].double().requires_grad_(True)
        wanted = torch.autograd.grad(separate(one, double), [double.weight, double.bias, one], grad[i : i + 1].double())
        got = [dw[i].movedim(-1, 1), db[i], dx[i] if inside else None]
        for a, b in zip(got, wanted):
            if a is not None:
                torch.testing.assert_close(a.double().reshape(b.shape), b, rtol=1e-5, atol=1e-5 * float(b.abs().max()))


@needs_native
@pytest.mark.parametrize("shape", SHAPES)
def test_the_first_of_equals_wins(shape):
    """Whole numbers: sums are exact, and most windows hold the largest value several times over."""
    torch.manual_seed(2)
    layer, form, separate, size = block(shape)
    for p in layer.parameters():
        p.data = torch.randint(-1, 2, p.shape).float()
    x = torch.randint(-1, 2, (4, *size)).float()
    results = []
    for forward in (separate, lambda x, layer: conv_pool(x, layer, form)):
        x = x.detach().requires_grad_(True)
        out = forward(x, layer)
        results.append([out, *torch.autograd.grad(out.sum(), [x, layer.weight, layer.bias])])
    for a, b in zip(*results):
        assert torch.equal(a, b)


@needs_native
def test_an_empty_batch_has_no_gradient():
    layer, form, _, size = block(SHAPES[2])
    conv_pool(torch.randn(0, *size), layer, form).sum().backward()
    assert not layer.weight.grad.any() and not layer.bias.grad.any()


@needs_native
def test_the_first_layer_needs_no_gradient_of_its_input():
    torch.manual_seed(0)
    layer, x = nn.Conv2d(1, 16, 5), torch.randn(4, 1, 12, 12)
    conv_pool(x, layer, Form((0, 0), (2, 2), True)).square().sum().backward()
    other = copy.deepcopy(layer)
    other.zero_grad()
    F.relu(F.max_pool2d(other(x), 2)).square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, other.weight.grad, rtol=1e-4, atol=1e-3)


@needs_native
def test_a_number_that_is_none_stays_one():
    layer, x = nn.Conv2d(1, 16, 3), torch.zeros(1, 1, 6, 6)
    x[0, 0, 2, 2] = float("nan")
    with torch.no_grad():
        ours, theirs = conv_pool(x, layer, Form((0, 0), (2, 2), True)), F.relu(F.max_pool2d(layer(x), 2))
    assert torch.equal(torch.isnan(ours), torch.isnan(theirs))


class Usual(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.out = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3), nn.Linear(6 * 25, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.one(x)), 2)
        x = F.max_pool2d(F.relu(self.two(x)), 2)
        return self.out(torch.flatten(x, 1))


class Signals(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.out = nn.Conv1d(1, 4, 7, padding=3), nn.Conv1d(4, 6, 3), nn.Linear(6 * 33, 3)

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.one(x.flatten(2))), kernel_size=4)
        x = F.relu(F.max_pool1d(self.two(x), 5, stride=5))
        return self.out(torch.flatten(x, 1))


@needs_native
@pytest.mark.parametrize(
    "model",
    [
        Usual(),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 144, 3)),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 144, 3)),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d((3, 2)), nn.Flatten(), nn.Linear(4 * 96, 3)),
        Signals(),
        nn.Sequential(
            nn.Flatten(2),
            nn.Conv1d(1, 4, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool1d(4),
            nn.Flatten(),
            nn.Linear(4 * 169, 3),
        ),
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
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(3, 2)),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(4, padding=1)),
        nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.MaxPool1d(2)),
        nn.Sequential(nn.Conv1d(1, 4, 3, dilation=2), nn.ReLU(), nn.MaxPool1d(4)),
        nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)),
        nn.Sequential(nn.Conv2d(1, 4, 3, padding_mode="reflect", padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    ],
)
def test_what_the_kernels_do_not_cover_is_left_alone(model):
    assert not any(isinstance(m, Block) for m in faster(model).modules())
