"""CENSOR: right angles to 1e-6, never the true gradient, and draws that must stay secret."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from sordino.defences.base import OwnView  # noqa: E402
from sordino.defences.censor import Censor, at_right_angle  # noqa: E402
from sordino.gradients.flat import Flat  # noqa: E402


def test_by_hand():
    """u = (1, 2), g = (3, 4): u.g / |g|^2 = 11/25; u - 11/25 g = (-0.32, 0.24), scaled to 5: (-4, 3)."""
    np.testing.assert_allclose(at_right_angle(np.array([3.0, 4.0]), np.array([1.0, 2.0])), [-4.0, 3.0], atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(size=st.integers(2, 4000), scale=st.sampled_from([1e-20, 1e-6, 1.0, 1e6]), seed=st.integers(0, 999))
def test_orthogonal_and_as_long(size, scale, seed):
    rng = np.random.default_rng(seed)
    g = (rng.standard_normal(size) * scale).astype(np.float32)
    v = at_right_angle(g, rng.standard_normal(size))
    wide_g, wide_v = g.astype(np.float64), v.astype(np.float64)
    product = abs(wide_g @ wide_v) / (np.linalg.norm(wide_g) * np.linalg.norm(wide_v))
    assert product < 1e-6
    assert np.linalg.norm(wide_v) == pytest.approx(np.linalg.norm(wide_g), rel=1e-5)


@pytest.mark.parametrize(
    ("g", "u"),
    [
        ([2.0], [1.0]),
        ([0.0, 0.0], [1.0, 2.0]),
        ([1.0, 1.0], [2.0, 2.0]),
        ([np.inf, 1.0], [1.0, 1.0]),
        ([np.nan], [1.0]),
    ],
)
def test_where_there_is_no_such_direction_nothing_is_sent(g, u):
    assert (at_right_angle(np.array(g), np.array(u)) == 0).all()


def made(loss=nn.functional.cross_entropy, seed=0):
    torch.manual_seed(0)
    flat = Flat(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)))
    x, y = torch.randn(6, 4), torch.arange(6) % 2
    return OwnView(flat, x, y, loss, 0.5, np.random.default_rng(seed))


def test_every_tensor_is_at_a_right_angle_and_the_model_stays():
    own = made()
    start = own.flat.vector()
    update = np.random.default_rng(5).standard_normal(own.flat.size).astype(np.float32)
    sent = Censor()(update, own)
    for slot in own.flat.slots:
        a, b = (v[slot.offset : slot.offset + slot.size].astype(np.float64) for v in (update, sent))
        assert abs(a @ b) < 1e-6 * (a @ a)
        assert np.linalg.norm(b) == pytest.approx(np.linalg.norm(a), rel=1e-5)
    assert torch.equal(own.flat.theta, start)


def test_the_best_candidate_is_sent():
    """With the loss linear in the weights the best of n has the lowest value, and more trials do no worse."""

    def after(trials):
        own = made(seed=3)
        update = np.ones(own.flat.size, np.float32)
        sent = Censor(trials=trials, step=0.05)(update, own)
        own.flat.theta.add_(torch.from_numpy(sent), alpha=0.1)
        return own.loss(own.flat.model(own.x), own.y).item()

    assert after(20) < after(1)


def test_the_true_gradient_never_leaves_where_no_candidate_lowers_the_loss():
    """The public code sends it then. Here every candidate has an infinite or the same loss."""
    for loss in (lambda out, y: out.sum() * float("inf"), lambda out, y: out.sum() * 0):
        own = made(loss)
        update = np.ones(own.flat.size, np.float32)
        sent = Censor(trials=3)(update, own)
        assert not np.array_equal(sent, update)
        for slot in own.flat.slots:
            assert abs(sent[slot.offset : slot.offset + slot.size].astype(np.float64).sum()) < 1e-5 * slot.size


def test_a_person_who_knows_the_draws_computes_the_gradient_back():
    """v = s (u - (u.g^) g^): with u known, g^ is along u - v / s. This is why the draws are secret in a secure run."""
    rng = np.random.default_rng(7)
    g = rng.standard_normal(50)
    u = np.random.default_rng(1).standard_normal(50)
    v = at_right_angle(g, u)
    kept = u @ v / (v @ v)  # 1 / s: v is at a right angle to g
    found = u - kept * v
    assert abs(found @ g) / (np.linalg.norm(found) * np.linalg.norm(g)) > 1 - 1e-9
