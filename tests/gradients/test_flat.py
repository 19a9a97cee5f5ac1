"""The flat vector behind a model."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from sordino.errors import BadInput
from sordino.gradients.flat import Flat, check


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 2), nn.Flatten(), nn.Linear(5 * 3 * 3, 2))


def test_views_share_one_buffer_and_gradients_too():
    model = _net()
    want = copy.deepcopy(model)
    flat = Flat(model)
    x, y = torch.randn(7, 3, 6, 6), torch.tensor([0, 1, 1, 0, 1, 0, 0])
    for m in (model, want):
        nn.functional.cross_entropy(m(x), y).backward()
    assert flat.size == sum(p.numel() for p in want.parameters()) == flat.grad.numel()
    for (name, g), p in zip(flat.named(flat.grad), want.parameters()):
        assert torch.allclose(g, p.grad, atol=1e-6), name
        assert p.grad.abs().sum() > 0
    flat.theta -= flat.grad
    for p, q in zip(model.parameters(), want.parameters()):
        assert torch.allclose(p, q - q.grad, atol=1e-6)


def test_order_of_the_vector_is_documented():
    model = _net()
    weight = model[0].weight.detach().clone()
    flat = Flat(model)
    assert flat.names == ["0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"]
    assert torch.equal(flat.theta[: weight.numel()], weight.permute(0, 2, 3, 1).reshape(-1))
    assert model[2].weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(flat.theta[-92:-2], model[4].weight.detach().reshape(-1))
    assert flat.layer_sizes() == [112, 85, 92] and flat.layer_of() == [0, 0, 1, 1, 2, 2]
    assert sum(flat.sizes) == flat.size == 289


def test_load_vector_round_trip_and_given_buffer():
    model = _net()
    buffer = torch.empty(289)
    flat = Flat(model, theta=buffer)
    assert flat.theta is buffer
    v = torch.arange(289, dtype=torch.float32)
    flat.load(v.numpy())
    assert torch.equal(flat.vector(), v) and model[4].bias.tolist() == [287.0, 288.0]
    kept = flat.vector()
    flat.theta.zero_()
    assert kept[-1] == 288
    with pytest.raises(BadInput, match="289"):
        flat.load(torch.zeros(3))
    with pytest.raises(BadInput, match="289"):
        Flat(_net(), theta=torch.zeros(3))


def test_same_output_before_and_after():
    model = _net()
    x = torch.randn(2, 3, 6, 6)
    before = model(x)
    flat = Flat(model)
    assert torch.allclose(model(x), before, atol=1e-6)
    other = Flat(_net())
    other.load(flat.vector())
    assert torch.allclose(other.model(x), before, atol=1e-6)


def test_frozen_parameters_stay_out():
    model = _net()
    model[0].weight.requires_grad_(False)
    flat = Flat(model)
    assert "0.weight" not in flat.names and flat.size == 289 - 108


def test_lstm_weights_stay_usable():
    model = nn.LSTM(3, 4, num_layers=2, batch_first=True)
    x = torch.randn(2, 5, 3)
    want = model(x)[0]
    flat = Flat(model)
    assert torch.allclose(model(x)[0], want)
    flat.theta.zero_()
    assert model(x)[0].abs().sum() == 0


class _Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        self.seen += x.detach().sum(0)
        return self.lin(x * self.scale)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), "'1' is BatchNorm2d.*GroupNorm"),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), "GroupNorm"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.SyncBatchNorm(2)), "SyncBatchNorm.*GroupNorm"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.InstanceNorm2d(2, track_running_stats=True)), "Instance.*GroupNorm"),
        (nn.Embedding(4, 2, max_norm=1.0), "max_norm"),
        (nn.Flatten(), "no trainable parameters"),
        (nn.Linear(2, 2).double(), "float64.*model.float"),
        (nn.LazyLinear(2), "no shape yet"),
    ],
)
def test_refusals_name_the_remedy(model, says):
    with pytest.raises(BadInput, match=says):
        check(model)
    with pytest.raises(BadInput, match=says):
        Flat(model)


def test_harmless_state_is_allowed():
    check(nn.Sequential(nn.Conv2d(1, 4, 3), nn.InstanceNorm2d(4), nn.GroupNorm(2, 4)), (1, 5, 5))
    check(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)), (3,))


def test_a_buffer_that_training_changes_is_refused():
    model = _Counter()
    with pytest.raises(BadInput, match="'seen'.*without noise"):
        check(model, (3,))
    assert model.seen.sum() == 0, "the check must not touch the model"
    flat = Flat(model)
    flat.guard()
    model(torch.ones(1, 3))
    with pytest.raises(BadInput, match="'seen'"):
        flat.guard()
