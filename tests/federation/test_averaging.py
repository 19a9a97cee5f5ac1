"""The mean of all iterates where the second half only added noise, the last one elsewhere: by hand and on noise."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.federation.averaging import SETTLED, Averaging, score
from sordino.federation.server import ServerOptimizer


def run(iterates: list[np.ndarray], kind: str = "settled") -> np.ndarray:
    """Of plain steps: what was released is how far the iterates moved."""
    averaging = Averaging(kind, len(iterates) - 1)
    kept = averaging.init(iterates[0].size)
    for t, (last, there) in enumerate(zip(iterates, iterates[1:]), start=1):
        kept = averaging.add(t, there - last, there, kept)
    return averaging.model(iterates[-1], kept)


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
    assert Averaging("none", 4).init(3) == {}
    assert run(points((0, 0), (1, 0), (2, 0), (2, 1), (2, 2)), "none").tolist() == [2, 2]


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


@pytest.mark.parametrize("weights", [400, 13_000])
def test_momentum_does_not_look_like_signal(weights):
    """Velocity carries noise across the middle: iterates of pure noise follow each other, what was released does not."""
    draws = np.random.Generator(np.random.PCG64(2))
    server, scores, of_iterates = ServerOptimizer("momentum", 0.1), [], []
    for _ in range(8):
        averaging, theta = Averaging("settled", 200), np.zeros(weights, np.float32)
        state, kept, middle = server.init(weights), averaging.init(weights), theta
        for t in range(1, 201):
            mean = draws.standard_normal(weights)
            theta, state = server.step(theta, mean, state)
            kept = averaging.add(t, server.direction(mean, None), theta, kept)
            middle = theta if t == 100 else middle
        scores.append(score(kept["average.first"], kept["average.second"]))
        of_iterates.append(score(middle.astype(float), (theta - middle).astype(float)))
    assert abs(np.mean(scores)) < 1.2
    assert weights < 1000 or np.mean(of_iterates) > 3, "why iterates would not do"


def test_what_was_given_is_not_changed():
    averaging = Averaging("settled", 2)
    kept = averaging.init(2)
    before = {name: array.copy() for name, array in kept.items()}
    averaging.add(1, np.ones(2), np.ones(2, np.float32), kept)
    assert all(np.array_equal(kept[name], before[name]) for name in before)
