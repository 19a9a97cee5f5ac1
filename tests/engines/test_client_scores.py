"""Figures between clients: by hand, on public splits only."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sordino import Federation, Plan, train  # noqa: E402
from sordino.engines.client_scores import Spread, spread  # noqa: E402


def population(local_tests=None):
    pairs = [(np.array([[1.0, 0.0], [0.0, 1.0]], np.float32), [0, 1])] * 2
    return Federation.from_arrays(pairs, test=pairs[0], classes=2, name="two", local_tests=local_tests)


def identity():
    model = torch.nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.eye(2))
    return model


def test_two_clients_by_hand():
    """The identity answers the larger entry: right on 3 of 4 and on 1 of 2. Mean 0.625, SD 0.125, 10th percentile 0.525."""
    first = (np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32), [0, 0, 1, 0])
    second = (np.array([[1, 0], [0, 1]], np.float32), [1, 1])
    found = spread(identity(), population([first, second]), lambda k: np.eye(2, dtype=np.float32).ravel())
    assert found == Spread(2, 0.625, 0.125, 0.5, pytest.approx(0.525), 2)


def test_each_client_may_have_a_model_of_its_own():
    test = (np.array([[1, 0]], np.float32), [0])
    turned = np.array([0, 1, 1, 0], np.float32)
    found = spread(identity(), population([test, test]), lambda k: turned if k else np.eye(2, dtype=np.float32).ravel())
    assert (found.mean, found.sd, found.lowest) == (0.5, 0.5, 0.0)


def test_without_public_splits_nothing_is_measured_and_the_report_says_so(tmp_path):
    plan = Plan(data="two", clients=2, method="dp-fedavg", unit="client", multiplier=1.0, rounds=1)
    result = train(identity(), population(), plan, out=tmp_path / "run")
    assert result.fairness is None and not (tmp_path / "run" / "fairness.json").exists()
    assert "such figures stay with the clients" in (tmp_path / "run" / "report.html").read_text()
    assert result.to_json()["fairness"] is None


def test_a_simulated_partition_has_public_splits_of_the_public_test_set(tmp_path):
    federation = Federation.from_dataset("digits", "dirichlet", clients=4, alpha=0.5, seed=1)
    plan = Plan(data="digits", clients=4, method="dp-fedavg", unit="client", multiplier=1.0, rounds=1)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    result = train(model, federation, plan, out=tmp_path / "run")
    sizes = [len(federation.local_test(k)[1]) for k in range(4)]
    assert sum(sizes) == len(federation.test[1])
    right = sum(s * a for s, a in zip(sizes, _each(model, federation)))
    assert right / sum(sizes) == pytest.approx(result.accuracy)
    assert json.loads((tmp_path / "run" / "fairness.json").read_text()) == result.fairness.to_json()
    text = (tmp_path / "run" / "report.html").read_text()
    assert "Between clients" in text and "10th percentile" in text
    assert "is public. In a simulated partition" in " ".join((tmp_path / "run" / "statement.txt").read_text().split())


def _each(model, federation):
    with torch.no_grad():
        for k in range(federation.clients):
            x, y = federation.local_test(k)
            yield float((model(torch.from_numpy(x)).argmax(1) == torch.from_numpy(y)).float().mean())
