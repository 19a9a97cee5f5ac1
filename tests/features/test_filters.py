import numpy as np
import pytest

from sordino.errors import BadInput
from sordino.features import filters, generator

PICTURES = generator.images(60, (2, 14, 14), seed=1)


def test_responses_are_those_of_whitened_patches() -> None:
    bank = filters.build(PICTURES, (4, 3), 10, seed=5, symmetric=False)
    assert bank.weights.shape == (10, 2 * 4 * 3) and len(bank) == 10
    # The slow version: whiten patches, take unit patches as filters, and compare z up to the rounding to 2^-14.
    rng = filters.stream(5, 0, 0, "filters 4 x 3")
    p = filters.normalised(filters._patches(PICTURES, (4, 3), 100_000, rng), filters.FLOOR)
    m, c = p.mean(axis=0), np.cov(p, rowvar=False, bias=True)
    values, vectors = np.linalg.eigh(c)
    w = vectors @ np.diag((np.maximum(values, 0) + filters.OFFSET) ** -0.5) @ vectors.T
    chosen = (p[rng.permutation(len(p))[:10]] - m) @ w
    chosen /= np.linalg.norm(chosen, axis=1, keepdims=True)
    slow = (p[:500] - m) @ w @ chosen.T
    fast = p[:500] @ bank.weights.T + bank.bias
    assert np.abs(slow - fast).max() < 0.005
    assert 0.3 < slow.std() < 1.1


def test_a_symmetric_bank_answers_mirrored_patches_with_mirrored_filters() -> None:
    bank = filters.build(PICTURES, (4, 4), 8, seed=5)
    turned = bank.mirrored()
    patch = np.random.default_rng(0).normal(size=(3, 2, 4, 4))
    there = patch.reshape(3, -1) @ bank.weights.T + bank.bias
    back = patch[..., ::-1].reshape(3, -1) @ turned.weights.T + turned.bias
    assert np.allclose(there, back, atol=1e-5)
    assert np.array_equal(turned.mirrored().weights, bank.weights)


def test_the_digest_names_the_filters() -> None:
    bank = filters.build(PICTURES, (4, 4), 8, seed=5)
    again = filters.build(PICTURES, (4, 4), 8, seed=5)
    assert bank.digest == again.digest and (bank.weights == again.weights).all()
    other = filters.build(PICTURES, (4, 4), 8, seed=6)
    assert bank.digest != other.digest
    weights = bank.weights.copy()
    weights[0, 0] += 2.0**-14
    assert filters.FilterBank(2, (4, 4), weights, bank.bias).digest != bank.digest
    # The last bits of a linear algebra library do not show.
    assert (bank.weights * 2**14 == np.rint(bank.weights * 2**14)).all()


def test_normalised_patches_by_hand() -> None:
    # Mean 2, variance 1: (1 - 2) / sqrt(1 + 3) = -1/2.
    assert filters.normalised(np.array([[1.0, 3.0, 1.0, 3.0]]), floor=3.0).tolist() == [[-0.5, 0.5, -0.5, 0.5]]
    assert filters.normalised(np.full((1, 4), 7.0), floor=1e-4).tolist() == [[0.0] * 4]


def test_patches_larger_than_the_picture_are_refused() -> None:
    with pytest.raises(BadInput, match="15 x 4 does not fit a picture of 14 x 14"):
        filters.build(PICTURES, (15, 4), 8, seed=0)
