"""A round against a slow, obvious version of it, and on two clients with numbers worked out by hand."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional

from sordino import EngineOptions, Federation, Plan, train
from sordino.federation.sampling import public_cohort as draw
from sordino.privacy import grid_noise
from sordino.privacy.mechanisms import FixedPoint
from sordino.privacy.randomness import stream

HERE = EngineOptions(engine="in-process")


def plan(**settings):
    base = {
        "data": "toy", "clients": 12, "cohort": 6, "method": "dp-fedavg", "unit": "client", "observer": "public",
        "multiplier": 0.5, "rounds": 3, "batch_size": 8, "lr": 0.3, "bound": 0.2,
    }  # fmt: skip
    return Plan(**(base | settings))


def obvious_dp_fedavg(model, federation, p):
    """McMahan et al. 2018, algorithm 1, as one would write it down: deep copies, loops, torch.optim."""
    for t in range(1, p.rounds + 1):
        before = torch.cat([q.detach().reshape(-1) for q in model.parameters()]).double()
        total = torch.zeros_like(before)
        for k in draw(p, t):
            local = copy.deepcopy(model)
            optimizer = torch.optim.SGD(local.parameters(), lr=p.lr)
            x, y = (torch.from_numpy(np.array(a)) for a in federation[int(k)])
            order = stream(p.seed, t, int(k), "batches").permutation(len(y))
            for i in range(0, len(y), p.batch_size):
                rows = torch.from_numpy(order[i : i + p.batch_size])
                optimizer.zero_grad()
                functional.cross_entropy(local(x[rows]), y[rows]).backward()
                optimizer.step()
            update = torch.cat([q.detach().reshape(-1) for q in local.parameters()]).double() - before
            total += update * min(1.0, p.bound / update.norm().item())
        grid = FixedPoint.for_bound(p.bound, p.clients)
        steps = grid_noise.gaussian(p.multiplier * p.bound * grid.scale, len(total), stream(p.seed, t, -1, "noise"))
        moved = (total + torch.from_numpy(grid.decode(steps))) / p.cohort_size
        torch.nn.utils.vector_to_parameters((before + moved).float(), model.parameters())
    return model


def vector(model):
    return torch.cat([q.detach().reshape(-1) for q in model.parameters()]).numpy()


def test_training_equals_the_obvious_version(federation, linear, tmp_path):
    ours = train(linear(), federation, plan(), out=tmp_path / "run", options=HERE).model
    theirs = obvious_dp_fedavg(linear(), federation, plan())
    np.testing.assert_allclose(vector(ours), vector(theirs), atol=2e-6)


def test_two_clients_by_hand(tmp_path):
    """One example each, one step, a model of one weight per class: the update can be worked out on paper.

    Zero weights give probabilities (1/2, 1/2). For x = 1 and label 0 the gradient of the loss is (-1/2, 1/2), so a step of
    rate 1 moves the weights by (1/2, -1/2), of norm 0.7071. The bound 0.5 scales that by 0.7071: (0.35355, -0.35355).
    The second client has x = -0.4 and label 1: its update (0.2, -0.2) has norm 0.2828 and passes. Their mean is (0.276777, -0.276777).
    """
    federation = Federation.from_arrays([([[1.0]], [0]), ([[-0.4]], [1])], classes=2)
    model = torch.nn.Linear(1, 2, bias=False)
    torch.nn.init.zeros_(model.weight)
    tiny = 1e-9
    p = plan(clients=2, cohort=2, sampling="none", bound=0.5, multiplier=tiny, lr=1.0, rounds=1, batch_size=1)
    result = train(model, federation, p, out=tmp_path / "run", options=HERE)
    np.testing.assert_allclose(vector(result.model), [0.2767767, -0.2767767], atol=1e-6)


def test_the_noise_is_as_large_as_the_bound_that_clipped_says(federation, linear, tmp_path):
    """Statistics of many coordinates, accepted at the right size and rejected at two thirds and three halves of it."""
    from scipy.stats import kstest

    big = Federation.from_arrays([(np.zeros((4, 400), np.float32), [0, 1, 0, 1])] * 4, classes=8)
    model = torch.nn.Linear(400, 8, bias=False)
    start = vector(model).copy()
    p = plan(clients=4, cohort=4, sampling="none", bound=0.7, multiplier=1.5, rounds=1)
    moved = vector(train(model, big, p, out=tmp_path / "run", options=HERE).model) - start  # x = 0: no gradient at all
    expected = 1.5 * 0.7 / 4
    assert kstest(moved / expected, "norm").pvalue > 1e-3
    assert kstest(moved / (expected * 2 / 3), "norm").pvalue < 1e-6
    assert kstest(moved / (expected * 3 / 2), "norm").pvalue < 1e-6


@pytest.mark.parametrize(("observer", "surplus"), [("public", 1.0), ("secagg-server", 1.0), ("server", 2.0)])
def test_where_the_noise_is_drawn_decides_how_much_reaches_the_sum(observer, surplus, tmp_path):
    big = Federation.from_arrays([(np.zeros((4, 400), np.float32), [0, 1, 0, 1])] * 4, classes=8)
    model = torch.nn.Linear(400, 8, bias=False)
    start = vector(model).copy()
    p = plan(clients=4, cohort=4, sampling="none", bound=0.7, multiplier=1.5, rounds=1, observer=observer)
    moved = vector(train(model, big, p, out=tmp_path / "run", options=HERE).model) - start
    assert np.std(moved) == pytest.approx(surplus * 1.5 * 0.7 / 4, rel=0.05)


def test_an_empty_cohort_still_releases_noise(federation, linear, tmp_path):
    p = plan(cohort=1, rounds=12)
    empty = [t for t in range(1, 13) if len(draw(p, t)) == 0]
    assert empty, "the seed should give an empty cohort among these rounds"
    result = train(linear(), federation, p, out=tmp_path / "run", options=HERE)
    for t in empty:
        assert result.metrics[t - 1]["moved"] > 0
        assert result.metrics[t - 1]["cohort"] is None  # the size of a secret cohort is not told


def test_an_update_that_is_not_a_number_counts_as_zero(linear, tmp_path):
    def broken(logits, y):
        return functional.cross_entropy(logits, y, reduction="none") * float("nan")

    federation = Federation.from_arrays([(np.ones((3, 5), np.float32), [0, 1, 2])] * 2, classes=3)
    p = plan(clients=2, cohort=2, sampling="none", rounds=1, multiplier=1e-9)
    start = vector(linear())
    result = train(linear(), federation, p, out=tmp_path / "run", options=HERE, loss=broken)
    np.testing.assert_allclose(vector(result.model), start, atol=1e-6)


def test_public_weights_are_capped(tmp_path, federation, linear):
    p = plan(weights="size", weight_cap=25, rounds=1)
    train(linear(), federation, p, out=tmp_path / "run", options=HERE)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_server_optimisers_learn(optimizer, federation, linear, tmp_path):
    lr = 0.1 if optimizer == "adam" else 1.0
    p = plan(server_optimizer=optimizer, server_lr=lr, multiplier=0.01, rounds=15, bound=1.0)
    assert train(linear(), federation, p, out=tmp_path / "run", options=HERE).accuracy > 0.8


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_local_optimisers_equal_torchs_own(optimizer, linear):
    """The flat steps against torch.optim on the same gradients."""
    from sordino.clients.descent import Descent

    theta = torch.linspace(-1, 1, 7)
    step = Descent(optimizer, 0.1, 0.9).start(7, torch.device("cpu"))
    parameter = torch.nn.Parameter(theta.clone())
    own = {
        "sgd": lambda: torch.optim.SGD([parameter], lr=0.1),
        "momentum": lambda: torch.optim.SGD([parameter], lr=0.1, momentum=0.9),
        "adam": lambda: torch.optim.Adam([parameter], lr=0.1),
    }[optimizer]()
    for i in range(5):
        gradient = torch.sin(torch.arange(7.0) * (i + 1))
        theta = theta - step(gradient.clone())
        parameter.grad = gradient.clone()
        own.step()
    torch.testing.assert_close(theta, parameter.detach(), atol=1e-6, rtol=1e-5)
