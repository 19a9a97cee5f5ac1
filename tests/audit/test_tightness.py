"""A plain Gaussian sum of known epsilon: the audit returns most of it, and no more than there is.

One release of a sum with 100,000 canaries in it, by the library's own mechanism.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from sordino.audit import bounds, canary_clients, thresholds
from sordino.audit.canaries import Canaries
from sordino.audit.guessing import guess
from sordino.audit.watching import Watch
from sordino.privacy import gdp, mechanisms
from sordino.privacy.bounds import Flat
from sordino.privacy.randomness import SERVER, stream
from sordino.privacy.release import Private

DELTA, COUNT, BLOCK = 1e-5, 100_000, 8


@cache
def released(epsilon: float) -> Watch:
    canaries, bound, z = Canaries(COUNT, COUNT * BLOCK, secret=7), Flat(0.5), 1 / gdp.mu(epsilon, DELTA)
    watch = Watch(canaries, 1.0, False, Path("."))
    total = np.where(np.append(canaries.coins, False)[canaries.owner], canaries.shifts(bound, 1), 0.0)
    grid = mechanisms.FixedPoint.for_bound(bound, COUNT)
    private = Private(mechanisms.Sum(grid.encode(total), grid), bound=bound)
    noisy, _ = mechanisms.gaussian(private, bound, z, stream(3, 1, SERVER, "noise"))
    watch.note(1, noisy.value, bound, bound.std(z))
    return watch


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_canary_clients_return_most_of_it(epsilon):
    watch = released(epsilon)
    scores = canary_clients.scores(watch.cosines(watch.matched), BLOCK)
    shot = canary_clients.one_shot(scores[watch.canaries.coins], DELTA, 0.95, gdp=True)
    assert 0.85 * epsilon <= shot.lower <= epsilon


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_the_classical_audit_returns_most_of_it(epsilon):
    """Clopper and Pearson on the runs with and without, the threshold fixed beforehand half way between the worlds."""
    watch, coins = released(epsilon), released(epsilon).canaries.coins
    alarms, found = int((watch.ratio[~coins] > 0).sum()), int((watch.ratio[coins] > 0).sum())
    lower = bounds.many_runs_gdp(alarms, int((~coins).sum()), found, int(coins.sum()), DELTA, 0.95)
    assert 0.85 * epsilon <= lower <= epsilon
    chosen = thresholds.split(watch.ratio[~coins], watch.ratio[coins], DELTA, 0.95, gdp=True)
    assert 0.75 * epsilon <= chosen.epsilon <= epsilon


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_one_run_without_assumptions_returns_less(epsilon):
    """Two thirds within the Gaussian family and half without any: the price of holding whatever canaries do to each other."""
    watch, coins = released(epsilon), released(epsilon).canaries.coins
    family = guess(watch.ratio, coins, lambda m, r, v, c: bounds.one_run_gdp(m, r, v, DELTA, c), 0.95)
    anything = guess(watch.ratio, coins, lambda m, r, v, c: bounds.one_run(m, r, v, DELTA, c), 0.95)
    assert 0.55 * epsilon <= family.epsilon <= epsilon
    assert 0.35 * epsilon <= anything.epsilon <= family.epsilon
