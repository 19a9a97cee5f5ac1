"""The four papers' methods against slow re-implementations of their pseudo-code, on two and three clients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from slowly import AT_CLIENTS, agree, clip, epoch, gradients, local_train, noise, run, vector

from sordino.federation.sampling import public_cohort
from sordino.privacy import grid_noise
from sordino.privacy.bounds import Flat
from sordino.privacy.mechanisms import FixedPoint
from sordino.privacy.randomness import source, stream
from sordino.rules.dp_fedacn import Unscaled
from sordino.rules.noise_gamma import L2ForLaplace


def adact(plan, theta, data, sigma):
    """AdaCT-DPFL, algorithm 1: exact norms, their quantile tau, clip, noise of sigma C_t at every client, the plain mean."""
    bounds = []
    for t in range(1, plan.rounds + 1):
        cohort = public_cohort(plan, t)
        updates = [local_train(plan, theta, k, t, data)[0] - theta for k in cohort]
        bound = np.quantile([np.linalg.norm(u) for u in updates], 0.5)
        bounds.append(bound)
        noisy = [clip(u, bound) + noise(plan, sigma * bound, bound, t, k) for u, k in zip(updates, cohort)]
        theta = theta + np.mean(noisy, axis=0)
    return theta, bounds


def dp_fedacn(plan, theta, data, multiplier):
    """DP-FedACN, algorithm 1: g is a sum of gradients, N(0, sigma^2) does not follow C_t, and the server goes down eta g."""
    bound, bounds, sigma = None, [], multiplier * plan.bound
    for t in range(1, plan.rounds + 1):
        cohort = public_cohort(plan, t)
        sums = [local_train(plan, theta, k, t, data)[1] for k in cohort]
        norms = np.array([np.linalg.norm(g) for g in sums])
        if bound is None:
            bound = norms.mean()  # equation 15
        bounds.append(bound)
        grid = Unscaled(bound, plan.bound)
        # The library adds noise to -g; the sign of a symmetric draw is a matter of convention.
        sent = [clip(g, bound) - noise(plan, sigma, grid, t, k) for g, k in zip(sums, cohort)]
        low, high = (norms < bound).sum(), (norms >= bound).sum()
        rho = math.sqrt(1 - 1 / t) if t > 1 else 1.0
        bound = math.exp((low - high) / (2 * len(cohort))) * rho * bound  # lines 7 to 9
        theta = theta - plan.lr * np.mean(sent, axis=0)
    return theta, bounds


def noise_gamma(plan, theta, data, z):
    """Sections 3 and 4.2: after every local epoch clip, noise (equation 2 or 3), C <- gamma C; then the mean."""
    bound = plan.bound
    for t in range(1, plan.rounds + 1):
        models = []
        for k in range(plan.clients):
            (x, y), local, own = data[k], theta.copy(), bound
            batches = stream(plan.seed, t, k, "batches")
            for e in range(plan.local_epochs):
                trained, _ = epoch(local, x, y, plan.lr, plan.batch_size, batches.permutation(len(y)))
                local = local + clip(trained - local, own) + _drawn(plan, z, own, t, k, e)
                own *= plan.options["gamma"]
            models.append(local)
        bound *= plan.options["gamma"] ** plan.local_epochs
        theta = np.mean(models, axis=0)
    return theta


def _drawn(plan, z, bound, t, k, e):
    purpose = f"noise-epoch-{e}"
    if plan.mechanism == "gaussian":
        return noise(plan, z * bound, bound, t, k, 2, purpose)
    grid = FixedPoint.for_bound(L2ForLaplace(bound), 2)
    return grid_noise.laplace(z * bound * grid.scale, 18, source(plan.seed, t, k, purpose, False)) / grid.scale


def fedmap(plan, theta, data, _):
    """Algorithm 1. With the option sigma there is no network; else each client keeps one of its own, and tunes it unless tune is 0."""
    from sordino.schemes.fedmap.metanet.net import load

    nets, histories = [load("published") for _ in range(plan.clients)], {k: [] for k in range(plan.clients)}
    moved, sigmas_of, fixed = 0.0, {}, plan.options.get("sigma")
    for t in range(1, plan.rounds + 1):
        models, sizes, cohort = [], [], public_cohort(plan, t)
        for k in cohort:
            (x, y), local, drift, sigmas = data[k], theta.copy(), moved, []
            batches, drawn = stream(plan.seed, t, k, "batches"), source(plan.seed, t, k, "noise", False)
            for _ in range(plan.local_epochs):
                for rows in np.array_split(batches.permutation(len(y)), math.ceil(len(y) / plan.batch_size)):
                    g = gradients(local, x[rows], y[rows])
                    if fixed:
                        bound, sigma = plan.bound, fixed
                    else:
                        histories[k] = [*histories[k], _features(g, drift)][-5:]
                        bound, sigma = np.exp(_metanet(nets[k], histories[k]).detach().numpy().astype(np.float64))
                    clipped = np.sum([clip(v, bound) for v in g], axis=0)
                    grid = FixedPoint.for_bound(max(bound, 16 * sigma), len(rows))
                    std = sigma if plan.options["on_sum"] else sigma * len(rows)
                    added = grid_noise.gaussian(std * grid.scale, 18, drawn) / grid.scale
                    step = plan.lr * (clipped + added) / len(rows)
                    local, drift = local - step, np.linalg.norm(step)
                    sigmas.append(sigma)
                    if not fixed and plan.options["tune"]:
                        _tune(nets[k], histories[k], plan)
            models.append(local)
            sizes.append(len(y))
            sigmas_of.setdefault(k, []).append(np.mean(sigmas))
        before, theta = theta, np.average(models, axis=0, weights=sizes)  # equation 20
        moved = np.linalg.norm(theta - before)
    return theta, _printed_epsilon(plan, sigmas_of)


def _features(g, drift):
    """Equation 4, as decades."""
    mean = g.mean(0)
    spread = np.sum((g - mean) ** 2)
    return np.log10([spread / (len(g) - 1), max(np.linalg.norm(v) for v in g), max(drift, 1e-6), spread / len(g)])


def _metanet(net, rows):
    """log C and log sigma, from the last five steps, the latest first."""
    steps, valid = torch.zeros(1, 5, 4), torch.zeros(1, 5, dtype=torch.bool)
    steps[0, : len(rows)], valid[0, : len(rows)] = torch.tensor(np.array(rows[::-1]), dtype=torch.float32), True
    return net(steps, valid)[0]


def _tune(net, rows, plan):
    """Equations 11, 12 and 15: down lambda (C / sigma sqrt(2 ln(1.25 / delta)) - eps_target)^2, whose gradient has length 1 at most.

    beta eps_global (equation 14) is a constant here.
    """
    log_bound, log_sigma = _metanet(net, rows)
    proxy = torch.exp(log_bound) / torch.exp(log_sigma) * math.sqrt(2 * math.log(1.25 / plan.delta))
    net.zero_grad()
    (0.1 * (proxy - plan.epsilon) ** 2).backward()
    weights = [net.projection.weight, net.projection.bias, net.head.weight, net.head.bias]
    length = math.sqrt(sum(float((w.grad**2).sum()) for w in weights))
    with torch.no_grad():
        for w in weights:
            w -= plan.options["tune"] * w.grad / max(1.0, length)


def _printed_epsilon(plan, sigmas):
    """Equations 6 to 9."""
    q, orders = plan.cohort_size / plan.clients, (2, 4, 8, 16, 32, 64)
    each = [
        min(sum(a * q**2 / (2 * s**2) for s in own) + math.log(1 / plan.delta) / (a - 1) for a in orders)
        for own in sigmas.values()
    ]
    return max(each)


def geyer(plan, theta, data, sigma):
    """Geyer et al. 2017, algorithm 1: the median of the cohort's norms, noise of sigma S by the server, fixed cohorts."""
    bounds = []
    for t in range(1, plan.rounds + 1):
        cohort = public_cohort(plan, t)
        updates = [local_train(plan, theta, k, t, data)[0] - theta for k in cohort]
        bound = np.median([np.linalg.norm(u) for u in updates])
        bounds.append(bound)
        total = np.sum([clip(u, bound) for u in updates], axis=0) + noise(plan, sigma * bound, bound, t)
        theta = theta + total / len(cohort)
    return theta, bounds


def dp_fedagnc(plan, theta, data, sigma):
    """As DP-FedACN describes it, with the exact mean of the last round's norms (our guess)."""
    bound, bounds = plan.bound, []
    for t in range(1, plan.rounds + 1):
        bounds.append(bound)
        cohort = public_cohort(plan, t)
        updates = [local_train(plan, theta, k, t, data)[0] - theta for k in cohort]
        noisy = [clip(u, bound) + noise(plan, sigma * bound, bound, t, k) for u, k in zip(updates, cohort)]
        bound = np.mean([np.linalg.norm(u) for u in updates])
        theta = theta + np.mean(noisy, axis=0)
    return theta, bounds


@pytest.mark.parametrize("clients", [2, 3])
@pytest.mark.parametrize(
    ("obvious", "settings"),
    [
        (adact, AT_CLIENTS | {"method": "adact", "multiplier": 0.2, "local_epochs": 2}),
        (
            dp_fedacn,
            AT_CLIENTS
            | {"method": "dp-fedacn", "multiplier": 16.0, "local_epochs": 2, "bound": 0.5, "lr": 0.1, "rounds": 5},
        ),
        (dp_fedagnc, AT_CLIENTS | {"method": "dp-fedagnc", "multiplier": 0.2, "bound": 0.05}),
        (geyer, {"method": "geyer", "unit": "client", "observer": "public", "sampling": "fixed", "multiplier": 0.2}),
    ],
    ids=["adact", "dp-fedacn", "dp-fedagnc", "geyer"],
)
def test_as_printed(linear, tmp_path, clients, obvious, settings):
    cohort = clients if clients == 2 else 2  # of three, two are drawn
    plan, data, z, ours, result = run(linear, tmp_path, clients, cohort=cohort, **settings)
    start = vector(linear())
    theirs, bounds = obvious(plan, start, data, z)
    agree(ours, theirs, start)
    assert [row["bound"] for row in result.metrics] == pytest.approx(bounds, rel=1e-5)  # the bounds that clipped


@pytest.mark.parametrize("clients", [2, 3])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_noise_gamma_as_printed(linear, tmp_path, clients, mechanism):
    settings = AT_CLIENTS | {
        "method": "noise-gamma",
        "mechanism": mechanism,
        "epsilon": 40.0,
        "delta": 1e-5,
        "bound": 0.1,
    }
    plan, data, z, ours, result = run(linear, tmp_path, clients, local_epochs=2, options={"gamma": 0.5}, **settings)
    assert z == pytest.approx(math.sqrt(2 * math.log(1.25e5)) / 40 if mechanism == "gaussian" else 1 / 40)  # (2), (3)
    start = vector(linear())
    agree(ours, noise_gamma(plan, start, data, z), start)
    assert [row["bound"] for row in result.metrics] == pytest.approx([0.1, 0.025, 0.00625])
    assert (result.epsilon == math.inf) == (mechanism == "laplace")
    # On the mean of the models: two releases of every client, whose deviation is z C, or sqrt(2) z C for Laplace noise of scale z C.
    one = z * math.sqrt(2 if mechanism == "laplace" else 1)
    on_mean = [one * math.hypot(c, c / 2) / math.sqrt(clients) for c in (0.1, 0.025, 0.00625)]
    assert [row["noise"] for row in result.metrics] == pytest.approx([std * math.sqrt(18) for std in on_mean])
    assert result.terms.claimed == pytest.approx(40.0)


@pytest.mark.parametrize("clients", [2, 3])
@pytest.mark.parametrize("on_sum", [0, 1])
@pytest.mark.parametrize(
    "control", [{"sigma": 0.05, "tune": 0}, {"tune": 0}, {"tune": 0.01}], ids=["fixed", "metanet", "tuned"]
)
def test_fedmap_as_printed(linear, tmp_path, clients, on_sum, control):
    options = {"on_sum": on_sum} | control
    settings = {"method": "fedmap", "unit": "example", "observer": "server", "sampling": "fixed", "epsilon": 2.0}
    more = {
        "bound": 0.5,
        "lr": 0.005,
        "options": options,
        "local_epochs": 2,
        "cohort": 2,
        "batch_size": 11,
        "rounds": 2,
    }
    plan, data, z, ours, result = run(linear, tmp_path, clients, **settings, **more)
    start = vector(linear())
    theirs, epsilon = fedmap(plan, start, data, z)
    # The library cuts clipped gradients short by 2^-14 of the bound: some 3e-7 a round here.
    agree(ours, theirs, start)
    assert result.terms.claimed == pytest.approx(epsilon, rel=0.02)  # the paper's table of 100 bins interpolates


def test_noise_at_clients_is_the_papers(linear, tmp_path):
    """AdaCT's mean of three has noise of sigma C / sqrt(3), and not what a central server would add."""
    plan, data, z, ours, result = run(
        linear, tmp_path, 3, method="adact", multiplier=4.0, rounds=1, seed=1, **AT_CLIENTS
    )
    assert result.plan.scheme.noise == "local"
    assert Flat(1.0).std(z) == 4.0
    start, quiet = vector(linear()), adact(plan, vector(linear()), data, 1e-9)[0]
    bound = result.metrics[0]["bound"]
    spread = np.sqrt(np.mean(np.square(ours - quiet)))
    assert 0.5 < spread / (4.0 * bound / math.sqrt(3)) < 1.6 and np.abs(quiet - start).max() > 0


def test_fedmap_diagnostics_of_a_run(linear, tmp_path):
    """Equations 10, 11 and 13 in the metrics, from what the rounds released: sigma and C are fixed here, so all can be worked out."""
    settings = {"method": "fedmap", "unit": "example", "observer": "server", "sampling": "fixed", "epsilon": 2.0}
    more = {"bound": 0.5, "lr": 0.005, "options": {"sigma": 0.5}, "cohort": 2, "batch_size": 64, "rounds": 3}
    plan, _, _, _, result = run(linear, tmp_path, 3, **settings, **more)
    proxy = math.sqrt(2 * math.log(1.25 / plan.delta))  # C / sigma = 1
    for t, row in enumerate(result.metrics, 1):
        assert row["proxy"] == pytest.approx(proxy) and row["deviation"] == pytest.approx(proxy - 2.0)
        most = min(a * (2 / 3) ** 2 * t / (2 * 0.25) + math.log(1e5) / (a - 1) for a in (2, 4, 8, 16, 32, 64))
        assert row["eps_most"] == pytest.approx(most, rel=0.01)  # the table of 100 bins
        assert row["eps_global"] <= row["eps_most"]
        assert row["sigma"] == pytest.approx(0.5) and row["multiplier"] == pytest.approx(1.0) and row["noise"] is None


@pytest.mark.parametrize("sigma", [0.05, 0.31, 0.5, 2.36, 7.7])
def test_equation_10_bounds_what_the_server_prints(sigma):
    """All clients in all rounds with the same sigma: the bound is reached, and not passed."""
    from sordino.schemes.fedmap.diagnostics import largest_claim
    from sordino.schemes.fedmap.rule import PrintedLedger

    book = PrintedLedger(2, 1.0, 1e-5)
    for t in range(1, 4):
        book.charge(np.arange(2), np.array([sigma, 1.01 * sigma]))
        most = min(a * t / (2 * sigma**2) + math.log(1e5) / (a - 1) for a in (2, 4, 8, 16, 32, 64))
        assert book.epsilon() <= largest_claim(sigma, 1.0, t, 1e-5) == pytest.approx(most, rel=0.01)


@pytest.mark.parametrize("on_sum", [0, 1])
def test_fedmap_metrics_tell_sigma_and_the_multiplier_apart(linear, tmp_path, on_sum):
    """The noise on the sum of a batch over its bound: sigma / C, or B sigma / C where sigma is on the mean."""
    settings = {"method": "fedmap", "unit": "example", "observer": "server", "sampling": "fixed", "epsilon": 2.0}
    more = {"bound": 0.5, "lr": 0.005, "options": {"sigma": 2.0, "on_sum": on_sum}, "batch_size": 64, "rounds": 1}
    plan, data, _, _, result = run(linear, tmp_path, 2, **settings, **more)
    sizes = [len(y) for _, y in data]  # one batch each
    wanted = 4.0 if on_sum else 4.0 * math.sqrt(sizes[0] * sizes[1])
    (row,) = result.metrics
    assert row["multiplier"] == pytest.approx(wanted) and row["sigma"] == pytest.approx(2.0)
    assert "probability" not in result.statement.text()  # batches are pieces of shuffled data
    assert result.to_json()["multiplier"] is None  # clients set their own


def test_a_guess_is_told_wherever_a_run_is(linear, tmp_path):
    settings = AT_CLIENTS | {"method": "dp-fedagnc", "multiplier": 0.2}
    plan, _, _, _, result = run(linear, tmp_path, 2, **settings)
    guess = plan.method_spec.guess
    assert result.to_json()["departures"] == [guess]
    assert " ".join(guess.split()) in " ".join(result.statement.text().split())


def test_dp_fedacn_tells_its_noise_as_it_is(linear, tmp_path):
    """Sigma does not follow C_t: the statement names sigma and no multiplier, and metrics what sigma is under the bound that clipped."""
    settings = AT_CLIENTS | {"method": "dp-fedacn", "multiplier": 0.3, "bound": 0.5, "lr": 0.1}
    _, _, _, _, result = run(linear, tmp_path, 3, **settings)
    text = result.statement.text()
    assert "Standard deviation of the noise: 0.15, whatever the bound; no multiplier describes it." in " ".join(
        text.split()
    )
    assert "Multiplier (" not in text and "times as long as the bound" not in text
    assert [row["multiplier"] * row["bound"] for row in result.metrics] == pytest.approx([0.15] * 3)
    assert [row["noise"] for row in result.metrics] == pytest.approx([0.15 * math.sqrt(18 / 3)] * 3)


def test_the_statement_knows_the_length_of_laplace_noise(linear, tmp_path):
    """Of scale z C in 18 coordinates, at each of two clients."""
    settings = AT_CLIENTS | {"method": "noise-gamma", "mechanism": "laplace", "bound": 0.1, "multiplier": 2.0}
    _, _, _, _, result = run(linear, tmp_path, 2, local_epochs=2, **settings)
    text = " ".join(result.statement.text().split())
    assert (
        f"On the mean of one release the noise is {2 * math.sqrt(2 * 18 / 2):.3g} times as long as the bound." in text
    )
