"""The generator is what its page says."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.schemes.fedmap.metanet import synthetic
from sordino.schemes.fedmap.metanet.features import CERTIFIED, LENGTH, NAMES, PUBLISHED, REACH, SPAN


@pytest.mark.parametrize("kind", [CERTIFIED, PUBLISHED])
def test_sequences_are_a_function_of_the_seed(kind):
    first, again, other = (synthetic.sequences(kind, 200, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.steps, again.steps) and np.array_equal(first.labels, again.labels)
    assert not np.array_equal(first.labels, other.labels)
    assert first.steps.shape == (200, LENGTH, len(NAMES[kind])) and len(first) == 200
    assert np.isfinite(first.steps).all() and np.isfinite(first.labels).all()
    assert first.valid[:, 0].all()
    assert 0.05 < 1 - first.valid.all(1).mean() < 0.2, "some are cut short"
    assert not first.steps[~first.valid].any()


def test_published_labels_are_the_papers_mappings():
    """C from the mean and the variance of norms, sigma from the variance: both can be told from the last step."""
    data = synthetic.sequences(PUBLISHED, 20_000, 3)
    whole = data.valid.all(1)
    variance = 10 ** data.steps[whole, 0, 3].astype(float)
    inside = (variance > 1e-5) & (variance < 1e5)  # features are held between limits
    assert inside.mean() > 0.95
    assert np.allclose(np.exp(data.labels[whole, 1])[inside], variance[inside] / 100, rtol=1e-3)
    trace = 10 ** data.steps[whole, 0, 0].astype(float)
    assert np.allclose(trace[inside], variance[inside] * 64 / 63, rtol=1e-3)
    largest = 10 ** data.steps[whole, 0, 1].astype(float)
    bound = np.exp(data.labels[whole, 0])
    # mean <= largest and variance <= largest^2 / 4, so that C stays below half of their sum.
    assert (bound <= (largest + largest**2 / 4) / 2 * 1.01).all()
    assert abs(np.median(np.log10(largest)) - 0.6) < 0.5


def test_certified_labels_lead_from_the_bound_to_the_wanted_one():
    data = synthetic.sequences(CERTIFIED, 20_000, 3)
    last = data.steps[:, 0]
    change, noise = REACH * np.tanh(data.labels[:, 0]), SPAN * np.tanh(data.labels[:, 1])
    assert np.corrcoef(last[:, 0], change)[0, 1] < -0.7, "the more lies within the bound, the lower it should be"
    sure = last[:, NAMES[CERTIFIED].index("trust")] > 0.99  # little noise in the count
    near = np.abs((last[:, 0] + 1) / 2 - 0.2) < 0.02
    assert np.abs(change[sure & near]).mean() < 0.15, "a fifth within the bound: leave it"
    assert np.abs(change).max() <= 0.951 * REACH
    progress = (last[:, NAMES[CERTIFIED].index("progress")] + 1) / 2
    even = -0.5 * np.log((1 + 0.3 * (2 * progress - 1)) / (1 + 0.3 * progress))
    beyond = noise - even
    whole = data.valid.all(1)
    assert (beyond[whole] > -1e-5).all() and (beyond[whole] <= 0.1 * (1 - progress[whole]) + 1e-5).all()
    assert np.abs(noise[progress > 0.99]).max() < 0.01, "the last step is even: nothing is left and nothing is missing"


def test_costs_of_the_label_add_up_to_the_budget():
    """ClientBudgets r(x) times the even share of what is left, step by step, spends all of it."""
    steps, left = 1000, 1.0
    for k in range(steps):
        x = k / steps
        left -= left / (steps - k) * (1 + 0.3 * (2 * x - 1)) / (1 + 0.3 * x)
    assert left == pytest.approx(0, abs=1e-3)
