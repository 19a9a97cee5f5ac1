"""What a held-out record adds to the noisy sum, worked out by hand, and what the sum says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sordino import BadInput
from sordino.data.schema import Scale
from sordino.noisy_figures import HALF, Measure


def test_classes_by_hand():
    """Four records of two classes; the second is taken for the other class."""
    measure = Measure("classification", ("no", "yes"))
    scores = np.array([[2.0, 1.0], [0.0, 3.0], [0.0, 1.0], [1.0, 5.0]])
    rows = measure.contributions(scores, np.array([0, 0, 1, 1]))
    # +-1, then for each class: wrong, right
    want = np.array([[1, 0, 1, 0, 0], [-1, 1, 0, 0, 0], [1, 0, 0, 0, 1], [1, 0, 0, 0, 1]]) * HALF
    assert np.allclose(rows, want)
    found = measure.read(rows.mean(0), 0.0, 4, "example")
    assert found.accuracy == pytest.approx(0.75) and found.majority == pytest.approx(0.5)
    assert [one.recall for one in found.classes] == pytest.approx([0.5, 1.0])
    assert found.balanced_accuracy == pytest.approx(0.75)
    assert found.interval[0] < 0.75 < found.interval[1]


def test_labels_and_numbers_by_hand():
    labels = Measure("multi-label", ("a", "b"))
    rows = labels.contributions(np.array([[1.0, -1.0], [1.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert rows[:, 0].tolist() == [1.0, 0.0]  # both right; one of two
    assert labels.read(rows.mean(0), 0.0, 2, "example").accuracy == pytest.approx(0.75)
    # The span is 0 to 100, which is -1 to 1 for the model: 10 and 30 off, 50 and 0 from the middle.
    numbers = Measure("regression", ("price",), Scale(range=(0.0, 100.0)))
    rows = numbers.contributions(np.array([[0.8], [0.6]]), np.array([[1.0], [0.0]]))
    found = numbers.read(rows.mean(0), 0.0, 2, "example")
    assert found.mae == pytest.approx(20.0) and found.mae_of_middle == pytest.approx(25.0)
    with pytest.raises(BadInput, match="label_scale"):
        Measure("regression", ("price",), Scale(as_is=True))


@pytest.mark.parametrize("task", ["classification", "multi-label", "regression"])
def test_no_record_adds_more_than_one(task):
    measure = Measure(task, ("a", "b"), Scale(mean=0.0, std=1.0))
    rng = np.random.Generator(np.random.PCG64(0))
    scores = np.concatenate([rng.normal(size=(50, 2)) * 10.0**k for k in range(-3, 30, 8)])
    scores = np.concatenate([scores, [[np.nan, 1.0], [np.inf, -np.inf], [np.nan, np.nan]]])
    y = rng.integers(0, 2, len(scores)) if task == "classification" else rng.normal(size=(len(scores), 2)) * 1e9
    rows = measure.contributions(scores, y)
    assert np.isfinite(rows).all() and np.linalg.norm(rows, axis=1).max() <= 1 + 1e-12


def test_the_interval_holds_what_it_says():
    """Noise and draw together: the true accuracy lies within in about 95 of 100 cases, and not in nearly all."""
    measure, rng, tested, noise, true = (
        Measure("multi-label", ("a",)),
        np.random.Generator(np.random.PCG64(1)),
        200,
        0.05,
        0.8,
    )
    within = 0
    for _ in range(1000):
        right = rng.random(tested) < true
        mean = np.array([np.where(right, 1.0, -1.0).mean() + rng.normal() * noise])
        low, high = measure.read(mean, noise, tested, "example").interval
        within += low <= true <= high
    assert 930 <= within <= 970


def test_a_class_that_noise_could_have_made_is_not_judged():
    measure = Measure("classification", ("common", "rare"))
    mean = np.array([0.8, 0.1, 0.88, 0.01, 0.01]) * HALF
    found = measure.read(mean, 0.05 * HALF, 100, "example")
    assert found.classes[0].recall == pytest.approx(0.88 / 0.98) and found.classes[1].recall is None
    assert found.balanced_accuracy is None and found.noise == pytest.approx(0.025)
    assert found.warnings and "common" in found.warnings[0]  # right in 90%, naming the common class in 98%
    assert math.isclose(found.majority, 0.98)
