import math

import numpy as np
import pytest

from sordino.errors import BadInput
from sordino.features import statistics
from sordino.privacy import accounting, events
from sordino.privacy.mechanisms import FixedPoint
from sordino.privacy.randomness import stream
from sordino.privacy.release import _open


def unit_rows(n: int, d: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_two_clients_by_hand() -> None:
    grid = FixedPoint.for_bound(statistics.BOUND, 3)
    mean = statistics.Mean(1.0, 2)
    # (3, 4) is clipped to (0.6, 0.8); (0, 0.5) stays; a row that is not finite counts as zero.
    first = _open(mean.sum(np.array([[3.0, 4.0], [0.0, 0.5]]), grid)).decode()
    second = _open(mean.sum(np.array([[np.nan, 0.0]]), grid)).decode()
    assert np.allclose(first, [0.6, 1.3], atol=1e-4) and (second == 0).all()


def test_the_covariance_of_known_rows() -> None:
    rows = unit_rows(50, 6)
    directions = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 3)))[0].T
    asked = statistics.Covariance(1.0, directions)
    assert asked.length == 6
    inside = rows @ directions.T
    assert np.allclose(asked.decode(asked.contributions(rows).sum(axis=0), 50), inside.T @ inside / 50)


def test_no_example_adds_more_than_the_bound() -> None:
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.normal(size=(6, 3)))[0].T
    grid = FixedPoint.for_bound(statistics.BOUND, 10)
    for asked in (statistics.Mean(1.0, 6), statistics.Covariance(1.0, directions)):
        for size in (1e-3, 1.0, 1 + 1e-7, 50.0, 1e200, np.inf):
            with np.errstate(all="ignore"):
                row = unit_rows(1, 6, seed=3) * size
                alone = _open(asked.sum(row, grid)).decode()
            assert np.linalg.norm(alone) <= statistics.SENSITIVITY
        # Along the subspace the bound is reached: the noise is not larger than it need be.
        assert np.linalg.norm(_open(asked.sum(directions[:1], grid)).decode()) > 0.999


def test_clients_sums_have_the_same_bits_in_any_order() -> None:
    rows = unit_rows(700, 9)
    asked = statistics.Mean(5.0, 9)
    one, _ = statistics.release(asked, [rows], stream(0, 0, 0, "test"))
    other, _ = statistics.release(asked, [rows[400:], rows[:1], rows[1:400]], stream(0, 0, 0, "test"))
    assert (one.value == other.value).all()


def test_noise_is_that_of_the_multiplier() -> None:
    asked = statistics.Mean(4.0, 20_000)
    released, event = statistics.release(asked, [np.zeros((10, 20_000))], stream(1, 0, 0, "test"))
    spread = released.value.std() * 10
    assert event == events.gaussian(4.0) == asked.event
    error = 4.0 * 3.9 / math.sqrt(2 * 20_000)  # four standard errors of a standard deviation
    assert abs(spread - 4.0) < error
    assert abs(spread - 4.0 * 2 / 3) > error and abs(spread - 4.0 * 3 / 2) > error


def test_an_empty_client_is_part_of_the_sum() -> None:
    rows = unit_rows(5, 3)
    released, _ = statistics.release(statistics.Mean(1e-6, 3), [rows, rows[:0]], stream(0, 0, 0, "test"))
    assert np.allclose(released.value, rows.mean(axis=0), atol=1e-4)
    with pytest.raises(BadInput, match="examples"):
        statistics.release(statistics.Mean(1.0, 3), [rows[:0]], stream(0, 0, 0, "test"))


def test_statistics_are_charged_with_the_head() -> None:
    head = events.repeated(events.poisson(0.1, events.gaussian(3.0)), 20)
    whole = statistics.composed([statistics.Mean(10.0, 3), statistics.Covariance(8.0, np.eye(3))], head)
    assert accounting.epsilon(whole, 1e-5).epsilon > accounting.epsilon(head, 1e-5).epsilon
    joint = events.composed([events.joint(10.0, 8.0), head])
    assert accounting.epsilon(whole, 1e-5).epsilon == pytest.approx(accounting.epsilon(joint, 1e-5).epsilon, rel=1e-9)


def test_the_norm_of_the_noise() -> None:
    asked = statistics.Covariance(2.0, np.eye(120))
    noise = asked.decode(2.0 * np.random.default_rng(0).standard_normal(asked.length), 1)
    assert np.linalg.norm(noise, 2) == pytest.approx(asked.noise_norm, rel=0.1)


def test_rows_of_another_dimension_are_refused() -> None:
    grid = FixedPoint.for_bound(statistics.BOUND, 3)
    with pytest.raises(BadInput, match="rows of 4 features"):
        statistics.Mean(1.0, 4).sum(unit_rows(3, 5), grid)
    with pytest.raises(BadInput, match="multiplier"):
        statistics.Mean(0.0, 4)
