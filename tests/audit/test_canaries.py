"""Who the canaries are, and when they take part."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.audit.canaries import Canaries, enough
from sordino.errors import BadInput
from sordino.federation import sampling
from sordino.federation.sizes import PublicSizes
from sordino.plan import Plan
from sordino.privacy.bounds import L1, Automatic, Bound, Coordinates, Flat, Grouped
from sordino.schemes import settle


def plan(**settings):
    base = {
        "data": "toy", "clients": 12, "cohort": 4, "method": "dp-fedavg", "unit": "client", "observer": "public",
        "multiplier": 1.0, "rounds": 30, "canaries": 60,
    }  # fmt: skip
    return Plan(**(base | settings))


def test_directions_are_unit_vectors_that_do_not_overlap():
    canaries = Canaries(7, 100, secret=3)
    assert canaries.block == 14
    assert np.bincount(canaries.owner + 1).tolist() == [2] + [14] * 7
    np.testing.assert_allclose(canaries.sums(canaries.direction**2), 1.0)
    assert (canaries.direction[canaries.owner < 0] == 0).all()


def test_everything_follows_from_the_secret():
    one, same, other = Canaries(50, 500, 1), Canaries(50, 500, 1), Canaries(50, 500, 2)
    assert (one.direction == same.direction).all() and (one.coins == same.coins).all()
    assert (one.direction != other.direction).any() and (one.coins != other.coins).any()


def test_coins_and_signs_are_fair():
    canaries = Canaries(4000, 4000, secret=5, turning=True)
    assert 0.45 < canaries.coins.mean() < 0.55
    assert abs(canaries.signs(1).mean()) < 0.1 and abs((canaries.signs(1) * canaries.signs(2)).mean()) < 0.1
    assert abs((canaries.signs(1) * (2 * canaries.coins - 1)).mean()) < 0.1
    assert (Canaries(10, 10, 5).signs(3) == 1).all()


BOUNDS: list[Bound] = [
    Flat(0.3),
    Automatic(2.0),
    Grouped((40, 20, 30), (0.1, 1.0, 0.5)),
    Coordinates(np.linspace(-1, 1, 90), np.linspace(0.1, 3, 90)),
]


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda b: b.kind)
@pytest.mark.parametrize("turning", [False, True])
def test_clipping_brings_a_canary_to_exactly_the_bound(bound, turning):
    """What the audit looks for is what the real bound makes of a canary's update."""
    canaries = Canaries(5, 90, secret=11, turning=turning)
    for k in range(5):
        given = bound.clip(canaries.update(k, bound, t=2))
        np.testing.assert_allclose(given, np.where(canaries.owner == k, canaries.shifts(bound, 2), 0.0), atol=1e-7)
        assert np.linalg.norm(given) == pytest.approx(bound.size, rel=1e-6)


def test_for_laplace_noise_a_canary_is_one_coordinate():
    canaries, bound = Canaries(5, 90, secret=11, single=True), L1(0.5)
    for k in range(5):
        given = bound.clip(canaries.update(k, bound, 1))
        assert np.count_nonzero(given) == 1 and np.abs(given).max() == pytest.approx(0.5)
        np.testing.assert_allclose(given, np.where(canaries.owner == k, canaries.shifts(bound, 1), 0.0), atol=1e-9)


def test_more_canaries_than_coordinates_are_refused():
    with pytest.raises(BadInput, match="a coordinate each"):
        Canaries(11, 10, 0)


# ---- taking part -----------------------------------------------------------------------------------------------------


def taken(p, rounds=None):
    terms = settle(p, PublicSizes(p.clients, 20))
    rate = terms.scheme.release_rate(terms)
    canaries = Canaries(p.canaries, 1000, secret=2)
    return np.array([canaries.cohort(p, t, rate) for t in range(1, (rounds or p.rounds) + 1)]), rate, terms


def test_towards_the_public_each_canary_has_its_own_coin_of_the_real_rate():
    there, rate, _ = taken(plan(sampling="poisson", rounds=400))
    assert rate == pytest.approx(1 / 3)
    assert abs(there.mean() - rate) < 0.02
    assert abs(np.corrcoef(there.T)[np.triu_indices(60, 1)].mean()) < 0.01


def test_samples_of_fixed_size_have_a_rate_that_is_no_larger():
    there, rate, _ = taken(plan(sampling="fixed", canaries=50))
    assert (there.sum(1) == 16).all() and 16 / 50 <= rate
    enough(plan(sampling="fixed", canaries=3))
    with pytest.raises(BadInput, match="ask for at least 3"):
        enough(plan(sampling="fixed", canaries=2))


@pytest.mark.parametrize("observer", ["secagg-server", "server"])
def test_where_it_shows_who_takes_part_no_canary_does_oftener_than_the_proof_allows(observer):
    p = plan(sampling="fixed", observer=observer)
    there, rate, terms = taken(p)
    assert rate == 1.0
    assert there.sum(0).max() <= terms.exposures
    busiest = np.bincount(np.concatenate([sampling.public_cohort(p, t) for t in range(1, 31)]), minlength=12)
    assert (there.sum(0)[:12] == busiest).all()


def test_pooled_canaries_are_drawn_at_the_rate_of_records():
    there, rate, terms = taken(plan(unit="example", cohort=12, batch_size=48, sampling="poisson"), rounds=300)
    assert rate == pytest.approx(48 / 240)
    assert abs(there.mean() - rate) < 0.02
    assert taken(plan(unit="example", cohort=12, sampling="none"))[0].all()


def test_real_units_are_drawn_as_if_there_were_no_canaries():
    for settings in ({"sampling": "poisson"}, {"sampling": "fixed"}):
        for t in range(1, 20):
            with_them, without = (
                sampling.public_cohort(plan(**settings), t),
                sampling.public_cohort(plan(canaries=0, **settings), t),
            )
            assert with_them.tolist() == without.tolist()
