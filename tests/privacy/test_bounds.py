"""Clipping never exceeds the bound; the bound that clips says how much noise is due."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sordino.errors import BadInput
from sordino.privacy.bounds import L1, Automatic, Coordinates, EvenlyNoised, Flat, Grouped, from_json
from sordino.privacy.mechanisms import FixedPoint
from sordino.privacy.randomness import stream
from sordino.privacy.vocabulary import Relation

D = 6
BOUNDS = [
    Flat(0.7),
    Automatic(0.7, 0.05),
    Grouped((2, 4), (0.3, 0.9)),
    L1(0.7),
    Coordinates(np.linspace(-1, 1, D), np.linspace(0.1, 2, D)),
    EvenlyNoised((2, 4), (0.3, 0.9)),
]
ids = [b.kind for b in BOUNDS]


def norm(bound, v):
    return np.abs(v).sum() if bound.norm_kind == "l1" else np.linalg.norm(v)


def groups(bound, v):
    """(norm, bound) of each part that is clipped by itself."""
    if not isinstance(bound, Grouped):
        return [(norm(bound, v), bound.size)]
    return [(np.linalg.norm(p), c) for p, c in zip(np.split(v, np.cumsum(bound.sizes)[:-1]), bound.bounds)]


@pytest.mark.parametrize("bound", BOUNDS, ids=ids)
@settings(max_examples=150, deadline=None)
@given(v=arrays(np.float64, D, elements=st.floats(allow_nan=True, allow_infinity=True)), units=st.integers(1, 10**6))
def test_nothing_exceeds_the_bound(bound, v, units):
    clipped = bound.clip(v)
    grid = FixedPoint.for_bound(bound, units)
    for w in (clipped, grid.decode(grid.encode(clipped))):
        assert np.isfinite(w).all() and w.shape == v.shape and w.dtype == np.float64
        assert all(length <= limit for length, limit in groups(bound, w))
    if not np.isfinite(v).all():
        assert not clipped.any()


@pytest.mark.parametrize("bound", BOUNDS, ids=ids)
@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e-3, 1.0, 1e3, 1e30, 1e200, 1e307])
def test_huge_and_tiny_updates(bound, size):
    v = size * np.array([1.0, -0.5, 0.25, 0.1, -0.1, 0.3])
    clipped = bound.clip(v)
    assert all(length <= limit for length, limit in groups(bound, clipped))
    if 1e3 <= size < 1e300:  # clipped, not thrown away
        assert norm(bound, clipped) == pytest.approx(bound.size, rel=1e-3)


@pytest.mark.parametrize("d", [1, 17, 1000, 300_001])
def test_long_vectors_of_awkward_lengths(d):
    rng = stream(1, 0, d, "test")
    for bound in (Flat(1.0), Automatic(3.3), L1(0.1), Grouped((d,), (7.7,))):
        for spread in (1e-8, 1.0, 1e8):
            assert norm(bound, bound.clip(spread * rng.standard_normal(d))) <= bound.size
    assert np.linalg.norm(Flat(1.0).clip(np.ones(d))) == pytest.approx(1.0, rel=1e-11)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("bound", BOUNDS, ids=ids)
def test_updates_that_are_not_finite_count_as_zero(bound, bad):
    v = np.ones(D)
    v[3] = bad
    assert not bound.clip(v).any()


@pytest.mark.parametrize("bound", BOUNDS[:4], ids=ids[:4])
def test_zero_stays_zero(bound):
    assert np.array_equal(bound.clip(np.zeros(D)), np.zeros(D))


def test_short_vectors_pass_and_the_direction_is_kept():
    v = np.array([0.3, -0.4])
    kept = Flat(0.6).clip(v)
    assert np.array_equal(kept, v) and kept is not v
    assert Flat(0.25).clip(v) == pytest.approx(v / 2)
    assert L1(0.35).clip(v) == pytest.approx(v / 2)
    assert Automatic(2.0, 0.5).clip(v) == pytest.approx(2 * v)  # 2/(0.5 + 0.5)
    assert Grouped((1, 1), (0.3, 0.1)).clip(v) == pytest.approx([0.3, -0.1])


@pytest.mark.parametrize("bound", [Flat(0.7), Automatic(0.7), L1(0.7)])
def test_factors_clip_as_clip_does(bound):
    rng = stream(2, 0, 0, "test")
    units = rng.standard_normal((50, 8)) * np.geomspace(1e-3, 1e3, 50)[:, None]
    order = 1 if bound.norm_kind == "l1" else 2
    weights = bound.factors(np.linalg.norm(units, order, axis=1))
    assert weights[:, None] * units == pytest.approx(np.array([bound.clip(u) for u in units]), rel=1e-12)


def test_factors_of_groups():
    bound = Grouped((3, 5), (0.5, 2.0))
    units = stream(3, 0, 0, "test").standard_normal((20, 8))
    norms = np.stack([np.linalg.norm(units[:, :3], axis=1), np.linalg.norm(units[:, 3:], axis=1)], axis=1)
    weights = np.repeat(bound.factors(norms), [3, 5], axis=1)
    assert weights * units == pytest.approx(np.array([bound.clip(u) for u in units]), rel=1e-12)
    assert not bound.factors(np.array([[1.0, math.nan]])).any()
    with pytest.raises(BadInput):
        bound.factors(np.ones((4, 3)))


def test_factors_of_norms_that_are_not_finite_or_zero():
    norms = np.array([0.0, math.nan, math.inf, 2.0])
    assert Flat(1.0).factors(norms) == pytest.approx([1, 0, 0, 0.5])
    assert Automatic(1.0, 0.5).factors(norms) == pytest.approx([2, 0, 0, 0.4])


def test_single_precision_norms_get_more_slack():
    exact = np.float64(10.0)
    measured = np.float32(10.0) * np.float32(1 - 2e-5)  # an error that single precision sums can make
    assert exact * Flat(1.0).factors(measured) <= 1.0
    assert exact * Flat(1.0).factors(np.float64(measured)) > 1.0


def test_factors_after_a_change_of_coordinates_are_refused():
    with pytest.raises(BadInput):
        BOUNDS[4].factors(np.ones(3))


@pytest.mark.parametrize("bound", BOUNDS, ids=ids)
def test_sensitivity_and_json(bound):
    assert bound.sensitivity(Relation.ADD_REMOVE) == bound.sensitivity(Relation.ZERO_OUT) == bound.size
    assert bound.sensitivity(Relation.REPLACE_ONE) == 2 * bound.size
    again = from_json(json.loads(json.dumps(bound.to_json())))
    assert again == bound and hash(again) == hash(bound) and type(again) is type(bound)
    assert all(bound != other for other in BOUNDS if other is not bound)


def test_std_is_multiplier_times_bound():
    assert Flat(2.0).std(1.5) == Automatic(2.0).std(1.5) == 3.0
    assert L1(2.0).scale(1.5) == 3.0 and L1(2.0).std(1.5) == pytest.approx(3 * math.sqrt(2))
    assert BOUNDS[4].std(1.5) == 1.5


def test_the_split_over_groups_keeps_z_and_costs_least():
    bound, z = Grouped((3, 200, 40), (0.5, 2.0, 1.0)), 1.7
    sizes, limits = np.array(bound.sizes), np.array(bound.bounds)
    std = bound.std(z)
    assert std.shape == (243,)
    sigma = std[np.cumsum(sizes) - 1]
    assert np.array_equal(std, np.repeat(sigma, sizes))
    assert np.sum((limits / sigma) ** 2) == pytest.approx(z**-2, rel=1e-12)
    energy = np.sum(sizes * sigma**2)
    assert energy < np.sum(sizes) * (z * bound.size) ** 2  # one common std
    rng = stream(4, 0, 0, "test")
    for _ in range(200):  # any other split with the same z costs more
        other = sigma * np.exp(0.3 * rng.standard_normal(3))
        other *= z * np.sqrt(np.sum((limits / other) ** 2))
        assert np.sum(sizes * other**2) >= energy * (1 - 1e-12)


def test_one_group_is_flat():
    assert Grouped((5,), (2.0,)).std(1.5) == pytest.approx(np.full(5, Flat(2.0).std(1.5)))


def test_change_of_coordinates_and_back():
    mean, scale = np.array([1.0, -2.0]), np.array([0.5, 4.0])
    bound = Coordinates(mean, scale)
    updates = np.array([[1.1, -2.4], [0.9, -1.0]])  # both within the unit ball after the change
    w = np.array([bound.clip(u) for u in updates])
    assert w == pytest.approx((updates - mean) / scale)
    assert bound.decode(w.mean(axis=0)) == pytest.approx(updates.mean(axis=0))
    mean[0] = 99.0  # the bound keeps its own copy, and it cannot be written to
    assert bound.mean[0] == 1.0
    with pytest.raises(ValueError):
        bound.mean[0] = 0.0
    assert Flat(1.0).decode(w) is w


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "1", None, True])
def test_bad_bounds_are_refused(bad):
    for build in (
        Flat,
        Automatic,
        L1,
        lambda x: Automatic(1.0, x),
        lambda x: Grouped((1, 2), (1.0, x)),
        lambda x: Coordinates(np.zeros(2), np.array([1.0, float("nan") if x in ("1", None, True) else x])),
    ):
        with pytest.raises(BadInput):
            build(bad)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Grouped((), ()),
        lambda: Grouped((1, 2), (1.0,)),
        lambda: Grouped((0, 2), (1.0, 1.0)),
        lambda: Grouped((1.5, 2), (1.0, 1.0)),
        lambda: Coordinates(np.zeros(2), np.ones(3)),
        lambda: Coordinates(np.array([math.inf]), np.ones(1)),
        lambda: Coordinates(np.zeros(0), np.ones(0)),
        lambda: Flat(1.0).clip(np.ones((2, 2))),
        lambda: Grouped((1, 2), (1.0, 1.0)).clip(np.ones(4)),
        lambda: from_json({"kind": "cube", "bound": 1.0}),
        lambda: from_json({"bound": 1.0}),
        lambda: from_json({"kind": "flat", "radius": 1.0}),
    ],
)
def test_other_bad_input(build):
    with pytest.raises(BadInput):
        build()


def test_numpy_scalars_are_taken():
    assert Flat(np.float32(0.5)).to_json() == {"kind": "flat", "bound": 0.5} and isinstance(Flat(1).bound, float)


def test_even_noise_is_that_of_a_flat_bound_of_the_joint_length():
    bound = EvenlyNoised((3, 5), (0.6, 0.8))
    assert bound.size == pytest.approx(1.0) and bound.std(1.5) == pytest.approx(np.full(8, Flat(1.0).std(1.5)))
    far = bound.clip(np.full(8, 1e6))
    assert (
        np.linalg.norm(far[:3]) == pytest.approx(0.6) and np.linalg.norm(far) <= 1.0
    )  # as near to the bound as one can come
