"""The reconstruction bound: closed forms, and a real attacker on either side of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from sordino.attacks.inversion.robustness import (
    bound_from_epsilon,
    bound_from_profile,
    prior_chance,
    reconstruction_bound,
)
from sordino.errors import BadInput
from sordino.privacy import events
from sordino.privacy.vocabulary import Relation


@pytest.mark.parametrize("z, rounds, kappa", [(1.0, 1, 0.1), (0.6, 1, 1e-3), (4.0, 100, 0.01), (2.0, 4, 0.5)])
def test_gaussians_without_sampling_have_a_closed_form(z, rounds, kappa):
    wanted = norm.cdf(norm.ppf(kappa) + math.sqrt(rounds) / z)
    found = reconstruction_bound(events.repeated(events.gaussian(z), rounds), kappa)
    assert wanted - 1e-9 <= found <= wanted * 1.001


def test_sampling_makes_reconstruction_harder_and_replacing_easier():
    plain = reconstruction_bound(events.gaussian(0.8), 0.01)
    assert reconstruction_bound(events.poisson(0.1, events.gaussian(0.8)), 0.01) < plain
    assert reconstruction_bound(events.gaussian(0.8), 0.01, Relation.REPLACE_ONE) > plain


def test_ends():
    assert reconstruction_bound(events.nonprivate("published"), 0.01) == 1.0
    assert reconstruction_bound(events.gaussian(1.0), 1.0) == pytest.approx(1.0)
    assert bound_from_epsilon(math.inf, 0.0, 0.01) == 1.0
    assert bound_from_epsilon(1.0, 0.0, 0.01) == pytest.approx(0.01 * math.e)
    assert bound_from_profile(lambda epsilon: 0.0 if epsilon >= 1 else 1.0, 0.01) == pytest.approx(
        0.01 * math.e, rel=1e-2
    )
    for kappa in (0.0, -1.0, 1.5):
        with pytest.raises(BadInput, match="kappa"):
            reconstruction_bound(events.gaussian(1.0), kappa)


@pytest.mark.parametrize("z", [0.7, 1.5])
def test_an_attacker_that_knows_the_prior_stays_below_the_bound_and_above_chance(z):
    """Ten candidates of norm 1 in orthogonal directions, one release with noise z: the best guess is the largest coordinate."""
    rng, candidates, games = np.random.default_rng(0), 10, 40_000
    noisy = z * rng.standard_normal((games, candidates))
    noisy[:, 0] += 1.0  # the record is candidate 0, by symmetry
    won = float((noisy.argmax(1) == 0).mean())
    bound = reconstruction_bound(events.gaussian(z), 1 / candidates)
    slack = 4 * math.sqrt(0.25 / games)
    assert 1 / candidates + slack < won < bound + slack
    assert won > reconstruction_bound(
        events.gaussian(4 * z), 1 / candidates
    )  # a claim of four times the noise is caught


def test_chance_counts_the_population_that_one_guess_is_near_to():
    rng = np.random.default_rng(0)
    noise = rng.random((20, 1, 16, 16))
    assert prior_chance(noise, 0.5, guesses=20) == pytest.approx(1 / 20)
    alike = np.repeat(noise[:1], 20, 0)
    assert prior_chance(alike, 0.5, guesses=2) == 1.0
    with pytest.raises(BadInput, match="at least 2"):
        prior_chance(noise[:1], 0.5)
