"""Soteria: scores and masks with numbers worked out by hand, and models that have no layer for it."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from sordino import BadInput, Federation, Plan, train  # noqa: E402
from sordino.defences.base import OwnView  # noqa: E402
from sordino.defences.soteria import Soteria  # noqa: E402
from sordino.gradients.flat import Flat  # noqa: E402
from sordino.gradients.sensitivity import features, first_inner_dense, sensitivities  # noqa: E402
from sordino.models import build  # noqa: E402


class Two(nn.Module):
    """r = (3 x_1 + 4 x_2, x_1, -2 x_2): the slopes are 5, 1 and 2 whatever x is."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 3, bias=False)
        self.outer = nn.Linear(3, 2)
        with torch.no_grad():
            self.inner.weight.copy_(torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, -2.0]]))

    def forward(self, x):
        return self.outer(self.inner(x))


def own(model, x, y=None, lr=0.5):
    y = torch.zeros(len(x), dtype=torch.int64) if y is None else y
    return OwnView(Flat(model), x, y, nn.functional.cross_entropy, lr, np.random.default_rng(0))


def test_slopes_and_scores_by_hand():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    slopes, r = sensitivities(Two(), "outer", x)
    np.testing.assert_allclose(slopes, [[5, 1, 2], [5, 1, 2]], rtol=1e-6)
    np.testing.assert_allclose(r, [[3, 1, 0], [4, 0, -2]], atol=1e-6)
    scores = Soteria(offset=0.1).scores(Two(), "outer", x)
    expected = [5 / 3.1 + 5 / 4.1, 1 / 1.1 + 1 / 0.1, 2 / 0.1 + 2 / 2.1]  # |r|: a signed one would give 2 / -1.9
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


@pytest.mark.parametrize(("percentile", "zero"), [(30, [0]), (60, [0, 1]), (99, [0, 1, 2])])
def test_columns_of_the_lowest_scores_are_zero_and_the_rest_stays(percentile, zero):
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    model = Two()
    update = np.arange(1.0, 15.0, dtype=np.float32)
    sent = Soteria(percentile=percentile)(update, own(model, x))
    outer = sent[6:12].reshape(2, 3)
    assert (outer[:, zero] == 0).all()
    rest = [j for j in range(3) if j not in zero]
    np.testing.assert_array_equal(outer[:, rest], update[6:12].reshape(2, 3)[:, rest])
    np.testing.assert_array_equal(np.delete(sent, np.s_[6:12]), np.delete(update, np.s_[6:12]))


@pytest.mark.parametrize(("name", "shape"), [("lenet", (1, 28, 28)), ("cnn-rail", (2, 64)), ("cnn-tanh", (1, 28, 28))])
def test_batched_slopes_are_those_of_one_backward_pass_a_sample(name, shape):
    model = build(name, shape, 4, seed=3)
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    layer = first_inner_dense(model, x[:1])
    slopes, r = sensitivities(model, layer, x)
    for i in range(3):
        one = x[i : i + 1].clone().requires_grad_()
        inner = features(model, layer, one)
        for j in range(0, inner.shape[1], 7):
            (given,) = torch.autograd.grad(inner[0, j], one, retain_graph=True)
            assert float(slopes[i, j]) == pytest.approx(float(given.norm()), rel=1e-4, abs=1e-6)


def test_a_zero_that_is_not_rectified_still_counts():
    """A feature may be zero and answer all the same: x_1 - x_2 at x = (1, 1)."""
    model = Two()
    with torch.no_grad():
        model.inner.weight.copy_(torch.tensor([[1.0, -1.0], [1.0, 0.0], [0.0, 0.0]]))
    slopes, r = sensitivities(model, "outer", torch.ones(1, 2))
    assert float(r[0, 0]) == 0 and float(slopes[0, 0]) == pytest.approx(2**0.5)
    assert float(slopes[0, 2]) == 0


def test_the_model_is_left_as_it_was():
    model = build("lenet", (1, 28, 28), 4)
    model.fc2.eval()
    flags = [m.training for m in model.modules()]
    sensitivities(model, "fc1", torch.randn(2, 1, 28, 28))
    assert [m.training for m in model.modules()] == flags
    assert not any(m._forward_pre_hooks for m in model.modules())


def federation(n=8):
    rng = np.random.default_rng(0)
    return Federation.from_arrays([(rng.random((n, 2)), np.arange(n) % 2) for _ in range(2)], classes=2)


def test_a_model_without_such_a_layer_is_refused_before_anything_is_granted(tmp_path):
    plan = Plan(
        data="arrays", clients=2, method="dp-fedavg", unit="client", multiplier=1.0, rounds=1, defence="soteria"
    )
    with pytest.raises(
        BadInput, match="soteria masks a dense layer behind other layers, and the model Linear has none"
    ):
        train(nn.Linear(2, 2), federation(), plan, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_tokens_cannot_be_differentiated():
    with pytest.raises(BadInput, match="tokens"):
        Soteria().check(Two(), torch.zeros(1, 4, dtype=torch.int64))


@pytest.mark.parametrize(
    "settings", [{"soteria_percentile": 0.0}, {"soteria_percentile": 100}, {"soteria_records": 2.5}]
)
def test_settings_out_of_range(settings):
    with pytest.raises(BadInput, match=next(iter(settings))):
        Plan(method="fedavg", unit="client", observer="public", defence="soteria", options=settings)
