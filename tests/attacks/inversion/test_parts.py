"""Priors, optimisers, labels, matching and metrics, each by hand or against a slow version."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from attacks.inversion.victims import CLASSES, Kinked, Smooth, message_of, records, victim_of
from sordino.attacks.inversion import metrics
from sordino.attacks.inversion.descent import LBFGS, SignedAdam
from sordino.attacks.inversion.gradient import Matcher
from sordino.attacks.inversion.labels import infer_labels
from sordino.attacks.inversion.matching import matched, squared_errors
from sordino.attacks.inversion.priors import consensus, energy, total_variation
from sordino.errors import BadInput


@pytest.mark.parametrize("prior", [total_variation, energy])
def test_slopes_of_priors_are_those_of_autograd(prior):
    x = torch.from_numpy(np.random.default_rng(0).random((2, 3, 1, 4, 5))).requires_grad_()
    value, slope = prior(x)
    (by_autograd,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(slope.detach(), by_autograd)


def test_priors_by_hand():
    x = torch.zeros(1, 1, 1, 2, 2)
    x[..., 0, 0] = 1.0
    assert float(total_variation(x)[0]) == pytest.approx(0.5 + 0.5)  # one of two differences, down and across
    assert float(energy(x)[0]) == pytest.approx(0.25)
    two = torch.stack([x[0], x[0] * 3])
    value, slope = consensus(two)  # 1 and 3 lie one from their mean, on one of four pixels
    assert value.tolist() == pytest.approx([0.25, 0.25])
    assert slope[0, 0, 0, 0, 0] == pytest.approx(-0.5) and slope[1, 0, 0, 0, 0] == pytest.approx(0.5)


# ---- optimisers --------------------------------------------------------------------------------------------------------


def valley(p: torch.Tensor) -> tuple[float, torch.Tensor]:
    """Rosenbrock's function; its least value is 0, at ones."""
    a, b = p[:-1], p[1:]
    slope = torch.zeros_like(p)
    slope[:-1] += -400 * a * (b - a * a) - 2 * (1 - a)
    slope[1:] += 200 * (b - a * a)
    return float((100 * (b - a * a) ** 2 + (1 - a) ** 2).sum()), slope


def two_loops(state: LBFGS) -> torch.Tensor:
    """The textbook recursion (Nocedal and Wright, algorithm 7.4)."""
    q, weights = state.slope.double().clone(), []
    steps, changes = state.pairs[0::2].double(), state.pairs[1::2].double()
    for s, y in zip(reversed(steps), reversed(changes)):
        weights.append((s @ q) / (y @ s))
        q = q - weights[-1] * y
    q = q * (steps[-1] @ changes[-1]) / (changes[-1] @ changes[-1])
    for s, y, weight in zip(steps, changes, reversed(weights)):
        q = q + s * (weight - (y @ q) / (y @ s))
    return -q


def test_lbfgs_finds_the_valley_and_takes_the_textbook_direction():
    state = LBFGS.start(torch.zeros(6), valley)
    for i in range(300):
        if i in (3, 10, 25) and len(state.pairs):
            torch.testing.assert_close(state._direction().double(), two_loops(state), rtol=1e-3, atol=1e-4)
        if state.stalled or state.value < 1e-8:
            break
        state.advance(valley)
    assert state.value < 1e-5 and torch.allclose(state.point, torch.ones(6), atol=1e-2)


def test_lbfgs_goes_on_from_its_arrays_to_the_same_bits():
    one = LBFGS.start(torch.zeros(6), valley)
    for _ in range(10):
        one.advance(valley)
    other = LBFGS.from_arrays({name: array.clone() for name, array in one.arrays().items()})
    for _ in range(10):
        one.advance(valley)
        other.advance(valley)
    assert torch.equal(one.point, other.point) and one.value == other.value


def test_lbfgs_stalls_where_nothing_lowers_the_value():
    state = LBFGS.start(torch.zeros(2), lambda p: (0.0, torch.ones(2)))  # a slope that lies
    for _ in range(3):
        state.advance(lambda p: (float(p.abs().sum() > 0), torch.ones(2)))
    assert state.stalled


def test_signed_adam_keeps_inside_the_box_and_takes_equal_first_steps():
    adam = SignedAdam.start(torch.tensor([0.5, 0.95]))
    adam.move(torch.tensor([-3.0, -1e-6]), 0.1, torch.zeros(1), torch.ones(1))
    assert adam.point.tolist() == pytest.approx([0.6, 1.0], abs=1e-5)


# ---- labels ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Smooth, Kinked])
@pytest.mark.parametrize("label", range(CLASSES))
def test_the_label_of_one_record_is_read_off_the_last_bias(kind, label):
    victim, (x, _) = victim_of(kind), records(1)
    message = message_of(victim, x, np.array([label]))
    assert infer_labels(Matcher(victim, message)).tolist() == [label]


def test_repeated_labels_are_counted():
    victim, (x, _) = victim_of(Smooth), records(4)
    for labels in ([0, 1, 2, 3], [2, 2, 2, 3], [1, 1, 1, 1]):
        message = message_of(victim, x, np.array(labels))
        assert infer_labels(Matcher(victim, message)).tolist() == labels


# ---- matching and metrics ----------------------------------------------------------------------------------------------


def test_matching_is_the_best_of_all_orders():
    rng = np.random.default_rng(0)
    a, b = rng.random((4, 1, 2, 2)), rng.random((4, 1, 2, 2))
    costs = squared_errors(a, b)
    best = min(itertools.permutations(range(4)), key=lambda order: sum(costs[i, j] for i, j in enumerate(order)))
    assert matched(a, b).tolist() == list(best)
    with pytest.raises(BadInput, match="2 originals and 1"):
        matched(a[:2], b[:1])


def test_metrics_by_hand():
    a = np.zeros((1, 16, 16))
    b = np.full((1, 16, 16), 0.1)
    found = metrics.likeness(a, b)
    # Flat images have no variance: SSIM is (2 mu mu' + C1) / (mu^2 + mu'^2 + C1) = 1e-4 / (0.01 + 1e-4)
    assert (found.mse, found.psnr) == (pytest.approx(0.01), pytest.approx(20.0))
    assert found.ssim == pytest.approx(1e-4 / 0.0101, rel=1e-6)
    same = metrics.likeness(b, b)
    assert (same.mse, same.psnr, same.ssim) == (0.0, metrics.EXACT, pytest.approx(1.0))
    mean = metrics.average([found, same])
    assert mean.psnr == pytest.approx(60.0) and mean.psnr > metrics.psnr(mean.mse)  # Jensen


def test_ssim_is_that_of_the_formula():
    """Wang et al. 2004, equation 13, at one pixel in the middle, with the Gaussian window written out."""
    from skimage.metrics import structural_similarity

    rng = np.random.default_rng(0)
    a, b = rng.random((15, 15)), rng.random((15, 15))
    side = np.exp(-(np.arange(-5, 6) ** 2) / (2 * 1.5**2))
    w = np.outer(side, side) / np.outer(side, side).sum()
    pa, pb = a[2:13, 2:13], b[2:13, 2:13]
    ma, mb = (w * pa).sum(), (w * pb).sum()
    va, vb, cov = (w * pa * pa).sum() - ma**2, (w * pb * pb).sum() - mb**2, (w * pa * pb).sum() - ma * mb
    c1, c2 = 1e-4, 9e-4
    wanted = (2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))
    how = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1.0, "full": True}
    assert structural_similarity(a, b, **how)[1][7, 7] == pytest.approx(wanted)
    assert metrics.ssim(a[None], b[None]) == pytest.approx(structural_similarity(a, b, **how)[0])


def test_metrics_refuse_what_is_not_a_picture():
    with pytest.raises(BadInput, match="between 0 and 1"):
        metrics.likeness(np.zeros((1, 8, 8)), np.full((1, 8, 8), 1.5))
    with pytest.raises(BadInput, match="of one shape"):
        metrics.likeness(np.zeros((1, 8, 8)), np.zeros((1, 8, 9)))
    assert metrics.psnr(0.0) == metrics.EXACT and math.isclose(metrics.psnr(0.1), 10.0)
