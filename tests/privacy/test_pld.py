"""Privacy loss distributions: against closed forms, a slow direct convolution, and dp-accounting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from sordino.privacy import gdp, pld
from sordino.privacy.pld import Pure, ReplacedGaussian, SampledGaussian, SampledLaplace


def once(pair, epsilon):
    """delta of one use, in both directions, in closed form."""
    if isinstance(pair, SampledGaussian):
        q, z = pair.rate, pair.multiplier

        def over(x, sign):  # mass of (mixture, base) beyond the point where the loss is sign * epsilon
            base = norm.sf(x / z) if sign > 0 else norm.cdf(x / z)
            moved = norm.sf((x - 1) / z) if sign > 0 else norm.cdf((x - 1) / z)
            return (1 - q) * base + q * moved, base

        e = math.exp(epsilon)
        mixed, base = over(z**2 * math.log((e - 1 + q) / q) + 0.5, 1)
        there = mixed - e * base
        back = 0.0
        if 1 / e > 1 - q:
            mixed, base = over(z**2 * math.log((1 / e - 1 + q) / q) + 0.5, -1)
            back = base - e * mixed
        return there, back
    raise TypeError(pair)


@pytest.mark.parametrize("rate, multiplier", [(1.0, 0.8), (0.1, 1.0), (0.01, 0.5), (0.6, 3.0)])
def test_one_gaussian_is_its_closed_form(rate, multiplier):
    pair = SampledGaussian(rate, multiplier)
    for epsilon in (0.0, 0.05, 0.5, 1.5):
        there, back = once(pair, epsilon)
        step = pld.grid_step({pair: 1})
        found = [direction.delta(epsilon) for direction in pld.compose({pair: 1}, 1e-8)]
        wanted = [there] if rate == 1 else [there, back]
        for ours, exact in zip(found, wanted):
            # Connecting the dots never goes below the curve, and hugs it.
            assert exact * (1 - 1e-9) <= ours <= exact * (1 + step) + 1e-4 * step + 1e-13


def test_the_dots_keep_both_probabilities():
    pair = SampledGaussian(0.2, 1.1)
    cells = pair.cells(1e-3, 1e-20)
    dots = cells.dots()
    assert dots.mass.min() >= 0
    assert dots.mass.sum() + dots.infinite == pytest.approx(1.0, abs=1e-12)
    # E_P[e^-loss] is the mass of Q.
    assert float(np.sum(dots.mass * np.exp(-dots.losses))) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    "pair", [SampledGaussian(0.3, 1.0), ReplacedGaussian(0.3, 2.0), SampledLaplace(0.3, 1.5), Pure(0.4)], ids=repr
)
def test_composition_is_the_direct_convolution(pair):
    step, count = 2e-3, 3
    fast = pld.compose({pair: count}, 1e-6, step)
    cells = pair.cells(step, 1e-13)
    for direction, dots in zip(fast, [cells.dots(), cells.turned().dots()]):
        mass, low = dots.mass, dots.low
        for _ in range(count - 1):
            mass, low = np.convolve(mass, dots.mass), low + dots.low
        losses = step * (low + np.arange(len(mass)))
        for epsilon in (0.0, 0.3, 0.9):
            slow = float(np.sum(mass * np.maximum(-np.expm1(epsilon - losses), 0)))
            assert slow <= direction.delta(epsilon) + 1e-15
            assert direction.delta(epsilon) == pytest.approx(slow, rel=1e-6, abs=1e-11)


@pytest.mark.parametrize(
    "pair", [SampledGaussian(0.3, 1.0), SampledLaplace(0.1, 0.7), ReplacedGaussian(0.1, 1.0)], ids=repr
)
def test_epsilon_and_delta_are_inverse(pair):
    for direction in pld.compose({pair: 20}, 1e-5):
        for delta in (1e-2, 1e-4, 1e-5):
            epsilon = direction.epsilon(delta)
            if epsilon > 0:
                assert direction.delta(epsilon) == pytest.approx(delta, rel=1e-6)


def test_unlike_pairs_compose_to_their_product():
    a, b = SampledGaussian(1.0, 3.0), SampledGaussian(1.0, 4.0)
    mu = gdp.compose(*[1 / 3.0] * 5, *[1 / 4.0] * 2)
    assert pld.epsilon({a: 5, b: 2}, 1e-5) == pytest.approx(gdp.epsilon(1e-5, mu), rel=3e-4)
    assert pld.epsilon({a: 5, b: 2}, 1e-5) >= gdp.epsilon(1e-5, mu)


def test_a_coarser_grid_is_on_the_private_side():
    for pair in (SampledGaussian(0.1, 1.0), ReplacedGaussian(0.1, 1.5), SampledLaplace(0.1, 1.0)):
        values = [pld.epsilon({pair: 50}, 1e-5, k * pld.STEP) for k in (1, 4, 16, 64)]
        assert values == sorted(values)
        assert values[-1] <= values[0] * 1.02


def test_laplace_is_its_closed_form():
    # One use: delta = 1 - exp((eps - 1/b) / 2); at the very top, pure epsilon.
    for b in (0.5, 2.0):
        for epsilon in (0.0, 0.3 / b, 0.9 / b):
            exact = -math.expm1((epsilon - 1 / b) / 2)
            assert pld.delta({SampledLaplace(1.0, b): 1}, epsilon) == pytest.approx(exact, rel=1e-3)
            assert pld.delta({SampledLaplace(1.0, b): 1}, epsilon) >= exact * (1 - 1e-12)
        assert pld.epsilon({SampledLaplace(1.0, b): 1}, 1e-9) == pytest.approx(1 / b, rel=1e-6)
        assert pld.epsilon({SampledLaplace(1.0, b): 3}, 1e-300) <= 3 / b


def test_pure_composes_like_randomised_response():
    # Two uses of RR(1): losses 2, 0, -2 with probabilities p^2, 2p(1-p), (1-p)^2.
    p = 1 / (1 + math.exp(-1))
    exact = p**2 * -math.expm1(0.5 - 2)
    assert pld.delta({Pure(1.0): 2}, 0.5) == pytest.approx(exact, rel=1e-2)
    assert pld.delta({Pure(1.0): 2}, 0.5) >= exact
    assert pld.epsilon({Pure(1.0): 2}, 1e-12) == pytest.approx(2.0)


def test_so_small_a_delta_is_not_resolved_but_never_underestimated():
    pair = SampledGaussian(0.1, 1.0)
    found = pld.epsilon({pair: 100}, 1e-18)
    assert math.isinf(found) or found > pld.epsilon({pair: 100}, 1e-12)


@pytest.mark.parametrize(
    "rate, rounds, multiplier, delta",
    [(0.1, 200, 1.39, 1e-3), (0.05, 500, 1.03, 1e-6), (256 / 60000, 4680, 1.0, 1e-5), (0.5, 100, 5.0, 1e-5)],
)
def test_against_dp_accounting(rate, rounds, multiplier, delta):
    from dp_accounting.pld import privacy_loss_distribution

    theirs = privacy_loss_distribution.from_gaussian_mechanism(multiplier, sampling_prob=rate).self_compose(rounds)
    theirs = theirs.get_epsilon_for_delta(delta)
    same = pld.epsilon({SampledGaussian(rate, multiplier): rounds}, delta, pld.STEP)
    assert theirs <= same * (1 + 1e-9) and same == pytest.approx(theirs, rel=1e-6)
    ours = pld.epsilon({SampledGaussian(rate, multiplier): rounds}, delta)
    assert theirs <= ours <= theirs * (1 + 1e-3)


# --- exact Gaussians --------------------------------------------------------------------------------------------------


def test_gdp_is_exact_and_on_the_private_side():
    for mu in (0.01, 0.3, 1.0, 5.0, 40.0):
        for delta in (1e-2, 1e-5, 1e-12):
            epsilon = gdp.epsilon(delta, mu)
            assert gdp.delta(epsilon, mu) <= delta
            if epsilon > 0:
                assert gdp.delta(epsilon * (1 - 1e-9) - 1e-12, mu) > delta * (1 - 1e-6)
    for epsilon in (0.01, 1.0, 30.0):
        for delta in (1e-2, 1e-8):
            mu = gdp.mu(epsilon, delta)
            assert gdp.delta(epsilon, mu) <= delta < gdp.delta(epsilon, mu * (1 + 1e-6))
    # Balle and Wang: Phi(mu/2) - Phi(-mu/2) at epsilon 0.
    assert gdp.delta(0.0, 1.0) == pytest.approx(norm.cdf(0.5) - norm.cdf(-0.5), rel=1e-12)
    assert gdp.epsilon(1e-5, 0.0) == 0.0 and gdp.epsilon(1e-5, math.inf) == math.inf
    assert gdp.delta(1.0, math.inf) == 1.0 and gdp.delta(1.0, 0.0) == 0.0


def test_gdp_far_out_does_not_cancel():
    # At epsilon 50 and mu 5 both terms of the formula are tiny and nearly equal.
    log_delta = math.log(gdp.delta(50.0, 5.0))
    assert -36 < log_delta < -28
    assert gdp.delta(60.0, 5.0) < gdp.delta(50.0, 5.0)
