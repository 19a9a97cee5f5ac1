"""The mean of all iterates where the second half only added noise, the last one elsewhere: by hand and on noise."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.federation.averaging import SETTLED, Averaging, score


def run(iterates: list[np.ndarray], kind: str = "settled") -> np.ndarray:
    averaging = Averaging(kind, len(iterates) - 1)
    theta, kept = iterates[0], averaging.init(iterates[0])
    for t, there in enumerate(iterates[1:], start=1):
        theta, kept = averaging.step(t, there, kept)
    return theta


def points(*rows: tuple[float, float]) -> list[np.ndarray]:
    return [np.array(row, np.float32) for row in rows]


def test_the_score_by_hand():
    first, second = np.array([3.0, 4.0, 0.0]), np.array([5.0, 0.0, 12.0])
    assert score(first, second) == pytest.approx(2**0.5 * 15 / (5 * 13))  # two weights moved in the first half
    assert score(np.zeros(3), second) == score(first, np.zeros(3)) == np.inf


def test_a_second_half_that_turns_aside_gives_the_mean():
    """From (0, 0) two steps along one axis, then two along the other."""
    ends = run(points((0, 0), (1, 0), (2, 0), (2, 1), (2, 2)))
    assert ends.tolist() == [7 / 4, 3 / 4] and ends.dtype == np.float32


def test_a_second_half_that_goes_on_gives_the_last_iterate():
    steps = np.ones(100, np.float32)
    assert run([t * steps for t in range(5)]).tolist() == (4 * steps).tolist()


def test_none_keeps_nothing_and_changes_nothing():
    assert Averaging("none", 4).init(np.zeros(3)) == {}
    assert run(points((0, 0), (1, 0), (2, 0), (2, 1), (2, 2)), "none").tolist() == [2, 2]


def test_before_the_last_round_the_model_is_the_iterate():
    averaging, theta = Averaging("settled", 10), np.zeros(2, np.float32)
    kept = averaging.init(theta)
    for t in range(1, 10):
        there = np.array([t, -t], np.float32) * (-1) ** t
        theta, kept = averaging.step(t, there, kept)
        assert np.array_equal(theta, there)


def test_one_round_has_no_halves():
    assert run(points((0, 0), (3, 4))).tolist() == [3, 4]


@pytest.mark.parametrize("signal", [0.0, 0.1])
def test_noise_alone_scores_like_a_standard_normal_and_signal_stands_out(signal):
    """Walks of 100 noisy steps in 400 weights; a signal of a tenth of the noise in every one of them adds up to a score of 33."""
    draws = np.random.Generator(np.random.PCG64(0))
    scores = []
    for _ in range(300):
        steps = draws.standard_normal((100, 400)) + signal
        scores.append(score(steps[:50].sum(axis=0), steps[50:].sum(axis=0)))
    if signal:
        assert min(scores) > SETTLED + 1
    else:
        assert abs(np.mean(scores)) < 0.2 and abs(np.std(scores) - 1) < 0.15


def test_a_first_half_full_of_signal_does_not_hide_that_the_second_is_noise():
    draws = np.random.Generator(np.random.PCG64(1))
    scores = [score(draws.standard_normal(400) + 3, draws.standard_normal(400)) for _ in range(300)]
    assert abs(np.mean(scores)) < 0.2 and abs(np.std(scores) - 1) < 0.15


def test_what_was_given_is_not_changed():
    averaging, theta = Averaging("settled", 2), np.zeros(2, np.float32)
    kept = averaging.init(theta)
    before = {name: array.copy() for name, array in kept.items()}
    averaging.step(1, np.ones(2, np.float32), kept)
    assert all(np.array_equal(kept[name], before[name]) for name in before)
