"""The methods that the four papers compare themselves with, and their relatives, against slow re-implementations.

What was read of each is in METHODS.md's words: of dp-fedamvc and dp-fedggc only a sentence, so these two are our own guess, twice.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from slowly import AT_CLIENTS, agree, clip, gradients, local_train, noise, run, vector

from sordino.federation.sampling import public_cohort
from sordino.privacy.randomness import stream

AT_SERVER = {"unit": "client", "observer": "public", "sampling": "poisson"}
DP_SGD = {"unit": "example", "observer": "public", "sampling": "poisson"}
WEIGHT, BIAS = slice(0, 15), slice(15, 18)  # the two tensors of the model


def updates_of(plan, theta, t, data):
    return [(k, local_train(plan, theta, k, t, data)[0] - theta) for k in public_cohort(plan, t)]


# ---- whole clients -------------------------------------------------------------------------------------------------------


def fedavg(plan, theta, data, _):
    """McMahan et al. 2017, algorithm 1: the mean of the cohort's models, weighted by their numbers of examples."""
    for t in range(1, plan.rounds + 1):
        models = [(len(data[k][1]), theta + update) for k, update in updates_of(plan, theta, t, data)]
        theta = sum(n * model for n, model in models) / sum(n for n, _ in models)
    return theta


def dp_fedavg(plan, theta, data, z):
    """McMahan et al. 2018: coins of probability q, S = C, noise z S on the sum, divided by q N whoever came."""
    q = plan.cohort / plan.clients
    for t in range(1, plan.rounds + 1):
        total = sum((clip(u, plan.bound) for _, u in updates_of(plan, theta, t, data)), np.zeros(18))
        theta = theta + (total + noise(plan, z * plan.bound, plan.bound, t)) / (q * plan.clients)
    return theta


def quantile(plan, theta, data, z):
    """Andrew et al. 2021, algorithm 1, with gamma 1/2, eta 0.2 and sigma_b = m / 20."""
    bound, m = plan.bound, plan.cohort
    sigma_b = m / 20
    z_update = (z**-2 - (2 * sigma_b) ** -2) ** -0.5
    for t in range(1, plan.rounds + 1):
        total, bits = np.zeros(18), 0.0
        for _, update in updates_of(plan, theta, t, data):
            total += clip(update, bound)
            bits += (1.0 if np.linalg.norm(update) <= bound else 0.0) - 0.5
        theta = theta + (total + noise(plan, z_update * bound, bound, t)) / m
        drawn = noise(plan, sigma_b, 0.5, t, purpose="query-contribute", length=1)[0]
        share = min(max(0.5 + (bits + drawn) / m, 0.0), 1.0)
        bound *= math.exp(-0.2 * (share - 0.5))
    return theta


def dp_fedamvc(plan, theta, data, z):
    """C_t falls in a line from C_0 to a fifth of it; each client adds its own noise."""
    for t in range(1, plan.rounds + 1):
        bound = plan.bound - (plan.bound - plan.bound / 5) * (t - 1) / (plan.rounds - 1)
        sent = [clip(u, bound) + noise(plan, z * bound, bound, t, k) for k, u in updates_of(plan, theta, t, data)]
        theta = theta + np.mean(sent, axis=0)
    return theta


def dp_fedggc(plan, theta, data, z):
    """Two groups, the tensors, each clipped to C / sqrt(2); noise z C on every coordinate."""
    own = plan.bound / math.sqrt(2)
    for t in range(1, plan.rounds + 1):
        sent = []
        for k, u in updates_of(plan, theta, t, data):
            clipped = np.concatenate([clip(u[WEIGHT], own), clip(u[BIAS], own)])
            sent.append(clipped + noise(plan, z * plan.bound, plan.bound, t, k))
        theta = theta + np.mean(sent, axis=0)
    return theta


def dp_bandmf(plan, theta, data, z):
    """Choquette-Choo et al. 2023: C^-1 of independent noise is added, C of two bands, a server with momentum."""
    c = [
        1.0,
        round(256 * (0.5 + plan.server_momentum / 2)) / 256,
    ]  # square root of 1 / ((1 - x)(1 - m x)), in parts of 256
    norm, before, velocity = math.hypot(*c), np.zeros(18), np.zeros(18)
    for t in range(1, plan.rounds + 1):
        total = sum((clip(u, plan.bound) for _, u in updates_of(plan, theta, t, data)), np.zeros(18))
        room = 1000 * plan.scheme.noise_room
        drawn = noise(plan, z * norm * plan.bound, plan.bound, t, room=room, finer=256)
        before = drawn - c[1] * before  # row t of C w = n
        velocity = plan.server_momentum * velocity + (total + before) / plan.cohort
        theta = theta + velocity
    return theta


def fed_dpa(plan, theta, data, z):
    """The public code of Yang et al. 2023 (METHODS.md, M3), but personal coordinates are not sent (the paper), and uniform weights."""
    models = {}
    for t in range(1, plan.rounds + 1):
        cohort, total = public_cohort(plan, t), np.zeros(18)
        for k in cohort:
            (x, y), own = data[k], models.get(k, theta)
            fisher = np.square(gradients(own, x, y)).mean(0)
            mask = np.zeros(18, bool)
            for part in (WEIGHT, BIAS):
                low, high = fisher[part].min(), fisher[part].max()
                mask[part] = (fisher[part] - low) / (high - low) > 0.4
            local = np.where(mask, own, theta)
            local = _adam(plan, local, theta, x, y, mask, 0.1, 0.0, stream(plan.seed, t, k, "personal-batches"))
            local = _adam(plan, local, theta, x, y, ~mask, 0.05, plan.bound, stream(plan.seed, t, k, "batches"))
            models[k] = local
            total += clip(np.where(mask, 0.0, local - theta), plan.bound)
        # Each of all K clients would add N(0, (z C)^2 / K), and m of them take part.
        std = z * plan.bound * math.sqrt(len(cohort) / plan.clients)
        theta = theta + (total + noise(plan, std, plan.bound, t)) / len(cohort)
    return theta


def _adam(plan, theta, shared, x, y, free, weight, aim, batches):
    """E epochs of a fresh Adam on the free coordinates: cross-entropy + weight/2 | sum over tensors |theta - shared| - aim |."""
    first, second, step = np.zeros(18), np.zeros(18), 0
    for _ in range(plan.local_epochs):
        order = batches.permutation(len(y))
        for i in range(0, len(y), plan.batch_size):
            rows = order[i : i + plan.batch_size]
            g = gradients(theta, x[rows], y[rows]).mean(0)
            lengths = [np.linalg.norm((theta - shared)[part]) for part in (WEIGHT, BIAS)]
            sign = 1.0 if sum(lengths) > aim else -1.0
            for part, length in zip((WEIGHT, BIAS), lengths):
                if length > 0:
                    g[part] += sign * weight / 2 * (theta - shared)[part] / length
            g = g * free
            step += 1
            first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
            theta = theta - plan.lr * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return theta


# ---- single records ------------------------------------------------------------------------------------------------------


def drawn_gradients(plan, theta, t, data):
    """Of the records of all clients that take part, each by its coin of probability B / n; and n."""
    n = sum(len(y) for _, y in data)
    rows = [stream(plan.seed, t, k, "records").random(len(y)) < plan.batch_size / n for k, (_, y) in enumerate(data)]
    return np.concatenate([gradients(theta, x[r], y[r]) for (x, y), r in zip(data, rows)]), n


def dp_fedddc(plan, theta, data, z):
    """Du et al. 2021 with end ratios 0.3 and 0.8: C_t = C_0 0.3^(t/T), z_t = z_0 0.8^(t/T), DP-SGD under them."""
    for t in range(1, plan.rounds + 1):
        bound, std = plan.bound * 0.3 ** (t / plan.rounds), z * 0.8 ** (t / plan.rounds)
        rows, n = drawn_gradients(plan, theta, t, data)
        total = sum((clip(g, bound) for g in rows), np.zeros(18))
        theta = theta - plan.lr * (total - noise(plan, std * bound, bound, t, units=n)) / plan.batch_size
    return theta


def automatic(plan, theta, data, z):
    """Bu et al. 2023: every gradient times R / (|g| + 0.01)."""
    for t in range(1, plan.rounds + 1):
        rows, n = drawn_gradients(plan, theta, t, data)
        total = sum((g * plan.bound / (np.linalg.norm(g) + 0.01) for g in rows), np.zeros(18))
        theta = theta - plan.lr * (total - noise(plan, z * plan.bound, plan.bound, t, units=n)) / plan.batch_size
    return theta


def adaclip(plan, theta, data, z):
    """Pichapati et al. 2019, algorithm 1, on the way down v = -g; beta1 0.99, beta2 0.9, h1 1e-12, h2 10."""
    mean, spread = np.zeros(18), np.full(18, plan.bound / math.sqrt(18))
    for t in range(1, plan.rounds + 1):
        b = np.sqrt(spread * spread.sum())
        rows, n = drawn_gradients(plan, theta, t, data)
        total = sum((clip((-g - mean) / b, 1.0) for g in rows), np.zeros(18))
        released = b * (total + noise(plan, z, 1.0, t, units=n)) / plan.batch_size + mean
        theta = theta + plan.lr * released
        excess = (released - mean) ** 2 - (b * z / plan.batch_size) ** 2
        spread = np.sqrt(0.9 * spread**2 + 0.1 * np.clip(excess, 1e-12, 10.0))
        mean = 0.99 * mean + 0.01 * released
    return theta


CASES = {
    "fedavg": (
        fedavg,
        {"unit": "client", "observer": "public", "sampling": "fixed", "weights": "size", "local_epochs": 2},
    ),
    "dp-fedavg": (dp_fedavg, AT_SERVER | {"multiplier": 0.2, "bound": 0.3, "local_epochs": 2}),
    "quantile": (quantile, AT_SERVER | {"multiplier": 0.05, "bound": 0.3, "rounds": 4}),
    "dp-bandmf": (
        dp_bandmf,
        AT_SERVER
        | {
            "multiplier": 0.2,
            "bound": 0.3,
            "rounds": 5,
            "cohort": 1,
            "options": {"bands": 2},
            "server_optimizer": "momentum",
        },
    ),
    "dp-fedamvc": (dp_fedamvc, AT_CLIENTS | {"multiplier": 0.2, "bound": 0.5}),
    "dp-fedggc": (dp_fedggc, AT_CLIENTS | {"multiplier": 0.2, "bound": 0.3}),
    "fed-dpa": (
        fed_dpa,
        {
            "unit": "client",
            "observer": "public",
            "sampling": "fixed",
            "multiplier": 0.1,
            "bound": 0.02,
            "local_epochs": 2,
        }
        | {"optimizer": "adam", "lr": 1e-3},
    ),
    "dp-fedddc": (dp_fedddc, DP_SGD | {"multiplier": 0.5, "bound": 0.5, "lr": 0.02}),
    "automatic": (automatic, DP_SGD | {"multiplier": 0.5, "bound": 0.5, "lr": 0.02}),
    "adaclip": (adaclip, DP_SGD | {"multiplier": 0.5, "bound": 0.5, "lr": 0.02}),
}


@pytest.mark.parametrize("clients", [2, 3])
@pytest.mark.parametrize("name", CASES)
def test_as_printed(linear, tmp_path, clients, name):
    obvious, settings = CASES[name]
    if settings["unit"] == "client":
        settings = {"cohort": 2} | settings  # of three, two are drawn
    plan, data, z, ours, _ = run(linear, tmp_path, clients, method=name, **settings)
    start = vector(linear())
    agree(ours, obvious(plan, start, data, z), start)


def test_every_published_method_is_compared_with_a_slow_version():
    import test_as_printed as papers

    from sordino.methods import METHODS

    of_the_papers = {"adact", "dp-fedacn", "dp-fedagnc", "geyer", "noise-gamma", "fedmap"}
    assert all(hasattr(papers, name.replace("-", "_")) for name in of_the_papers)
    assert of_the_papers | set(CASES) == set(METHODS)
