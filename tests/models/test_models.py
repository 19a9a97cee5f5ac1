"""The papers' networks: shapes, sizes, determinism, refusals."""

from __future__ import annotations

import pytest
import torch

from sordino import models
from sordino.errors import BadInput
from sordino.gradients.flat import Flat, check

# name, shape of one example, classes, parameters counted by hand from the layer widths
CASES = [
    ("linear", (8, 8), 10, 64 * 10 + 10),
    ("lenet", (1, 28, 28), 10, 61_706),
    ("lenet", (3, 32, 32), 10, 62_006),
    ("cnn-tanh", (1, 28, 28), 10, 16 * 65 + 32 * 257 + 32 * 513 + 10 * 33),
    ("cnn-mnist", (1, 28, 28), 10, 16 * 26 + 32 * 401 + 128 * 513 + 10 * 129),
    ("cnn-cifar", (3, 32, 32), 10, 343_946),
    ("cnn-cifar-acn", (3, 32, 32), 100, 16 * 76 + 32 * 401 + 256 * 801 + 128 * 257 + 100 * 129),
    ("cnn-rail", (1, 500), 2, 16 * 8 + 32 * 113 + 64 * (32 * 31 + 1) + 2 * 65),
    ("char-lstm", (80,), 80, 80 * 8 + 4 * 256 * (8 + 256 + 2) + 4 * 256 * (512 + 2) + 80 * 257),
    ("char-lstm-all", (80,), 90, 90 * 8 + 4 * 256 * (8 + 256 + 2) + 4 * 256 * (512 + 2) + 90 * 257),
    ("resnet18", (3, 32, 32), 10, 11_173_962),
]


def _batch(name, shape, classes, n=2):
    if name.startswith("char-lstm"):
        return torch.randint(0, classes, (n, *shape))
    return torch.randn(n, *shape)


@pytest.mark.parametrize(("name", "shape", "classes", "count"), CASES)
def test_shape_size_and_determinism(name, shape, classes, count):
    before = torch.random.get_rng_state()
    net = models.build(name, shape, classes, seed=3)
    assert torch.equal(torch.random.get_rng_state(), before), "the global generator must be left alone"
    assert sum(p.numel() for p in net.parameters()) == count
    check(net)
    assert not list(net.buffers())
    out = net(_batch(name, shape, classes))
    assert (
        out.shape == ((2, *shape, classes) if name == "char-lstm-all" else (2, classes)) and torch.isfinite(out).all()
    )
    torch.rand(5)
    same, other = models.build(name, shape, classes, seed=3), models.build(name, shape, classes, seed=4)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), same.parameters()))
    if name != "linear":
        assert not all(torch.equal(p, q) for p, q in zip(net.parameters(), other.parameters()))
    assert Flat(net).size == count


@pytest.mark.parametrize("name", ["lenet", "cnn-mnist", "cnn-cifar", "cnn-cifar-acn", "cnn-rail"])
def test_pooling_before_relu_is_the_printed_network(name):
    shape = (1, 64) if name == "cnn-rail" else (1, 28, 28)
    net = models.build(name, shape, 10, seed=0)
    x = _batch(name, shape, 10, 3)
    F = torch.nn.functional
    convs = [m for m in net.children() if isinstance(m, (torch.nn.Conv1d, torch.nn.Conv2d))]
    fcs = [m for m in net.children() if isinstance(m, torch.nn.Linear)]
    h = x
    for conv in convs:
        h = F.max_pool1d(F.relu(conv(h)), 4) if name == "cnn-rail" else F.max_pool2d(F.relu(conv(h)), 2)
    h = h.flatten(1)
    for fc in fcs[:-1]:
        h = F.relu(fc(h))
    assert torch.equal(net(x), fcs[-1](h))


def test_large_images_get_the_original_stem():
    net = models.build("resnet18", (3, 96, 96), 5)
    assert net.conv1.kernel_size == (7, 7) and net(torch.randn(1, 3, 96, 96)).shape == (1, 5)


def test_names_and_refusals():
    assert set(models.names()) >= {"linear", "lenet", "cnn-mnist", "cnn-cifar", "cnn-rail", "char-lstm", "resnet18"}
    with pytest.raises(BadInput, match="no model 'lennet': choose one of linear, lenet"):
        models.build("lennet", (1, 28, 28), 10)
    with pytest.raises(BadInput, match="3 dimensions"):
        models.build("lenet", (28,), 10)
    with pytest.raises(BadInput, match="too small.*'linear'"):
        models.build("cnn-mnist", (1, 8, 8), 10)
    with pytest.raises(BadInput, match="classes"):
        models.build("linear", (4,), 0)
    with pytest.raises(BadInput, match="seed"):
        models.build("linear", (4,), 2, seed=-1)


STANDARDISED = [("std-linear", (1, 8, 8)), ("std-mlp", (3, 5)), ("std-cnn", (3, 20, 24)), ("std-cnn-1d", (2, 64))]


@pytest.mark.parametrize(("name", "shape"), STANDARDISED)
def test_the_scale_of_a_record_makes_no_difference(name, shape):
    net, x = models.build(name, shape, 4), torch.randn(6, *shape)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn_like(p))  # a linear layer starts at zero
        assert torch.allclose(net(x), net(1000 * x + 7), atol=1e-3)
        assert torch.isfinite(net(torch.zeros(1, *shape))).all()


def test_tables_keep_small_values_and_bring_large_ones_down():
    net = models.build("table-linear", (2,), 2)
    with torch.no_grad():
        net.net.out.weight.copy_(torch.eye(2))
    assert net(torch.tensor([[0.01, 50_000.0]])).tolist()[0] == pytest.approx([0.01, 11.5129], abs=1e-4)


@pytest.mark.parametrize(
    ("name", "shape"),
    [*STANDARDISED, ("mlp", (7,)), ("table-linear", (7,)), ("wide-deep", (7,)), ("wide-fourier", (7,))],
)
def test_chosen_networks_take_the_fast_path_to_single_gradients(name, shape):
    from sordino.gradients.flat import Flat
    from sordino.gradients.per_example import PerExample, cross_entropy
    from sordino.gradients.strategies import Ghost

    grads = PerExample(Flat(models.build(name, shape, 4)), cross_entropy, slots=32)
    grads.prepare(torch.zeros(1, *shape), torch.zeros(1, dtype=torch.int64))
    assert any(isinstance(part, Ghost) for part in vars(grads).values())
