from __future__ import annotations

import numpy as np

from sordino.federation.sampling import participations
from sordino.federation.sampling import public_cohort as draw
from sordino.plan import Plan


def plan(**settings):
    base = {
        "clients": 1000,
        "cohort": 50,
        "unit": "client",
        "observer": "public",
        "multiplier": 1.0,
        "method": "dp-fedavg",
    }
    return Plan(**(base | settings))


def test_a_draw_is_a_function_of_seed_and_round():
    assert np.array_equal(draw(plan(), 3), draw(plan(), 3))
    assert not np.array_equal(draw(plan(), 3), draw(plan(), 4))
    assert not np.array_equal(draw(plan(), 3), draw(plan(seed=1), 3))


def test_poisson_cohorts_vary_as_binomials_do():
    sizes = np.array([len(draw(plan(), t)) for t in range(1, 401)])
    assert abs(sizes.mean() - 50) < 4 * np.sqrt(47.5 / 400)
    assert 0.8 * 47.5 < sizes.var() < 1.25 * 47.5


def test_every_client_is_as_likely():
    seen = np.bincount(np.concatenate([draw(plan(), t) for t in range(1, 401)]), minlength=1000)
    assert abs(seen.mean() - 20) < 1 and 0.8 * 19 < seen.var() < 1.2 * 19


def test_fixed_cohorts_have_no_repeats():
    cohort = draw(plan(sampling="fixed"), 1)
    assert len(cohort) == len(set(cohort.tolist())) == 50


def test_a_million_clients_are_drawn_from_at_once():
    cohort = draw(plan(clients=1_000_000, cohort=1000), 1)
    assert 800 < len(cohort) < 1200 and cohort.max() < 1_000_000


def test_participations_count_the_most_seen_client():
    p = plan(clients=20, cohort=5, rounds=30, sampling="fixed")
    seen = np.bincount(np.concatenate([draw(p, t) for t in range(1, 31)]), minlength=20)
    assert participations(p, p.rounds) == seen.max()
    assert participations(plan(clients=20, cohort=20, sampling="none", rounds=30), 30) == 30
