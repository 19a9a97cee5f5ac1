"""Per-example clipped sums against one backward pass per example."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sordino import models
from sordino.errors import BadInput
from sordino.gradients import fused, ghost_layers
from sordino.gradients.flat import Flat
from sordino.gradients.per_example import SLACK, PerExample
from sordino.gradients.rewrite import pool_first
from sordino.native import library
from sordino.privacy import bounds


def _loop(model: nn.Module, x, y, loss=None) -> np.ndarray:
    """The slow, obvious version: rows of gradients in the flat order."""
    model = copy.deepcopy(model)
    flat = Flat(model)
    loss = loss or (lambda out, y: F.cross_entropy(out.flatten(0, -2), y.flatten(), ignore_index=-1))
    rows = []
    for i in range(len(x)):
        flat.grad.zero_()
        loss(model(x[i : i + 1]), y[i : i + 1]).sum().backward()
        rows.append(flat.grad.clone().numpy())
    return np.array(rows, dtype=np.float64)


def _clipped(bound: bounds.Bound, rows: np.ndarray) -> np.ndarray:
    """The sum of rows, each clipped with the slack that sums in floating point need."""
    if bound.kind in ("l1", "coordinates"):
        return sum(bound.clip(row) * (1 - SLACK) for row in rows)
    sizes = getattr(bound, "sizes", (rows.shape[1],))
    parts = np.split(rows, np.cumsum(sizes)[:-1], axis=1)
    norms = np.stack([np.linalg.norm(p, axis=1) for p in parts], 1) * (1 + SLACK)
    factors = bound.factors(norms) if len(sizes) > 1 else bound.factors(norms[:, 0])[:, None]
    return (rows * np.repeat(factors, sizes, axis=1)).sum(0)


class Tiny(nn.Module):
    """Every supported layer that images can have, with strides, dilation, groups, odd paddings and shared use."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, stride=2, padding=(1, 2), bias=False)
        self.n = nn.GroupNorm(4, 8)
        self.b = nn.Conv2d(8, 8, (3, 2), padding="same", dilation=(1, 2), groups=4, padding_mode="circular")
        self.i = nn.InstanceNorm2d(8, affine=True)
        self.c = nn.Conv2d(8, 6, 1)
        self.relu = nn.ReLU(inplace=True)
        self.fc = nn.Linear(6, 6)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        x = self.relu(self.n(self.a(x)))
        y = self.i(self.b(x))
        y += x  # in place, as many residual networks do
        y = self.relu(self.c(y)).mean((2, 3))
        return self.out(torch.tanh(self.fc(torch.tanh(self.fc(y)))))  # fc serves twice


class Sequences(nn.Module):
    """Embedding with padding, bidirectional LSTM, LayerNorm, dense layers on every position."""

    def __init__(self, bidirectional: bool, batch_first: bool, last: bool) -> None:
        super().__init__()
        self.first, self.last = batch_first, last
        self.embed = nn.Embedding(11, 5, padding_idx=0)
        self.lstm = nn.LSTM(5, 4, 2, batch_first=batch_first, bidirectional=bidirectional)
        width = 8 if bidirectional else 4
        self.norm = nn.LayerNorm(width)
        self.mid = nn.Linear(width, 7)
        self.out = nn.Linear(7 + width, 3)

    def forward(self, x):
        e = self.embed(x)
        states, (h, c) = self.lstm(e if self.first else e.transpose(0, 1))
        states = states if self.first else states.transpose(0, 1)
        z = self.mid(self.norm(states))
        z *= 0.5  # in place
        z = torch.relu(z)
        ways = 1 + self.lstm.bidirectional
        ends = h + c
        end = torch.cat([ends[-k] for k in range(ways, 0, -1)], -1) if self.last else states[:, 0]
        return self.out(torch.cat([z.mean(1), end], -1))


def _model(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(5)
    n = 6
    if name in ("lenet", "cnn-mnist"):
        x, m = torch.randn(n, 1, 16, 16, generator=g), models.build(name, (1, 16, 16), 3, seed=1)
    elif name in ("cnn-cifar", "cnn-cifar-acn"):
        x, m = torch.randn(n, 3, 16, 16, generator=g), models.build(name, (3, 16, 16), 3, seed=1)
    elif name == "cnn-rail":
        x, m = torch.randn(n, 2, 64, generator=g), models.build(name, (2, 64), 3, seed=1)
    elif name == "linear":
        x, m = torch.randn(n, 4, 5, generator=g), models.build(name, (4, 5), 3, seed=1)
    elif name in ("char-lstm", "char-lstm-all"):
        x, m = torch.randint(0, 13, (n, 9), generator=g), models.build(name, (9,), 13, seed=1)
    elif name == "resnet18":
        x, m = torch.randn(n, 3, 8, 8, generator=g), models.build(name, (3, 8, 8), 3, seed=1)
    elif name == "tiny":
        with torch.random.fork_rng():
            torch.manual_seed(1)
            m = Tiny()
        x = torch.randn(n, 3, 9, 11, generator=g)
    else:
        _, bidirectional, first, last = name.split("-")
        with torch.random.fork_rng():
            torch.manual_seed(1)
            m = Sequences(bidirectional == "bi", first == "first", last == "end")
        x = torch.randint(0, 11, (n, 7), generator=g)
    if name == "char-lstm-all":  # a label at every position, the last of some have none
        y = torch.randint(0, 13, (n, 9), generator=g)
        y[1, 3:], y[4, 8:] = -1, -1
        return m, x, y
    classes = 13 if name == "char-lstm" else 3
    return m, x, torch.randint(0, classes, (n,), generator=g)


SEQUENCES = ["seq-bi-first-end", "seq-uni-time-end", "seq-uni-first-start"]
FAMILIES = ["linear", "lenet", "cnn-mnist", "cnn-cifar", "cnn-cifar-acn", "cnn-rail", "char-lstm", "char-lstm-all"]
FAMILIES += ["resnet18", "tiny"]


@pytest.mark.parametrize("prefer", ["mixed", "ghost", "direct"])
@pytest.mark.parametrize("name", FAMILIES + SEQUENCES)
def test_exact_for_every_family(name, prefer, monkeypatch):
    if prefer != "mixed":
        if name == "resnet18":
            pytest.skip("the mixed rule takes both ways in this one")
        monkeypatch.setattr(ghost_layers, "direct_pays", lambda t, k, o, most=0: t > 1 and prefer == "direct")
    model, x, y = _model(name)
    if name == "resnet18":  # eleven million entries a row
        x, y = x[:3], y[:3]
    engine = PerExample(copy.deepcopy(model), slots=16)
    want = _loop(model, x, y)
    size = np.linalg.norm(want, axis=1)
    assert size.min() > 1e-3
    got = engine.norms(x, y)
    assert engine.mode == "ghost", "book-keeping must fit the papers' models"
    np.testing.assert_allclose(got, size, rtol=1e-5)
    if name != "resnet18":
        np.testing.assert_allclose(engine.rows(x, y), want, atol=1e-5 * size.max())

    bound = bounds.Flat(float(np.median(size)))
    assert 0 < (size > bound.size * 1.001).sum() < len(x), "some are clipped, some are not"
    clipped = _clipped(bound, want)
    total, norms = engine.clipped_sum(x, y, bound)
    assert total.dtype == np.float64 and total.shape == (engine.flat.size,)
    np.testing.assert_array_equal(norms, got)
    assert np.linalg.norm(total - clipped) <= 1e-5 * np.linalg.norm(clipped)


@pytest.mark.parametrize("name", ["cnn-mnist", "lenet", "cnn-cifar", "cnn-cifar-acn", "cnn-rail"])
@pytest.mark.parametrize("blocks", [True, False])
def test_fused_blocks_and_separate_layers_agree(name, blocks, monkeypatch):
    if blocks and library() is None:
        pytest.skip("the kernels were not built")
    if not blocks:
        monkeypatch.setattr(fused, "library", lambda: None)
    model, x, y = _model(name)
    for layer in model.children():
        if isinstance(layer, (nn.Conv1d, nn.Conv2d)):
            layer.bias.data += 0.3  # ReLU lets some through and stops some
    engine = PerExample(model)
    want = _loop(model, x, y)
    got, size = engine.rows(x, y), np.linalg.norm(want, axis=1)
    assert engine.mode == "ghost" and bool(engine._ghost.blocks) == blocks
    np.testing.assert_allclose(got, want, atol=1e-6 * size.max())
    np.testing.assert_allclose(engine.norms(x, y), size, rtol=1e-5)
    assert "forward" not in vars(engine._ghost.net) and "forward" not in vars(model.conv1)


@pytest.mark.parametrize("outputs", [1, 10, 16, 17])
@pytest.mark.parametrize("bias", [True, False])
def test_a_first_dense_layer_of_any_width(outputs, bias):
    """Enough examples for the product that is turned round where outputs do not fill registers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, outputs, bias=bias), nn.ReLU(inplace=True), nn.Linear(outputs, 3))
    x, y = torch.randn(70, 9), torch.randint(0, 3, (70,))
    want = _loop(model, x, y)
    np.testing.assert_allclose(PerExample(model).rows(x, y), want, atol=1e-6)
    np.testing.assert_allclose(PerExample(model).norms(x, y), np.linalg.norm(want, axis=1), rtol=1e-5)


@pytest.mark.parametrize("name", ["linear", "cnn-mnist", "cnn-rail", "char-lstm", "tiny", "seq-bi-first-end"])
@pytest.mark.parametrize("ghost", [True, False])
def test_no_example_exceeds_the_bound(name, ghost, monkeypatch):
    monkeypatch.setattr(ghost_layers, "direct_pays", lambda t, k, o, most=0: t > 1 and not ghost)
    model, x, y = _model(name)
    engine = PerExample(model, slots=16)
    for c in (1e-3, 0.05):
        for bound in (bounds.Flat(c), bounds.Automatic(c)):
            for i in range(len(x)):
                one, norm = engine.clipped_sum(x[i : i + 1], y[i : i + 1], bound)
                assert norm[0] > c
                assert np.linalg.norm(one) <= c
                if isinstance(bound, bounds.Flat):
                    assert np.linalg.norm(one) >= c * (1 - 2 * SLACK)


def test_cancelling_positions_do_not_understate_the_norm():
    """Gram matrices lose digits where terms cancel; the length after clipping must still be within the bound."""
    g = torch.randn(4, 40, 30, dtype=torch.float32)
    g[:, 20:] = -g[:, :20]  # with equal inputs the gradient is (nearly) zero
    a = torch.randn(4, 40, 50)
    a[:, 20:] = a[:, :20] + 1e-4 * torch.randn(4, 20, 50)
    exact = torch.bmm(g.double().transpose(1, 2), a.double()).flatten(1).norm(dim=1)
    assert (ghost_layers.ghost([a], g)[0].double().sqrt() >= exact).all()


@pytest.mark.parametrize("name", ["cnn-mnist", "seq-bi-first-end"])
def test_grouped_bounds(name):
    model, x, y = _model(name)
    flat = Flat(copy.deepcopy(model))
    want = _loop(model, x, y)
    for sizes in (flat.layer_sizes(), flat.sizes):
        parts = np.split(want, np.cumsum(sizes)[:-1], axis=1)
        lengths = np.stack([np.linalg.norm(p, axis=1) for p in parts], 1)
        bound = bounds.Grouped(tuple(sizes), tuple(0.5 * np.median(lengths, axis=0) + 1e-6))
        engine = PerExample(flat)
        np.testing.assert_allclose(engine.norms(x, y, sizes=sizes), lengths, rtol=1e-5, atol=1e-7)
        total, norms = engine.clipped_sum(x, y, bound)
        assert norms.shape == (len(x), len(sizes))
        clipped = _clipped(bound, want)
        assert np.linalg.norm(total - clipped) <= 1e-5 * np.linalg.norm(clipped)
    with pytest.raises(BadInput, match="do not fall on the model's tensors"):
        PerExample(flat).norms(x, y, sizes=[3, flat.size - 3])


def test_bounds_that_need_coordinates():
    model, x, y = _model("linear")
    want = _loop(model, x, y)
    engine = PerExample(model)
    d = engine.flat.size
    for bound in (bounds.L1(0.3), bounds.Coordinates(np.full(d, 0.01), np.linspace(0.1, 2, d))):
        total, norms = engine.clipped_sum(x, y, bound)
        np.testing.assert_allclose(total, _clipped(bound, want), atol=1e-6)
        np.testing.assert_allclose(norms, np.linalg.norm(want, ord=1 if bound.kind == "l1" else 2, axis=1), rtol=1e-5)


@pytest.mark.parametrize("name", ["cnn-mnist", "char-lstm", "linear"])
def test_sharing_out_by_chunks_changes_no_bit(name):
    model, x, y = _model(name)
    x, y = torch.cat([x + k for k in range(7)] if x.is_floating_point() else [x] * 7)[:40], y.repeat(7)[:40]
    engine = PerExample(model, slots=10)
    assert engine.chunk == 16, "slots come in sixteens"
    bound = bounds.Flat(0.1)
    whole, norms = engine.clipped_sum(x, y, bound)
    parts = list(engine.clipped_chunks(x, y, bound))
    assert [len(p[1]) for p in parts] == [16, 16, 8], "full windows and a last one that is filled up"
    alone = [engine.clipped_sum(x[i : i + 16], y[i : i + 16], bound) for i in (32, 0, 16)]
    for (a, n), (b, m) in zip([alone[1], alone[2], alone[0]], parts):
        assert np.array_equal(a, b) and np.array_equal(n, m)
    assert np.array_equal(whole, sum(p[0] for p in parts))
    assert np.array_equal(norms, np.concatenate([p[1] for p in parts]))
    other = PerExample(copy.deepcopy(model))
    big, _ = other.clipped_sum(x, y, bound)
    assert other.chunk == {"linear": 256, "cnn-mnist": 144, "char-lstm": 32}[name], "what is kept decides"
    assert np.linalg.norm(big - whole) <= 1e-5 * np.linalg.norm(big)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e38])
@pytest.mark.parametrize("name", ["cnn-mnist", "linear", "tiny", "cnn-rail"])
def test_an_example_that_is_not_finite_adds_nothing(name, bad):
    model, x, y = _model(name)
    engine = PerExample(model)
    bound = bounds.Flat(0.2)
    x = x.clone()
    x[1].flatten()[3:40] = bad
    rest = [0, 2, 3, 4, 5]
    want, _ = engine.clipped_sum(x[rest], y[rest], bound)
    got, norms = engine.clipped_sum(x, y, bound)
    if not np.isfinite(norms[1]):
        np.testing.assert_allclose(got, want, atol=1e-6)
    assert np.isfinite(got).all() and np.linalg.norm(got - want) <= 0.2 + 1e-6
    if bad != 1e38:
        assert not np.isfinite(norms[1])


@pytest.mark.parametrize("mode", ["auto", "vmap", "loop"])
def test_an_empty_batch_is_zero(mode):
    model, x, y = _model("cnn-mnist")
    engine = PerExample(model, mode=mode)
    total, norms = engine.clipped_sum(x[:0], y[:0], bounds.Flat(1.0))
    assert total.shape == (engine.flat.size,) and not total.any() and norms.shape == (0,)
    assert engine.norms(x[:0], y[:0]).shape == (0,) and engine.rows(x[:0], y[:0]).shape == (0, engine.flat.size)


@pytest.mark.parametrize("mode", ["vmap", "loop"])
@pytest.mark.parametrize("name", ["cnn-mnist", "tiny"])
def test_fallbacks_agree(name, mode):
    model, x, y = _model(name)
    want = _loop(model, x, y)
    bound = bounds.Flat(0.3)
    clipped = _clipped(bound, want)
    engine = PerExample(model, mode=mode)
    total, norms = engine.clipped_sum(x, y, bound)
    assert engine.mode == mode
    np.testing.assert_allclose(norms, np.linalg.norm(want, axis=1), rtol=1e-5)
    assert np.linalg.norm(total - clipped) <= 1e-5 * np.linalg.norm(clipped)


class Own(nn.Module):
    """A parameter that belongs to no known layer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 2, 6))
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(torch.tanh(x * self.scale))


class Behind(nn.Module):
    """Uses a layer's weight behind its back, so that book-keeping would miss a part of the gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(torch.tanh(F.linear(torch.tanh(self.fc(x)), self.fc.weight)))


class Recurrent(nn.Module):
    """A layer that neither book-keeping nor torch.func handles."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(2, 4, batch_first=True)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.gru(x.view(-1, 3, 2))[0][:, -1])


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.out(torch.tanh(self.b(torch.tanh(self.a(x)))))


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.never = nn.Linear(6, 3), nn.Linear(2, 2)

    def forward(self, x):
        return self.a(x)


@pytest.mark.parametrize(
    ("kind", "modes"),
    [
        (Own, {"vmap", "loop"}),
        (Behind, {"vmap", "loop"}),
        (Recurrent, {"vmap", "loop"}),
        (Tied, {"vmap", "loop"}),
        (Unused, {"ghost"}),
    ],
)
def test_any_model_is_exact(kind, modes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, x, y = kind(), torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1])
    engine = PerExample(copy.deepcopy(model))
    rows = engine.rows(x, y)
    assert engine.mode in modes
    flat = Flat(copy.deepcopy(model))
    want = []
    for i in range(5):
        flat.grad.zero_()
        F.cross_entropy(flat.model(x[i : i + 1]), y[i : i + 1]).backward()
        want.append(flat.grad.clone().numpy())
    np.testing.assert_allclose(rows, want, atol=1e-6)
    if "ghost" not in modes:
        with pytest.raises(BadInput, match="mode 'ghost' does not fit.*'auto'"):
            PerExample(kind(), mode="ghost").rows(x, y)


class Centred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(x - x.mean(0))


def test_models_that_mix_examples_are_refused():
    with pytest.raises(BadInput, match="mixes the examples"):
        PerExample(Centred()).norms(torch.randn(5, 6), torch.zeros(5, dtype=torch.long))
    with pytest.raises(BadInput, match="GroupNorm"):
        PerExample(nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)))


def test_dropout_leaves_the_generator_and_the_strategy_alone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 3))
    engine = PerExample(model)
    x, y = torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1])
    torch.manual_seed(3)
    first = engine.rows(x, y)
    assert engine.mode == "ghost" and model[1].training
    torch.manual_seed(3)
    again = PerExample(model).rows(x, y)
    np.testing.assert_array_equal(first, again)


def test_losses_and_targets():
    torch.manual_seed(0)
    model, x = nn.Linear(4, 2), torch.randn(3, 4)
    target = torch.randn(3, 2)
    got = PerExample(model, "squared-error").rows(x, target)
    error = (model(x) - target).detach()
    want = torch.cat([(error[:, :, None] * x[:, None]).flatten(1), error], 1)
    np.testing.assert_allclose(got, want.numpy(), atol=1e-6)
    own = PerExample(model, lambda out, y: 0.5 * (out - y).square().sum(1)).rows(x, target)
    np.testing.assert_allclose(own, got, atol=1e-7)
    words = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5))
    tokens = torch.randint(0, 5, (3, 6))
    rows = PerExample(words).rows(tokens, tokens.roll(1, 1))
    want_rows = _loop(words, tokens, tokens.roll(1, 1), lambda o, y: F.cross_entropy(o.flatten(0, 1), y.flatten()))
    np.testing.assert_allclose(rows, want_rows, atol=1e-6)
    with pytest.raises(BadInput, match="loss must be one of cross-entropy"):
        PerExample(model, "hinge")
    with pytest.raises(BadInput, match="one number per example"):
        PerExample(model, lambda out, y: out.sum()).rows(x, target)
    with pytest.raises(BadInput, match="3 examples and 2 targets"):
        PerExample(model).rows(x, target[:2])


def test_frozen_layers_and_numpy_input():
    model, x, y = _model("cnn-mnist")
    model.conv1.weight.requires_grad_(False)
    model.fc1.bias.requires_grad_(False)
    model.conv2.bias.requires_grad_(False)
    want = _loop(model, x, y)
    engine = PerExample(model)
    np.testing.assert_allclose(engine.rows(x.numpy(), y.numpy()), want, atol=1e-5)
    total, norms = engine.clipped_sum(x.numpy(), y.numpy(), bounds.Flat(1e9))
    np.testing.assert_allclose(total, want.sum(0), atol=1e-4)
    np.testing.assert_allclose(norms, np.linalg.norm(want, axis=1), rtol=1e-5)


def test_images_per_example_and_the_model_is_left_alone():
    class Frames(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.out = nn.Conv2d(1, 4, 3), nn.Linear(4, 3)

        def forward(self, x):  # [n, frames, h, w]
            z = torch.tanh(self.conv(x.flatten(0, 1)[:, None])).mean((2, 3))
            return self.out(z).view(x.shape[0], -1, 3).mean(1)

    torch.manual_seed(0)
    model, x, y = Frames(), torch.randn(4, 5, 7, 7), torch.tensor([0, 1, 2, 0])
    want = _loop(model, x, y)
    engine = PerExample(model)
    np.testing.assert_allclose(engine.rows(x, y), want, atol=1e-6)
    assert engine.mode == "ghost" and "forward" not in vars(model.conv)
    out = model(x)
    out.sum().backward()
    assert engine.flat.grad.abs().sum() > 0, "ordinary training still works afterwards"


def test_memory_follows_the_chunk_not_the_batch():
    engine = PerExample(models.build("resnet18", (3, 32, 32), 10))
    assert engine.chunk in (16, 32)
    assert PerExample(models.build("cnn-mnist", (1, 28, 28), 10)).chunk == 144
    assert PerExample(models.build("resnet18", (3, 32, 32), 10), mode="vmap").chunk == 2


# Pooling before ReLU -------------------------------------------------------------------------------------------------


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.c2, self.f = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 5, 3), nn.Linear(20, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        return self.f(torch.flatten(F.max_pool2d(torch.relu(self.c2(x)), 2, stride=1), 1))


class Reads(nn.Module):
    """The ReLU is read twice, so nothing may be turned round."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(1, 4, 3)

    def forward(self, x):
        h = F.relu(self.c(x))
        return F.max_pool2d(h, 2).sum((2, 3)) + h.sum((2, 3))


class Draws(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(1, 4, 3)

    def forward(self, x):
        keep = 1.0 if torch.rand(()) > 0.5 else 0.5
        return F.max_pool2d(F.relu(self.c(x)), 2).sum((2, 3)) * keep


class Trains(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(1, 4, 3)

    def forward(self, x):
        return F.dropout(F.max_pool2d(F.relu(self.c(x)), 2), 0.5, self.training).sum((2, 3))


class Counts(Reads):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return F.max_pool2d(F.relu(self.c(x)), 2).sum((2, 3)) * self.calls


def _layers():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(20, 3),
    )  # fmt: skip


@pytest.mark.parametrize("make", [Functional, _layers])
def test_rewritten_models_are_the_same_function(make):
    torch.manual_seed(0)
    model = make()
    fast = pool_first(model)
    assert fast is not model
    assert [n for n, _ in fast.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert all(p is q for p, q in zip(fast.parameters(), model.parameters()))
    x = torch.randn(7, 1, 12, 12)
    grads = []
    for m in (model, fast):
        out = m(x)
        grads.append((out, *torch.autograd.grad(out.square().sum(), list(model.parameters()))))
    for a, b in zip(*grads):
        assert torch.equal(a, b)
    order = [n.name for n in fast.graph.nodes]
    for pool, relu in [("max_pool2d", "relu"), ("max_pool2d_1", "relu_1")] if make is Functional else [("_2", "_1")]:
        assert order.index(pool) == order.index(relu) - 1


@pytest.mark.parametrize("kind", [Reads, Draws, Trains, Counts])
def test_what_cannot_be_traced_safely_stays_as_it_is(kind):
    model = kind()
    before = torch.random.get_rng_state()
    assert pool_first(model) is model
    assert torch.equal(torch.random.get_rng_state(), before) and model.training
