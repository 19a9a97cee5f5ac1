import numpy as np

from sordino.features.levels import ENDS, KNOTS, levels, size, standardised


def test_levels_by_hand() -> None:
    """A deviation of 4 lies on the knot 2; one of 3 between 1 and 2; a mean of 0 on the knot 0."""
    entries = levels(np.array([0.0, 0.0]), np.array([4.0, 3.0])).reshape(2, 2, KNOTS)
    assert entries.size == size(2)
    zero = -ENDS[0]
    assert entries[0, 0, zero + 2] == 1 and entries[0, 1, zero] == 1
    part = np.log2(3) - 1
    assert np.allclose(entries[1, 0, zero + 1 : zero + 3], [1 - part, part])
    assert np.allclose(entries.sum(axis=2), 1)


def test_a_scale_moves_the_deviation_alone() -> None:
    signal = np.random.default_rng(0).normal(3.0, 2.0, (1, 50))
    (plain, one), (scaled, other) = standardised(signal), standardised(1024 * signal)
    assert np.allclose(plain, scaled, atol=1e-6)
    one, other = one.reshape(2, KNOTS), other.reshape(2, KNOTS)
    assert np.allclose(one[1], other[1], atol=1e-6) and np.allclose(one[0, :-10], other[0, 10:], atol=1e-6)


def test_missing_huge_and_constant_values_stay_finite() -> None:
    signal = np.array([[1.0, np.nan, 3.0, np.inf], [1e300, -1e300, 0, 0], [5, 5, 5, 5], [np.nan] * 4])
    scaled, entries = standardised(signal)
    assert np.isfinite(scaled).all() and np.isfinite(entries).all()
    assert np.allclose(scaled[0], [-1, 0, 1, 0]) and (scaled[2:] == 0).all()
    assert np.allclose(entries.reshape(-1, KNOTS).sum(axis=1), 1)
