"""The server's step, by hand: SGD, momentum and Adam on two coordinates."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.federation.server import ServerOptimizer

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
