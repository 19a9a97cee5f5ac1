"""Exact shares of noise: the right size, and every step of the grid."""

from __future__ import annotations

import numpy as np
import pytest
from hall import Hall, toy
from scipy.stats import kstest

from sordino import Plan
from sordino.engines.flower.shares import with_share
from sordino.errors import BadInput
from sordino.privacy.mechanisms import FixedPoint

GRID = FixedPoint(2.0**40)


def test_survivors_shares_make_the_noise_and_two_thirds_of_it_would_be_noticed():
    std, survivors = 3.0, 4
    total = sum(with_share(np.zeros(20000, np.int64), GRID, std, survivors) for _ in range(survivors))
    noise = GRID.decode(total)
    assert kstest(noise / std, "norm").pvalue > 1e-3
    assert kstest(noise / (std * 2 / 3), "norm").pvalue < 1e-6
    assert kstest(noise / (std * 3 / 2), "norm").pvalue < 1e-6


def test_each_coordinate_gets_its_own_noise():
    spread = np.repeat([0.5, 4.0], 5000)
    noise = GRID.decode(with_share(np.zeros(10000, np.int64), GRID, spread, 1))
    assert noise[:5000].std() == pytest.approx(0.5, rel=0.05) and noise[5000:].std() == pytest.approx(4.0, rel=0.05)


def test_every_step_of_the_grid_is_used_and_no_noise_is_refused():
    out = with_share(np.zeros(4000, np.int64), GRID, 3.0, 1)
    assert out.dtype == np.int64 and abs(np.mean(out & 1) - 0.5) < 0.05
    for std in (0.0, -1.0, np.nan):
        with pytest.raises(BadInput):
            with_share(np.arange(3), GRID, std, 1)


def test_a_deployment_with_secure_noise_says_that_its_noise_is_exact(tmp_path):
    hall = Hall(toy(clients=3), tmp_path / "holders")
    plan = Plan(data="toy", clients=3, model="linear", method="adact", unit="example", multiplier=1.0, rounds=3,
                batch_size=30, lr=0.3, secure=True)  # fmt: skip
    result = hall.train(plan, tmp_path / "run")
    assert "floating point" not in result.statement.text()
    other = hall.train(plan.replace(secure=False), tmp_path / "seeded")
    assert "floating point" in other.statement.text()
    hall.close()


@pytest.mark.parametrize("unit", ["client", "example"])
def test_the_noise_of_a_secure_run_is_as_large_as_the_bound_says(unit, tmp_path):
    """Blank records have no gradient, so that one step moves the model by noise alone."""
    from sordino import Federation

    blank = Federation.from_arrays([(np.zeros((8, 300), np.float32), [0, 1] * 4)] * 3, classes=8)
    hall = Hall(blank, tmp_path / "holders")
    plan = Plan(data="blank", clients=3, model="linear", method="dp-fedavg", unit=unit, multiplier=1.5, bound=0.7, rounds=1,
                sampling="none", lr=1.0, secure=True)  # fmt: skip
    result = hall.train(plan, tmp_path / "run")
    weight = max((p.detach().numpy() for p in result.model.parameters()), key=lambda p: p.size).ravel()
    expected = 1.5 * 0.7 / (3 if unit == "client" else 24)
    assert kstest(weight / expected, "norm").pvalue > 1e-3
    assert kstest(weight / (expected * 2 / 3), "norm").pvalue < 1e-6
    hall.close()
