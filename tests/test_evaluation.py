"""Figures on public test data, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.data.schema import Scale
from sordino.evaluation import evaluate


def test_four_examples_of_two_classes():
    scores = np.log(np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.7, 0.3]]))
    found = evaluate(scores, np.array([0, 0, 1, 1]), "classification", ("no", "yes"))
    assert (found.accuracy, found.majority, found.balanced_accuracy) == (0.75, 0.5, 0.75)
    no, yes = found.classes
    assert (no.precision, no.recall, no.predicted) == (2 / 3, 1.0, 3) and (yes.precision, yes.recall) == (1.0, 0.5)
    assert found.confusion == ((2, 0), (1, 1)) and not found.warnings
    # each example is alone in its bin: |0.9-1|, |0.6-1|, |0.8-1|, |0.7-0|, a quarter each
    assert found.calibration_error == pytest.approx((0.1 + 0.4 + 0.2 + 0.7) / 4)


def test_a_model_that_is_no_better_than_a_guess_is_told():
    one = evaluate(np.array([[1.0, 0.0]] * 4), np.array([0, 0, 0, 1]), "classification", ("a", "b"))
    assert "names one class only (a)" in one.warnings[0] and one.classes[1].precision is None
    bad = evaluate(np.eye(2)[[1, 0, 0, 0]], np.array([0, 0, 1, 1]), "classification", ("a", "b"))
    assert "right in 25.0%" in bad.warnings[0] and "50.0%" in bad.warnings[0]


def test_numbers_are_in_the_units_of_the_table():
    found = evaluate(
        np.array([[0.0], [1.0]]), np.array([[0.0], [0.0]]), "regression", ("y",), Scale(mean=10.0, std=2.0)
    )
    assert found.rmse == pytest.approx(2 / np.sqrt(2)) and found.mae == 1.0 and found.warnings
    good = evaluate(np.array([[0.0], [1.0]]), np.array([[0.1], [1.1]]), "regression", ("y",))
    assert good.r2 == pytest.approx(1 - 0.01 / 0.25) and not good.warnings


def test_several_labels():
    found = evaluate(np.array([[1.0, -1.0], [1.0, 1.0]]), np.array([[1, 0], [0, 1]]), "multi-label", ("x", "y"))
    assert found.accuracy == 0.75 and found.majority == 0.5 and found.classes[0].precision == 0.5
