"""Numbers of a model's answer: by the plain formulas, and where the plain formulas break down."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.attacks import features


def some(seed: int = 0, scale: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.Generator(np.random.PCG64(seed))
    return scale * rng.normal(size=(50, 6)), rng.integers(0, 6, 50)


def test_plain_formulas():
    logits, y = some()
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    rows = np.arange(len(y))
    mine = p[rows, y]
    assert np.allclose(features.softmax(logits), p)
    assert np.allclose(features.confidence(logits, y), mine)
    assert np.allclose(features.log_odds(logits, y), np.log(mine / (1 - mine)))
    assert np.allclose(features.loss(logits, y), -np.log(mine))
    assert np.allclose(features.entropy(logits), -(p * np.log(p)).sum(1))
    expected = []
    for row, label in zip(p, y):
        others = sum(q * np.log(1 - q) for j, q in enumerate(row) if j != label)
        expected.append(-(1 - row[label]) * np.log(row[label]) - others)
    assert np.allclose(features.modified_entropy(logits, y), expected)
    others = np.array([max(z for j, z in enumerate(row) if j != label) for row, label in zip(logits, y)])
    assert np.allclose(features.margin(logits, y), logits[rows, y] - others)
    assert np.allclose(features.largest(logits, 3), np.sort(p, 1)[:, ::-1][:, :3])


@pytest.mark.parametrize("scale", [50.0, 400.0])
def test_certain_answers_stay_finite_and_in_order(scale):
    logits, y = some(1, scale)
    for f in (features.log_odds, features.modified_entropy, features.loss, features.margin):
        assert np.isfinite(f(logits, y)).all(), f.__name__
    one = np.array([[40.0, 0.0, 0.0], [60.0, 0.0, 0.0]])  # both are 1 in double precision
    assert features.softmax(one)[0, 0] == 1.0
    surer = features.log_odds(one, np.zeros(2, int))
    assert surer[1] - surer[0] == pytest.approx(20)
    entropies = features.modified_entropy(one, np.zeros(2, int))
    assert 0 < entropies[1] < entropies[0] < 1e-15
