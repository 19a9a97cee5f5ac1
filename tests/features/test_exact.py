"""Products whose bits do not depend on neighbours: near the plain product, and the same in any order, for any matrix."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.features.exact import product


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("numbers", [1, 7, 500, 9000])
def test_near_the_plain_product(numbers):
    draws = np.random.Generator(np.random.PCG64(0))
    rows, matrix = unit(draws.standard_normal((20, numbers))), draws.standard_normal((numbers, 11))
    assert np.abs(product(rows, matrix) - rows @ matrix).max() < 1e-4 * np.abs(matrix).max()


@pytest.mark.parametrize("numbers", [5, 300, 2000])
@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_the_same_bits_in_any_order_and_among_any_neighbours(numbers, size):
    draws = np.random.Generator(np.random.PCG64(1))
    rows = unit(np.concatenate([draws.standard_normal((60, numbers)), np.ones((37, numbers))]))
    matrix = draws.standard_normal((numbers, 13))
    matrix[:, 5:] -= matrix[:, 5:].mean(axis=0)  # rows of ones cancel
    matrix *= size
    whole, turned = product(rows, matrix), draws.permutation(numbers)
    assert np.array_equal(product(rows[:, turned], matrix[turned]), whole)
    for some in (slice(0, 1), slice(1, None), slice(40, 83)):
        assert np.array_equal(product(rows[some], matrix), whole[some])


def test_longest_rows_and_largest_sums_are_exact():
    """Every number as large as it may be, and odd: sums fill all the bits that they have."""
    rows, matrix = np.full((3, 2048), 1 / np.sqrt(2048)), np.full((2048, 2), 1 - 2.0**-17)
    rows[:, 0] = 1.0
    steps = [int(x) for x in np.rint(np.ldexp(rows[0], 52 - 17 - 11))]
    whole = sum(step * (2**17 - 1) for step in steps)
    assert product(rows, matrix)[0, 0] == whole / 2.0 ** (52 - 11)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite(value):
    """A row that is not finite is lost alone; under a matrix that is not, all are."""
    rows, matrix = np.eye(3), np.eye(3)
    rows[1, 1] = value
    found = product(rows, matrix)
    assert np.array_equal(found[[0, 2]], np.eye(3)[[0, 2]]) and not np.isfinite(found[1]).all()
    assert np.isnan(product(np.eye(3), np.where(np.eye(3) > 0, value, 0.0))).all()


def test_nothing():
    assert product(np.zeros((0, 3)), np.eye(3)).shape == (0, 3)
    assert not product(np.ones((2, 3)), np.zeros((3, 4))).any()
