"""The cosine of an unused direction has a known distribution; estimate and bound are two things."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sordino.audit import canary_clients
from sordino.privacy import gdp
from sordino.privacy.randomness import stream


@pytest.mark.parametrize("dimension", [3, 8, 200])
def test_scores_of_unused_directions_are_standard_normal(dimension):
    rng = stream(0, 0, 0, "sphere")
    directions = rng.standard_normal((4000, dimension))
    released = rng.standard_normal(dimension) ** 3  # anything at all
    cosines = directions @ released / np.linalg.norm(directions, axis=1) / np.linalg.norm(released)
    scores = canary_clients.scores(cosines, dimension)
    assert stats.kstest(scores, "norm").pvalue > 1e-3
    assert stats.kstest(scores * 1.5, "norm").pvalue < 1e-6


def test_scores_keep_their_digits_far_out():
    """In many dimensions a cosine of t has a score near t sqrt(b), also where its tail is far below the doubles' resolution."""
    assert canary_clients.scores(np.array([0.0]), 100)[0] == 0.0
    assert canary_clients.scores(np.array([0.01, -0.01]), 10**6) == pytest.approx([10, -10], rel=1e-3)


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_the_estimate_is_exact_for_the_gaussian_it_assumes(mu):
    assert canary_clients.estimate(mu, 1.0, 1e-5) == pytest.approx(gdp.epsilon(1e-5, mu), rel=1e-6)


@pytest.mark.parametrize(("mean", "deviation"), [(1.0, 1.3), (0.5, 0.7), (0.0, 2.0)])
def test_the_divergence_of_unequal_normals_against_a_sum(mean, deviation):
    x, step = np.linspace(-30, 30, 600_001, retstep=True)
    p, q = stats.norm.pdf(x), stats.norm.pdf(x, mean, deviation)
    for epsilon in (0.0, 0.7, 2.0):
        forth = float(np.maximum(q - math.exp(epsilon) * p, 0).sum() * step)
        back = float(np.maximum(p - math.exp(epsilon) * q, 0).sum() * step)
        assert canary_clients._delta(epsilon, mean, deviation) == pytest.approx(forth, abs=1e-8)
        assert canary_clients._delta_back(epsilon, mean, deviation) == pytest.approx(back, abs=1e-8)


@pytest.mark.parametrize("family", [True, False])
def test_the_bound_holds_and_the_estimate_does_not_have_to(family):
    rng, mu, above, over, found = stream(5, 0, 0, "shots"), 1.0, 0, 0, []
    true = gdp.epsilon(1e-5, mu)
    for _ in range(200):
        shot = canary_clients.one_shot(mu + rng.standard_normal(200), 1e-5, 0.95, family)
        above += shot.lower > true
        over += shot.estimate > true
        found.append(shot.lower)
    assert above <= 10
    assert over > 50, "an estimate lies above the truth as often as not"
    assert np.median(found) > (0.6 if family else 0.2) * true
