"""Columns to mean 0 and deviation 1: numbers by hand, ranges that are found, contributions within length 1."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.errors import BadInput
from sordino.preparation import Standard, preparation_from
from sordino.preparation.standard import BUCKETS


def played(settings: Standard, x: np.ndarray, noise: float = 0.0) -> list[np.ndarray]:
    """All statistics of a table without noise (or with what `noise` says was added)."""
    stages, released = settings.stages(x.shape[1:]), []
    for step in range(len(settings.statistics)):
        rows = np.concatenate(list(stages.contributions(step, x, released)))
        assert rows.shape == (len(x), stages.length(step))
        assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-12
        released.append(stages.decode(step, rows.mean(axis=0), noise))
    return released


def test_two_records_by_hand_within_public_ranges():
    """Range 0 to 10: the middle is 5, so 2 and 6 are -0.6 and 0.2; mean -0.2, mean square 0.2, deviation 0.4."""
    settings, x = Standard(low=(0.0,), high=(10.0,)), np.array([[2.0], [6.0]])
    released = played(settings, x)
    assert released[0] == pytest.approx([-0.2, 0.4])
    assert settings.stages((1,)).apply(x, released).ravel() == pytest.approx([-1.0, 1.0])


def test_ranges_are_found_and_columns_are_scaled():
    rng = np.random.Generator(np.random.PCG64(0))
    x = rng.normal([0, 50, -3000, 1e-3], [1, 5, 700, 1e-4], (4000, 4))
    out = Standard().stages((4,)).apply(x, played(Standard(), x, noise=1e-4))
    assert np.abs(out.mean(axis=0)).max() < 0.2
    assert out.std(axis=0).min() > 0.4 and out.std(axis=0).max() < 1.2


def test_other_columns_stay_and_missing_numbers_become_nothing():
    x = np.array([[1.0, 7.0], [np.nan, 8.0], [3.0, np.inf]])
    settings = Standard(columns=(0,), low=(0.0,), high=(4.0,))
    out = settings.stages((2,)).apply(x, played(settings, x))
    assert out[1, 0] == 0 and out[:2, 1].tolist() == [7.0, 8.0]
    assert np.isfinite(out[:, 0]).all() and out.dtype == np.float32


def test_no_value_is_far_out_and_a_constant_column_is_quiet():
    x = np.full((50, 2), 3.0)
    x[0, 1] = 1e30
    out = Standard(cut=4.0).stages((2,)).apply(x, played(Standard(), x, noise=1e-3))
    assert np.abs(out).max() <= 4.0 and np.abs(out[:, 0]).max() < 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"share": 0.0}, {"share": 1.0}, {"low": (0.0,)}, {"low": (1.0,), "high": (1.0,)}, {"columns": ()}, {"columns": (1, 1)},
        {"columns": (0, 1), "low": (0.0,), "high": (1.0,)}, {"cut": -1.0}, {"colour": "red"}, {"kind": "magic"},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(BadInput):
        preparation_from({"kind": "standard"} | wrong)


@pytest.mark.parametrize(("settings", "shape"), [(Standard(), (3, 8, 8)), (Standard(columns=(5,)), (3,))])
def test_records_that_are_no_table_are_refused(settings, shape):
    with pytest.raises(BadInput):
        settings.stages(shape)


def test_settings_survive_plain_data():
    settings = Standard(share=0.1, columns=(0, 2), low=(0.0, 1.0), high=(1.0, 2.0))
    assert preparation_from(settings.to_json()) == settings
    assert BUCKETS == 51


def noisy(x: np.ndarray, noise: float, seed: int = 0) -> np.ndarray:
    """A table scaled by statistics whose means have this noise."""
    stages, released, rng = Standard().stages(x.shape[1:]), [], np.random.Generator(np.random.PCG64(seed))
    for step in range(2):
        mean = np.concatenate(list(stages.contributions(step, x, released))).mean(axis=0)
        released.append(stages.decode(step, mean + noise * rng.standard_normal(mean.shape), noise))
    return stages.apply(x, released)


def test_columns_that_are_scaled_already_stay_so_under_heavy_noise():
    """500 records at epsilon 1: no bucket stands out of the noise, all of them together do."""
    x = np.random.Generator(np.random.PCG64(1)).standard_normal((500, 3))
    for seed in range(8):
        out = noisy(x, 0.03, seed)
        assert 0.5 < out.std(axis=0).min() and out.std(axis=0).max() < 2
        assert np.corrcoef(out.T, x.T)[range(3), range(3, 6)].min() > 0.97  # nothing was cut off


@pytest.mark.parametrize("column", ["around 440", "mostly zero", "zero or one", "income"])
def test_shapes_that_columns_have_are_recognised(column):
    rng = np.random.Generator(np.random.PCG64(2))
    draws = {
        "around 440": 440 + 30 * rng.standard_normal(3000),
        "mostly zero": np.where(rng.random(3000) < 0.7, 0.0, rng.exponential(40, 3000)),
        "zero or one": (rng.random(3000) < 0.3).astype(float),
        "income": 30_000 * np.exp(0.8 * rng.standard_normal(3000)),
    }
    out = noisy(draws[column][:, None], 0.003)
    assert abs(out.mean()) < 0.6 and 0.4 < out.std() < 2


def test_with_noise_alone_moments_are_those_of_the_shape():
    """A noise of 1 on the moments: the mean is drawn to 0.35^2 / (0.35^2 + 1) = 0.109 of what was heard."""
    stages = Standard().stages((1,))
    released = stages.decode(1, np.array([0.5, 0.0]) / np.sqrt(2), 1 / np.sqrt(2))
    assert released[0] == pytest.approx(0.5 * 0.109, rel=0.01)
    assert 0.2 / 2.5 <= released[1] < 1.0
