"""A deployment's run folder verifies like any other, and says that no data holder has signed it."""

from __future__ import annotations

import pytest
from hall import Hall, toy

from sordino import Plan
from sordino.verify import check, manifest


@pytest.mark.parametrize(
    "settings",
    [
        {"unit": "example", "observer": "secagg-server", "method": "adact", "multiplier": 1.0, "batch_size": 20},
        {"unit": "client", "observer": "secagg-server", "method": "dp-fedavg", "multiplier": 1.0, "sampling": "fixed"},
        {"unit": "example", "observer": "server", "method": "dp-fedavg", "multiplier": 1.0, "batch_size": 10},
        {"unit": "example", "observer": "secagg-server", "method": "fedmap", "epsilon": 4.0, "batch_size": 10},
    ],
)
@pytest.mark.parametrize("secure", [False, True])
def test_a_deployment_verifies(settings, secure, tmp_path):
    hall = Hall(toy(clients=4), tmp_path / "holders")
    plan = Plan(data="toy", clients=4, model="linear", rounds=3, lr=0.1, secure=secure, **settings)
    try:
        hall.train(plan, tmp_path / "run")
    finally:
        hall.close()
    manifest.write(tmp_path / "run")
    verdict = check(tmp_path / "run")
    assert verdict.ok, verdict.text()
    assert [one.name for one in verdict.checks if one.ok is None] == ["signatures"]
