"""What the slow re-implementations of published methods share: a model, local training, clipping, and draws.

Plain numpy in double precision: softmax regression, loops over clients, epochs and batches. Two things are taken from the
library, since they are draws and not methods: who and what takes part, and noise of a given standard deviation (`noise`).
"""

from __future__ import annotations

import numpy as np

from populations import toy
from sordino import EngineOptions, Plan, train
from sordino.privacy import grid_noise
from sordino.privacy.mechanisms import FixedPoint
from sordino.privacy.randomness import SERVER, source, stream

HERE = EngineOptions(engine="in-process")
CLOSE = 1e-6
AT_CLIENTS = {"unit": "client", "observer": "server", "sampling": "fixed"}


def run(linear, tmp_path, clients, **settings):
    base = {
        "data": "toy",
        "clients": clients,
        "variant": "published",
        "rounds": 3,
        "batch_size": 8,
        "lr": 0.3,
        "seed": 5,
    }
    plan = Plan(**(base | settings))
    federation = toy(clients)
    result = train(linear(), federation, plan, out=tmp_path / "run", options=HERE)
    return plan, [federation[k] for k in range(clients)], result.terms.multiplier, vector(result.model), result


def vector(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()]).astype(np.float64)


# ---- the model: softmax regression with 5 features and 3 classes ---------------------------------------------------------


def gradients(theta, x, y):
    """One row for each example."""
    weights, bias = theta[:15].reshape(3, 5), theta[15:]
    scores = x.astype(np.float64) @ weights.T + bias
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return np.hstack([np.einsum("nc,nf->ncf", p, x).reshape(len(y), -1), p])


def epoch(theta, x, y, rate, batch, order):
    """A pass over the data; the model, and the sum of the gradients that it went down."""
    total = np.zeros_like(theta)
    for i in range(0, len(y), batch):
        rows = order[i : i + batch]
        g = gradients(theta, x[rows], y[rows]).mean(0)
        theta, total = theta - rate * g, total + g
    return theta, total


def local_train(plan, theta, k, t, data):
    x, y = data[k]
    batches, total = stream(plan.seed, t, k, "batches"), np.zeros_like(theta)
    for _ in range(plan.local_epochs):
        theta, g = epoch(theta, x, y, plan.lr, plan.batch_size, batches.permutation(len(y)))
        total += g
    return theta, total


def clip(v, bound):
    return v / max(1.0, np.linalg.norm(v) / bound)


def noise(plan, std, bound, t, k=SERVER, units=None, purpose="noise", length=18, room=1000.0, finer=1):
    """Gaussian noise of this standard deviation, from the stream of client k (or of the server) in round t.

    All arguments from `bound` on, but for t and k, only say on which grid the library draws it.
    """
    steps = FixedPoint.for_bound(bound, max(2, plan.clients) if units is None else units, room).scale * finer
    return grid_noise.gaussian(std * steps, length, source(plan.seed, t, k, purpose, False)) / steps


def agree(ours, theirs, start):
    """The same to 1e-6, and far from where both began."""
    assert np.abs(ours - theirs).max() < CLOSE < np.abs(ours - start).max() / 100
