"""Noise of the right size, sums without rounding, and no way to noise for another bound than the one that clipped."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sordino.errors import BadInput, NotPrivate
from sordino.privacy import events
from sordino.privacy import mechanisms as m
from sordino.privacy.bounds import L1, Automatic, Coordinates, Flat, Grouped
from sordino.privacy.mechanisms import FixedPoint, Sum
from sordino.privacy.randomness import SecureSource, stream
from sordino.privacy.release import Private, _open

N = 30_000
SOURCES = {"stream": lambda: stream(1, 2, -1, "noise"), "secure": SecureSource}


def zeros(bound, length=N, units=100):
    return m.nothing(length, bound, FixedPoint.for_bound(bound, units))


def shared(bound, multiplier, survivors, clients, source, length=N):
    """The sum of clients that have nothing to say, each with its share of the noise."""
    grid = FixedPoint.for_bound(bound, 100)
    total = m.nothing(length, bound, grid)
    for _ in range(clients):
        codes = np.zeros(length, dtype=np.int64)
        noise = m.add_share(codes, grid, bound, multiplier, survivors, source)
        total = m.add([Private(Sum(codes, grid, noise), bound=bound)], total)
    return total


def both_ways(noise, scale, law=stats.norm):
    """Accepted at the right scale, rejected at two thirds and three halves of it."""
    assert stats.kstest(noise, law(scale=scale).cdf).pvalue > 1e-6
    assert stats.kstest(noise, law(scale=scale * 2 / 3).cdf).pvalue < 1e-9
    assert stats.kstest(noise, law(scale=scale * 3 / 2).cdf).pvalue < 1e-9


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("bound", [Flat(0.3), Automatic(0.3), Coordinates(np.zeros(N), np.full(N, 5.0))])
def test_gaussian_noise_has_multiplier_times_bound(source, bound):
    released, event = m.gaussian(zeros(bound), bound, 1.7, SOURCES[source]())
    both_ways(released.value, 1.7 * bound.size)
    assert event == events.gaussian(1.7)
    assert "1.7" in released.how


@pytest.mark.parametrize("source", SOURCES)
def test_gaussian_noise_of_groups(source):
    bound = Grouped((N // 3, N - N // 3), (0.1, 2.0))
    released, event = m.gaussian(zeros(bound), bound, 0.8, SOURCES[source]())
    std = bound.std(0.8)
    for part in (slice(0, N // 3), slice(N // 3, N)):
        both_ways(released.value[part], std[part][0])
    assert event == events.gaussian(0.8)


@pytest.mark.parametrize("source", SOURCES)
def test_laplace_noise(source):
    bound = L1(0.3)
    released, event = m.laplace(zeros(bound), bound, 1.7, SOURCES[source]())
    both_ways(released.value, 1.7 * 0.3, stats.laplace)
    assert event == events.laplace(1.7)


@pytest.mark.parametrize("source", SOURCES)
def test_query_noise(source):
    released, event = m.release_query(Private(np.zeros(N)), 0.5, 3.0, SOURCES[source]())
    both_ways(released.value, 3.0)
    assert event == events.gaussian(6.0)


def test_query_answer_is_the_total_plus_noise():
    total = np.array([5.0, -2.0, 0.5])
    released, _ = m.release_query(Private(total), 0.5, 1e-9, stream(0, 0, 0, "q"))
    assert released.value == pytest.approx(total, abs=1e-7)
    for bad in ((0.0, 1.0), (1.0, 0.0), (math.nan, 1.0), (1.0, math.inf)):
        with pytest.raises(BadInput):
            m.release_query(Private(total), *bad, stream(0, 0, 0, "q"))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("survivors, clients", [(5, 5), (5, 9), (1, 4)])
def test_noise_in_shares(source, survivors, clients):
    """h shares make the whole; more clients add more; with h = 1 each message has it all."""
    bound, z = Flat(0.3), 1.7
    draw = SOURCES[source]()
    released, event = m.open_noised(shared(bound, z, survivors, clients, draw), bound, z)
    both_ways(released.value, z * 0.3 * math.sqrt(clients / survivors))
    assert event == events.gaussian(z)
    one = _open(shared(bound, z, survivors, 1, draw))
    assert one.noise == pytest.approx(z**2 / survivors)
    both_ways(one.decode(), z * 0.3 / math.sqrt(survivors))
    both_ways(m.noise_share(bound, z, survivors, draw, N), z * 0.3 / math.sqrt(survivors))


def test_too_few_shares_stay_closed():
    bound = Flat(1.0)
    parts = [m.add_share(zeros(bound, 4), bound, 2.0, 3, stream(0, 0, k, "noise")) for k in range(3)]
    m.open_noised(m.add(parts, zeros(bound, 4)), bound, 2.0)
    for few in (parts[:2], []):
        with pytest.raises(NotPrivate, match="too few"):
            m.open_noised(m.add(few, zeros(bound, 4)), bound, 2.0)
    with pytest.raises(NotPrivate):  # the noise is for 2, not for 3
        m.open_noised(m.add(parts, zeros(bound, 4)), bound, 3.0)


def test_huge_update_is_bounded_and_bad_ones_count_for_nothing():
    bound = Flat(2.0)
    grid = FixedPoint.for_bound(bound, 10)
    updates = [np.full(5, 1e12), np.full(5, math.nan), np.array([math.inf, 0, 0, 0, 0]), np.zeros(5)]
    lengths = [np.linalg.norm(_open(m.contribution(u, bound, grid)).decode()) for u in updates]
    assert lengths[0] == pytest.approx(2.0) and lengths[0] <= 2.0
    assert lengths[1:] == [0.0, 0.0, 0.0]
    total = m.add([m.contribution(u, bound, grid) for u in updates], m.nothing(5, bound, grid))
    released, _ = m.gaussian(total, bound, 1e-6, stream(0, 0, 0, "noise"))
    assert released.value == pytest.approx(np.full(5, 2 / math.sqrt(5)), abs=1e-4)


def test_empty_cohort_is_noised():
    bound = Flat(1.0)
    released, event = m.gaussian(zeros(bound, 1000), bound, 1.0, SecureSource())
    assert np.count_nonzero(released.value) > 990 and event == events.gaussian(1.0)


def test_the_bound_that_clips_is_the_bound_that_noises():
    bound, other = Flat(1.0), Flat(2.0)
    draw = stream(0, 0, 0, "noise")
    for total in (zeros(bound, 3), Private(np.zeros(3), bound=bound)):
        for use in (
            lambda b, t: m.gaussian(t, b, 1.0, draw),
            lambda b, t: m.add_share(t, b, 1.0, 2, draw),
            lambda b, t: m.open_noised(t, b, 1.0),
        ):
            with pytest.raises(NotPrivate, match="clipped under a bound of 1"):
                use(other, total)
    m.gaussian(zeros(bound, 3), Flat(1.0), 1.0, draw)  # an equal bound, come over the wire, is the same bound
    with pytest.raises(NotPrivate, match="carries no bound"):
        m.gaussian(Private(np.zeros(3)), bound, 1.0, draw)
    with pytest.raises(NotPrivate):  # stamps do not survive a transformation
        m.gaussian(zeros(bound, 3).map(lambda s: s), bound, 1.0, draw)
    with pytest.raises(NotPrivate):
        m.add([zeros(other, 3)], zeros(bound, 3))
    with pytest.raises(NotPrivate):
        m.gaussian(np.zeros(3), bound, 1.0, draw)
    with pytest.raises(NotPrivate):
        m.laplace(zeros(L1(1.0), 3), L1(2.0), 1.0, draw)


def test_each_noise_has_its_norm():
    draw = stream(0, 0, 0, "noise")
    with pytest.raises(NotPrivate, match="L1"):
        m.laplace(zeros(Flat(1.0), 3), Flat(1.0), 1.0, draw)
    for use in (lambda b: m.gaussian(zeros(b, 3), b, 1.0, draw), lambda b: m.noise_share(b, 1.0, 1, draw, 3)):
        with pytest.raises(NotPrivate, match="L2"):
            use(L1(1.0))


def test_no_noise_goes_through_the_other_door():
    bound = Flat(1.0)
    grid = FixedPoint.for_bound(bound, 1)
    total = m.contribution(np.array([0.5, -0.25]), bound, grid)
    for use in (m.gaussian, m.laplace):
        with pytest.raises(NotPrivate, match="without_noise"):
            use(total, bound, 0.0, stream(0, 0, 0, "noise"))
    released, event = m.without_noise(total, "the paper adds none")
    assert released.value == pytest.approx([0.5, -0.25]) and events.reasons(event) == ["the paper adds none"]
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(BadInput):
            m.gaussian(total, bound, bad, stream(0, 0, 0, "noise"))


def test_same_stream_same_release():
    bound = Flat(1.0)
    once, again = (m.gaussian(zeros(bound, 50), bound, 1.0, stream(3, 1, -1, "noise"))[0].value for _ in range(2))
    assert np.array_equal(once, again)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_order_and_partition_gives_the_same_bits(data):
    bound = Flat(data.draw(st.floats(1e-6, 1e6)))
    units = data.draw(st.integers(1, 30))
    grid = FixedPoint.for_bound(bound, units)
    rng = stream(data.draw(st.integers(0, 10**6)), 0, 0, "test")
    parts = [m.contribution(rng.standard_normal(7) * 10.0 ** rng.uniform(-8, 8), bound, grid) for _ in range(units)]
    empty = m.nothing(7, bound, grid)
    whole = _open(m.add(parts, empty)).codes
    order = data.draw(st.permutations(range(units)))
    cut = data.draw(st.integers(0, units))
    left, right = ([parts[i] for i in part] for part in (order[:cut], order[cut:]))
    pieces = m.add([m.add(right, empty), m.add(left, empty)], empty)
    assert np.array_equal(_open(pieces).codes, whole)
    assert np.array_equal((_open(m.add(left, empty)) + _open(m.add(right, empty))).codes, whole)


def test_sums_cannot_overflow():
    for units in (1, 7, 1000, 2**20, 2**30, 2**40):
        for size in (1e-30, 0.3, 1.0, 1.9999, 1e30):
            grid = FixedPoint.for_bound(Flat(size), units)
            most = int(abs(grid.encode(Flat(size).clip(np.array([9 * size])))[0]))
            assert most * units < 2**62 and most >= 2**7
    with pytest.raises(BadInput):
        FixedPoint.for_bound(Flat(1.0), 2**60)


@given(st.floats(-1e3, 1e3))
def test_encoding_truncates_and_rounding_rounds(x):
    grid = FixedPoint(2.0**10)
    code, near = grid.encode(np.array([x]))[0], grid.round(np.array([x]))[0]
    assert abs(code) <= abs(x * 1024) < abs(code) + 1 and code * x >= 0
    assert abs(near - x * 1024) <= 0.5


def test_the_grid_costs_nothing_to_speak_of():
    bound = Flat(1.0)
    grid = FixedPoint.for_bound(bound, 1000)
    v = bound.clip(stream(0, 0, 0, "test").standard_normal(10_000))
    assert np.linalg.norm(grid.decode(grid.encode(v)) - v) < 1e-9


def test_bad_grids_and_sums():
    for scale in (3.0, 0.0, -2.0, math.inf, math.nan):
        with pytest.raises(BadInput):
            FixedPoint(scale)
    grid = FixedPoint(2.0**40)
    for bad in (1e30, math.nan, math.inf):
        with pytest.raises(BadInput):
            grid.encode(np.array([bad]))
    with pytest.raises(BadInput):
        Sum(np.zeros(3), grid)
    one = Sum(np.zeros(3, dtype=np.int64), grid)
    for other in (Sum(np.zeros(4, dtype=np.int64), grid), Sum(one.codes, FixedPoint(2.0**41))):
        with pytest.raises(BadInput):
            one + other
        with pytest.raises(BadInput):
            m.add([Private(other, bound=Flat(1.0))], Private(one, bound=Flat(1.0)))
    bound = Flat(1.0)
    for value in (np.zeros((2, 2)), np.zeros(3, dtype=np.int64), [0.0], np.array([math.nan])):
        with pytest.raises(BadInput):
            m.gaussian(Private(value, bound=bound), bound, 1.0, stream(0, 0, 0, "noise"))
    grouped = Grouped((1, 2), (1.0, 1.0))
    with pytest.raises(BadInput):
        m.gaussian(Private(np.zeros(4), bound=grouped), grouped, 1.0, stream(0, 0, 0, "noise"))
