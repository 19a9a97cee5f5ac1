"""Directions above the floor are flattened, those that noise explains are left, and the rest of a row grows."""

from __future__ import annotations

import numpy as np

from sordino.features import flatten
from sordino.privacy import products

Q, RECORDS = 40, 2000


def test_by_hand():
    """Two directions of variance 0.9 and 0.1, a floor of 0.1 and so a factor of sqrt(0.2 / 1) on the first."""
    noise = 0.1 / flatten.floor(2, 1.0)
    found = flatten.flattening(np.diag([0.9, 0.1]), noise)
    assert np.allclose(found, np.diag([np.sqrt(0.2), 1.0]))


def noisy(covariance: np.ndarray, noise: float, seed: int) -> np.ndarray:
    q = len(covariance)
    numbers = np.random.Generator(np.random.PCG64(seed)).standard_normal(products.length(q)) * noise
    return covariance + products.matrix(numbers, q)


def test_noise_alone_lies_within_its_edge():
    """The largest eigenvalue of noise is about s sqrt(2 q): the floor is a quarter of it."""
    for noise in (1e-4, 1e-2):
        largest = np.mean([np.linalg.eigvalsh(noisy(np.zeros((Q, Q)), noise, seed))[-1] for seed in range(20)])
        assert 0.85 < largest * flatten.FLOOR / flatten.floor(Q, noise) < 1.1


def test_a_direction_that_rules_is_found_through_noise_and_shrunk_to_the_floor():
    turn = np.linalg.qr(np.random.Generator(np.random.PCG64(1)).standard_normal((Q, Q)))[0]
    variances = np.full(Q, 0.1 / (Q - 1))
    variances[0] = 0.9
    covariance = (turn * variances) @ turn.T
    noise = 0.002
    found = flatten.flattening(noisy(covariance, noise, 0), noise)
    left = turn[:, 0] @ found @ covariance @ found @ turn[:, 0]
    floor = flatten.floor(Q, noise)
    assert floor < left < 3 * floor < 0.1
    others = np.trace(found @ covariance @ found) - left
    assert 0.6 * 0.1 < others < 0.1  # what told records apart is hardly touched


def test_flattening_is_symmetric_and_lengthens_nothing():
    found = flatten.flattening(noisy(np.eye(Q) / Q, 0.01, 3), 0.01)
    assert np.allclose(found, found.T) and np.linalg.eigvalsh(found).max() <= 1 + 1e-9
