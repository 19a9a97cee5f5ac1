"""Noise of the right size, sums without rounding, and no way to noise for another bound than the one that clipped."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sordino.errors import BadInput, NotPrivate
from sordino.privacy import events, grid_noise
from sordino.privacy import mechanisms as m
from sordino.privacy.bounds import L1, Automatic, Coordinates, Flat, Grouped
from sordino.privacy.mechanisms import FixedPoint, Sum
from sordino.privacy.randomness import SecureSource, stream
from sordino.privacy.release import Private, _open

N = 30_000
SOURCES = {"stream": lambda: stream(1, 2, -1, "noise"), "secure": SecureSource}


def contribution(v, bound, grid):
    return Private(Sum(grid.encode(bound.clip(v)), grid), bound=bound)


def nothing(length, bound, grid):
    return Private(Sum(np.zeros(length, np.int64), grid), bound=bound)


def zeros(bound, length=N, units=100):
    return nothing(length, bound, FixedPoint.for_bound(bound, units))


def shared(bound, multiplier, survivors, clients, source, length=N):
    """The sum of clients that have nothing to say, each with its share of the noise."""
    grid = FixedPoint.for_bound(bound, 100)
    total = nothing(length, bound, grid)
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
def test_answers_have_noise_in_norms(source):
    limit = Flat(0.5)
    released, event = m.gaussian(zeros(limit), limit, 6.0, SOURCES[source]())
    both_ways(released.value, 3.0)
    assert event == events.gaussian(6.0)


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


def test_too_few_shares_stay_closed():
    bound = Flat(1.0)
    parts = [shared(bound, 2.0, 3, 1, stream(0, 0, k, "noise"), length=4) for k in range(3)]
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
    lengths = [np.linalg.norm(_open(contribution(u, bound, grid)).decode()) for u in updates]
    assert lengths[0] == pytest.approx(2.0) and lengths[0] <= 2.0
    assert lengths[1:] == [0.0, 0.0, 0.0]
    total = m.add([contribution(u, bound, grid) for u in updates], nothing(5, bound, grid))
    released, _ = m.gaussian(total, bound, 1e-6, stream(0, 0, 0, "noise"))
    assert released.value == pytest.approx(np.full(5, 2 / math.sqrt(5)), abs=1e-4)


def test_empty_cohort_is_noised():
    bound = Flat(1.0)
    released, event = m.gaussian(zeros(bound, 1000), bound, 1.0, SecureSource())
    assert np.count_nonzero(released.value) > 990 and event == events.gaussian(1.0)


def test_the_bound_that_clips_is_the_bound_that_noises():
    bound, other = Flat(1.0), Flat(2.0)
    draw = stream(0, 0, 0, "noise")
    for use in (lambda b, t: m.gaussian(t, b, 1.0, draw), lambda b, t: m.open_noised(t, b, 1.0)):
        with pytest.raises(NotPrivate, match="clipped under a bound of 1"):
            use(other, zeros(bound, 3))
    m.gaussian(zeros(bound, 3), Flat(1.0), 1.0, draw)  # an equal bound, come over the wire, is the same bound
    with pytest.raises(NotPrivate, match="carries no bound"):
        m.gaussian(Private(_open(zeros(bound, 3))), bound, 1.0, draw)
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
    codes, grid = np.zeros(3, np.int64), FixedPoint(1.0)
    for use in (lambda b: m.gaussian(zeros(b, 3), b, 1.0, draw), lambda b: m.add_share(codes, grid, b, 1.0, 1, draw)):
        with pytest.raises(NotPrivate, match="L2"):
            use(L1(1.0))


def test_no_noise_goes_through_the_other_door():
    bound = Flat(1.0)
    grid = FixedPoint.for_bound(bound, 1)
    total = contribution(np.array([0.5, -0.25]), bound, grid)
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
    parts = [contribution(rng.standard_normal(7) * 10.0 ** rng.uniform(-8, 8), bound, grid) for _ in range(units)]
    empty = nothing(7, bound, grid)
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
    for value in (np.zeros(3), np.zeros(3, dtype=np.int64), [0.0]):
        with pytest.raises(BadInput):
            m.gaussian(Private(value, bound=bound), bound, 1.0, stream(0, 0, 0, "noise"))
    grouped = Grouped((1, 2), (1.0, 1.0))
    with pytest.raises(BadInput):
        m.gaussian(zeros(grouped, 4), grouped, 1.0, stream(0, 0, 0, "noise"))
    for codes in (np.zeros(3), np.zeros((2, 2), np.int64)):
        with pytest.raises(BadInput):
            m.add_share(codes, grid, bound, 1.0, 1, stream(0, 0, 0, "noise"))


UNEVEN = Grouped((1, 10**6), (1.0, 1.0))  # the noise of the first is 22 times the bound


@pytest.mark.parametrize("bound", [Flat(1.0), Flat(1.9999), Flat(1e-30), L1(3.0), UNEVEN])
@pytest.mark.parametrize("units", [1, 100, 10**6])
@pytest.mark.parametrize("multiplier", [1e-3, 1.0, 1e3, 1e6])
def test_there_is_room_for_the_noise_of_every_contribution(bound, units, multiplier):
    grid = FixedPoint.for_bound(bound, units, multiplier)
    deviations = 64 if bound.norm_kind == "l1" else 16
    noise = deviations * multiplier * np.max(bound.std(1.0)) * math.sqrt(units)
    assert (units * bound.size + noise) * grid.scale < 2.0**62
    assert bound.size * grid.scale >= 2.0**14


def test_more_noise_than_the_grid_holds_is_refused_and_a_coarser_grid_takes_it():
    bound, z = Flat(1.0), 1e6
    with pytest.raises(BadInput, match="for_bound the multiplier"):
        m.gaussian(zeros(bound), bound, z, SecureSource())
    total = nothing(N, bound, FixedPoint.for_bound(bound, 100, z))
    both_ways(m.gaussian(total, bound, z, SecureSource())[0].value, z)
    with pytest.raises(BadInput, match="too many"):
        FixedPoint.for_bound(bound, 10**6, 1e20)


def test_noise_is_never_less_than_is_charged():
    """Where a bound is only a few steps, the rounding of the proof adds 4 steps to the standard deviation, in squares."""
    bound, grid = Flat(1.0), FixedPoint(8.0)
    released, _ = m.gaussian(nothing(N, bound, grid), bound, 0.5, SecureSource())
    both_ways(released.value + stream(1, 1, 1, "dither").uniform(-1 / 16, 1 / 16, N), math.sqrt(0.5**2 + 0.5**2))


def test_the_laws_of_the_proof():
    """Numbers of `grid_noise`, worked out by sums: randomly rounded Gaussians and sums of shares are discrete Gaussians."""
    k = np.arange(-200, 201)

    def discrete(variance):
        p = np.exp(-(k**2) / (2 * variance))
        return p / p.sum()

    near = np.abs(k) <= 30
    for r, s in ((1.0, 3.0), (0.8, 2.0)):  # small enough for a difference to show in double precision
        y = np.linspace(-40, 40, 16_001)
        density = np.exp(-(y**2) / (2 * s**2))
        kernel = np.exp(-np.square(k[near, None] - y) / (2 * r**2))
        rounded = (kernel * density / np.exp(-np.square(np.arange(-80, 81)[:, None] - y) / (2 * r**2)).sum(0)).sum(1)
        wanted = discrete(s**2 + r**2)[near]
        gap = np.abs(np.log(rounded / rounded[30]) - np.log(wanted / wanted[30])).max()
        assert gap <= 10 * math.exp(-2 * math.pi**2 * r**2) + 1e-12
    for v in (0.8, 1.5):
        total = discrete(v)
        for count in range(2, 6):
            total = np.convolve(total, discrete(v), mode="same")
            gap = np.abs(np.log(total[near] / discrete(count * v)[near])).max()
            assert gap <= 10 * (count - 1) * math.exp(-(math.pi**2) * v) + 1e-9
    assert 10 * math.exp(-(math.pi**2) * grid_noise.SMOOTH**2) < 2.0**-224


def test_answers_are_clipped_unit_by_unit_and_summed_in_integers():
    norm = 0.5
    grid = FixedPoint.for_bound(Flat(norm), 100)
    rows = np.array(
        [[0.3, 0.0], [3.0, 4.0], [math.nan, 1.0], [math.inf, 0.0], [1e300, -1e300], [0.0, 0.0], [1e-320, 0.0]]
    )
    expected = [[0.3, 0.0], [0.3, 0.4], [0, 0], [0, 0], [0.5 / math.sqrt(2), -0.5 / math.sqrt(2)], [0, 0], [0, 0]]
    single = [m.answer(row, norm, grid) for row in rows]
    for codes, wanted in zip(single, expected):
        assert codes.dtype == np.int64 and grid.decode(codes) == pytest.approx(wanted, abs=1e-11)
        assert sum(int(c) ** 2 for c in codes) <= (norm * grid.scale) ** 2
    assert np.array_equal(m.answer(rows, norm, grid), np.sum(single, axis=0))
    assert np.array_equal(m.answer(np.empty((0, 3)), norm, grid), np.zeros(3))
    tiny = FixedPoint.for_bound(Flat(1e-200), 1)
    assert abs(tiny.decode(m.answer(np.full(4, 1e-170), 1e-200, tiny))) == pytest.approx(np.full(4, 5e-201))
    with pytest.raises(BadInput):
        m.answer(np.zeros((1, 1, 1)), norm, grid)
    with pytest.raises(BadInput):
        m.answer(np.zeros(2), 0.0, grid)


@pytest.mark.parametrize("source", SOURCES)
def test_answers_are_released_as_sums_are(source):
    bound, z = Flat(0.5), 6.0
    grid = FixedPoint.for_bound(bound, 3)
    codes = m.answer(np.zeros((3, N)), 0.5, grid)
    released, event = m.gaussian(Private(Sum(codes, grid), bound=bound), bound, z, SOURCES[source]())
    both_ways(released.value, 3.0)
    assert event == events.gaussian(z)
    noise = sum(m.add_share(codes, grid, bound, z, 3, SOURCES[source]()) for _ in range(1))
    with pytest.raises(NotPrivate, match="too few"):
        m.open_noised(Private(Sum(codes, grid, noise), bound=bound), bound, z)


def test_noise_in_shares_of_groups_and_scales():
    bound = Grouped((N // 3, N - N // 3), (0.1, 2.0))
    released, _ = m.open_noised(shared(bound, 0.8, 2, 2, SecureSource()), bound, 0.8)
    std = bound.std(0.8)
    for part in (slice(0, N // 3), slice(N // 3, N)):
        both_ways(released.value[part], std[part][0])
    spread = np.repeat([1e3, 1e6, 1e3], 2000)
    noise = grid_noise.gaussian(spread, 6000, stream(0, 0, 0, "noise"))
    for i, scale in enumerate((1e3, 1e6, 1e3)):
        both_ways(noise[2000 * i : 2000 * (i + 1)], scale)
    for bad in (np.array([1.0, math.nan]), np.array([1.0, 0.0]), np.ones(3)):
        with pytest.raises(BadInput):
            grid_noise.gaussian(bad, 2, SecureSource())


def test_a_bound_whose_noise_does_not_match_its_clipping_is_charged_as_not_private():
    class Late(Flat):
        honest = False

    bound = Late(1.0)
    for _, event in (m.gaussian(zeros(bound, 3), bound, 1.0, SecureSource()),
                     m.open_noised(shared(bound, 1.0, 1, 1, SecureSource(), 3), bound, 1.0)):  # fmt: skip
        assert events.reasons(event) == ["the noise does not match the clipping"]
