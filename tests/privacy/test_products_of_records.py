"""Sums of products: each record's contribution has length at most 1, whatever the record is, and neighbours differ by no more."""

from __future__ import annotations

import numpy as np
import pytest

from sordino import BadInput
from sordino.privacy import products
from sordino.privacy.mechanisms import FixedPoint


def outer(row: np.ndarray) -> np.ndarray:
    """The slow way: one record's products, written out."""
    q = len(row)
    pairs = [(i, i) for i in range(q)] + [(i, j) for i in range(q) for j in range(i + 1, q)]
    return np.array([row[i] * row[j] * (1 if i == j else np.sqrt(2)) for i, j in pairs])


def drawn(n: int, q: int, size: float = 1.0) -> np.ndarray:
    rows = np.random.Generator(np.random.PCG64(n + q)).standard_normal((n, q))
    return size * rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_sum_is_that_of_the_records_one_by_one():
    rows = drawn(40, 7, 0.9)
    assert np.allclose(products.total(rows), sum(outer(row) for row in rows), atol=1e-12)
    assert products.length(7) == 28 == len(products.total(rows))


def test_a_contribution_has_the_square_of_the_records_length():
    for size in (0.1, 0.5, 0.99):
        assert np.linalg.norm(products.total(drawn(1, 30, size))) == pytest.approx(size**2)


@pytest.mark.parametrize("size", [1.0, 1 + 1e-12, 5.0, 1e150, 1e308])
def test_a_longer_record_is_cut_to_a_little_less_than_one(size):
    row = np.zeros((1, 30))
    row[0, :2] = size, size / 2
    length = np.linalg.norm(products.total(row))
    assert 0.999 < length <= products.SHORT**2 * (1 + 1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_record_that_is_not_finite_adds_nothing(bad):
    rows = drawn(5, 6)
    wrong = np.vstack([rows, np.full((1, 6), bad), np.zeros((1, 6))])
    assert np.array_equal(products.total(wrong), products.total(rows))


def test_neighbours_differ_by_no_more_than_the_bound_on_the_grid():
    """Records that all point one way, so that rounding would add up if it could."""
    grid = FixedPoint.for_bound(1.0, 1001, 1000.0)
    for rows in (drawn(1000, 60), np.tile(drawn(1, 60), (1000, 1)), np.full((1000, 60), 1e200)):
        whole = grid.encode(products.total(rows))
        for left_out in (0, 500, 999):
            fewer = grid.encode(products.total(np.delete(rows, left_out, axis=0)))
            assert np.linalg.norm((whole - fewer) / grid.scale) <= 1.0


def test_a_matrix_comes_back():
    rows = drawn(50, 9)
    assert np.allclose(products.matrix(products.total(rows) / 50, 9), rows.T @ rows / 50, atol=1e-3)


@pytest.mark.parametrize("wrong", [np.zeros((products.MOST + 1, 2)), np.zeros(3), np.zeros((2, 2, 2))])
def test_what_is_no_block_of_records_is_refused(wrong):
    with pytest.raises(BadInput, match="Products are of at most"):
        products.total(wrong)
