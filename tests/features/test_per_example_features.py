import numpy as np
import pytest

from sordino.errors import BadInput
from sordino.features import examples


def test_joined_by_hand() -> None:
    # Blocks (3, 4) and (0, 2) become (0.6, 0.8) and (0, 1); square roots; the sum of squares is 0.6 + 0.8 + 1 = 2.4.
    rows = examples.joined(np.array([[3.0, 4.0, 0.0, 2.0]], np.float32), [2, 2], 0.5)
    assert np.allclose(rows, np.sqrt([[0.25, 1 / 3, 0, 1 / 2.4]]), atol=1e-6)
    assert np.allclose(examples.joined(np.array([[3.0, -4.0]]), [2], 1.0), [[0.6, -0.8]])
    assert np.allclose(examples.joined(np.array([[1.0, -8.0]]), [2], 1 / 3), examples.unit(np.array([[1.0, -2.0]])))


def test_a_row_without_features_stays_zero() -> None:
    assert (examples.joined(np.zeros((1, 4), np.float32), [2, 2], 0.5) == 0).all()


def test_centred_by_hand() -> None:
    assert np.allclose(examples.centred(np.array([[4.0, 4.0]]), np.array([1.0, 0.0])), [[0.6, 0.8]])
    with pytest.raises(BadInput, match="does not fit"):
        examples.centred(np.ones((2, 3)), np.ones(2))


@pytest.mark.parametrize("rows, features", [(60, 20), (20, 60)])
def test_damping_agrees_with_a_full_decomposition(rows: int, features: int) -> None:
    data = np.random.default_rng(0).normal(size=(rows, features)) * np.linspace(5, 0.1, features)
    found = examples.damping(data.astype(np.float32), 6)
    values, vectors = np.linalg.eigh(data.T @ data)
    top, v = values[::-1][:6], vectors[:, ::-1][:, :6]
    factors = np.sqrt(2 * top[-1] / (top + top[-1]))
    assert np.allclose(found.factors, factors, atol=1e-3) and abs(found.factors[-1] - 1) < 1e-6
    new = np.random.default_rng(1).normal(size=(5, features))
    slow = new @ (np.eye(features) + v @ np.diag(factors - 1) @ v.T)
    slow /= np.linalg.norm(slow, axis=1, keepdims=True)
    assert np.allclose(found(new.astype(np.float32)), slow, atol=2e-3)


def test_rows_end_with_unit_length_and_do_not_see_each_other() -> None:
    data = np.random.default_rng(0).random((30, 12)).astype(np.float32)
    damping = examples.damping(data, 4)

    def finish(rows: np.ndarray) -> np.ndarray:
        return damping(examples.centred(examples.joined(rows, [8, 4], 0.5), data.mean(axis=0)))

    assert np.allclose(np.linalg.norm(finish(data), axis=1), 1, atol=1e-5)
    assert np.allclose(finish(data[3:4]), finish(data)[3:4], atol=1e-6)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(BadInput, match="fewer than 5"):
        examples.damping(np.ones((4, 9), np.float32), 5)
    with pytest.raises(BadInput, match="blocks of"):
        examples.joined(np.ones((4, 9), np.float32), [4, 4], 0.5)
    with pytest.raises(BadInput, match="power"):
        examples.joined(np.ones((4, 9), np.float32), [9], 0.0)
