"""The server's step, by hand: SGD, momentum and Adam on two coordinates."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.federation.server import ServerOptimizer, factor

MEAN = np.array([1.0, -2.0])


def test_sgd_adds_the_mean():
    step = ServerOptimizer("sgd", 0.5)
    theta, state = step.step(np.zeros(2, np.float32), MEAN, step.init(2))
    assert theta.tolist() == [0.5, -1.0] and state == {}


def test_momentum_remembers():
    step = ServerOptimizer("momentum", 0.1, 0.9)
    theta, state = step.step(np.zeros(2, np.float32), MEAN, step.init(2))
    theta, state = step.step(theta, MEAN, state)
    np.testing.assert_allclose(theta, 0.1 * (MEAN + 1.9 * MEAN), rtol=1e-6)
    np.testing.assert_allclose(state["velocity"], 1.9 * MEAN, rtol=1e-6)


def test_adam_steps_by_about_its_rate_whatever_the_length():
    step = ServerOptimizer("adam", 0.01)
    for scale in (1.0, 1e-1):
        theta, state = step.step(np.zeros(2, np.float32), scale * MEAN, step.init(2))
        np.testing.assert_allclose(theta, 0.01 * np.sign(MEAN), rtol=0.01)
        assert state["steps"].tolist() == [1]


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam"])
def test_a_step_changes_nothing_that_it_was_given(kind):
    step = ServerOptimizer(kind, 0.1)
    theta, state = np.zeros(2, np.float32), step.init(2)
    before = {name: array.copy() for name, array in state.items()}
    step.step(theta, MEAN, state)
    assert not theta.any() and all(np.array_equal(state[name], before[name]) for name in before)


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam"])
def test_scaled_steps_do_not_follow_the_bound(kind):
    """The mean of contributions under a bound ten thousand times larger is ten thousand times longer."""
    mean = np.array([0.3, -0.1], np.float32)
    ends = []
    for bound in (1e-3, 10.0):
        server = ServerOptimizer(kind, 0.1, steps="scaled")
        theta, state = np.zeros(2, np.float32), server.init(2)
        for _ in range(3):
            theta, state = server.step(theta, mean * bound, state, bound)
        ends.append(theta)
    assert np.allclose(ends[0], ends[1], rtol=1e-4) and np.abs(ends[0]).min() > 0.01


def test_steps_along_the_mean_take_no_notice_of_the_bound():
    server, mean = ServerOptimizer("sgd", 0.5), np.array([1.0, 2.0])
    assert np.array_equal(server.step(np.zeros(2), mean, {}, 100.0)[0], np.array([0.5, 1.0]))


def test_the_rate_rises_shortly_and_falls_in_a_line():
    factors = [factor("decay", t, 100) for t in range(1, 101)]
    assert factors[:5] == [0.2, 0.4, 0.6, 0.8, 1.0] and factors[5] == 1.0 and factors[-1] == pytest.approx(1 / 95)
    assert all(a > b for a, b in zip(factors[5:], factors[6:]))
    assert factor("constant", 7, 100) == 1.0 and factor("decay", 1, 1) == 1.0
