"""The mean of iterates as the model of a run: through a resume, and where the last round is lost."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sordino import BadInput, Callback, EngineOptions, Federation, Plan, callbacks, train  # noqa: E402
from sordino.federation.averaging import Averaging  # noqa: E402
from sordino.models import build  # noqa: E402


class Iterates(Callback):
    """Keeps what every round left."""

    def __init__(self) -> None:
        self.left: list[np.ndarray] = []

    def on_round(self, run) -> None:
        self.left.append(run.state.theta.copy())


def plan(**changes) -> Plan:
    base = {"data": "noise", "clients": 3, "model": "linear", "method": "dp-fedavg", "multiplier": 20.0, "rounds": 6,
            "batch_size": 30, "lr": 0.5, "server_optimizer": "momentum", "average": "settled"}  # fmt: skip
    return Plan(**(base | changes))


def population() -> Federation:
    """Classes that nothing tells apart: noise is all that there is."""
    draws = np.random.Generator(np.random.PCG64(3))
    x, y = draws.standard_normal((90, 5)).astype(np.float32), np.arange(90) % 2
    return Federation.from_arrays([(x[k::3], y[k::3]) for k in range(3)], test=(x, y), classes=2, name="noise")


def run(out, wanted: Plan, callbacks=(), **more):
    options = EngineOptions("in-process", checkpoint_every=1)
    return train(build("linear", (5,), 2), population(), wanted, out=out, callbacks=callbacks, options=options, **more)


def settled_seed(tmp_path) -> int:
    """A seed whose run settles: chance decides, for five runs of six."""
    for seed in range(20):
        seen = Iterates()
        run(tmp_path / f"seed-{seed}", plan(seed=seed, average="none"), [seen])
        mean = Iterates()
        run(tmp_path / f"mean-{seed}", plan(seed=seed), [mean])
        if not np.array_equal(seen.left[-1], mean.left[-1]):
            np.testing.assert_allclose(mean.left[-1], np.mean(seen.left, axis=0), rtol=1e-5, atol=1e-6)
            assert all(np.array_equal(a, b) for a, b in zip(seen.left[:-1], mean.left[:-1]))
            return seed
    raise AssertionError("no run of noise settled")


class Killed(RuntimeError):
    pass


class Kill(Callback):
    def __init__(self, at: int) -> None:
        self.at = at

    def on_round(self, run) -> None:
        if run.state.round == self.at:
            raise Killed


def test_a_settled_run_leaves_the_mean_of_its_iterates_also_after_a_resume(tmp_path):
    seed = settled_seed(tmp_path)
    whole = Iterates()
    run(tmp_path / "whole", plan(seed=seed), [whole])
    with pytest.raises(Killed):
        run(tmp_path / "cut", plan(seed=seed), [Kill(4)])
    rest = Iterates()
    run(tmp_path / "cut", plan(seed=seed), [rest], resume=True)
    assert np.array_equal(rest.left[-1], whole.left[-1])


def test_a_last_round_that_was_lost_still_leaves_the_model(tmp_path, monkeypatch):
    """Secure noise: the round that was cut short is paid for and skipped, and the iterates before it decide."""
    asked, save = [], callbacks.checkpoint.save
    monkeypatch.setattr(Averaging, "model", lambda self, theta, kept: asked.append(kept) or theta)

    def killed(folder, state, *rest):
        if state.round == 6:
            raise Killed
        save(folder, state, *rest)

    with monkeypatch.context() as crash, pytest.raises(Killed):
        crash.setattr(callbacks.checkpoint, "save", killed)
        run(tmp_path / "run", plan(secure=True))
    asked.clear()
    run(tmp_path / "run", plan(secure=True), resume=True)
    assert len(asked) == 1 and int(asked[0]["average.count"][0]) == 5


def test_correlated_noise_tells_nothing_and_is_refused():
    with pytest.raises(BadInput, match="use average none"):
        Plan(
            method="dp-bandmf", epsilon=4.0, clients=100, cohort=10, unit="client", observer="public", average="settled"
        )
