"""What the low bits of noised sums and answers tell: nothing, for every placement of the noise.

Each attack is first run on noise in floating point, where it must win by more than epsilon allows, and then on the mechanisms,
where its lower bound on epsilon must stay below what is printed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sordino.audit.bounds import many_runs
from sordino.privacy import events, gdp, mechanisms
from sordino.privacy.bounds import L1, Flat
from sordino.privacy.mechanisms import FixedPoint, Sum
from sordino.privacy.randomness import SecureSource, stream
from sordino.privacy.release import Private

DELTA, CONFIDENCE, TRIALS = 1e-5, 1 - 1e-6, 400
BOUND, CLIENTS, D = Flat(1.0), 3, 64
PLACES = ["central", "share", "full"]
SOURCES = {"stream": lambda: stream(1, 2, 3, "noise"), "secure": SecureSource}


def lower(attack, release, without, with_it):
    """The lower bound on epsilon from TRIALS looks at each world."""
    alarms = sum(attack(release(without)) for _ in range(TRIALS))
    found = sum(attack(release(with_it)) for _ in range(TRIALS))
    return many_runs(alarms, TRIALS, found, TRIALS, DELTA, CONFIDENCE)


def exact(place, bound, grid, z, source):
    """What the observer of this placement sees of one client's codes, in steps."""

    def release(codes):
        mine = codes.copy()
        if place == "central":
            released, event = mechanisms.gaussian(Private(Sum(mine, grid), bound=bound), bound, z, source)
            assert event == events.gaussian(z)
            return released.value * grid.scale
        survivors = 1 if place == "full" else CLIENTS
        noise = mechanisms.add_share(mine, grid, bound, z, survivors, source)
        for _ in range(survivors - 1):  # the others have nothing to say
            noise += mechanisms.add_share(mine, grid, bound, z, survivors, source)
        _, event = mechanisms.open_noised(Private(Sum(mine, grid, noise), bound=bound), bound, z)
        assert event == events.gaussian(z)
        return mine

    return release


def in_floats(place, bound, grid, z, source):
    """The same with noise in floating point, rounded to the grid."""

    def release(codes):
        survivors = CLIENTS if place == "share" else 1
        noise = [grid.round(bound.std(z) / math.sqrt(survivors) * source.standard_normal(D)) for _ in range(survivors)]
        return codes + sum(noise)

    return release


def secret(grid):
    """An update of full length whose codes are all odd."""
    return mechanisms.answer(np.full(D, 1 / math.sqrt(D)), 1.0, grid) | 1


def low_bits(known):
    """Whether the noise, if the secret is in, has too many zeros at its end."""
    return lambda seen: np.mean((np.asarray(seen) - known) % 8 == 0) > 0.5


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("place", PLACES)
def test_noise_far_above_the_grid_hides_the_low_bits(place, source):
    z = 5e5
    printed = gdp.epsilon(DELTA, 1 / z)
    fine = FixedPoint(2.0**40)
    known = secret(fine)
    if place != "central":  # of a released sum 53 bits are seen, of codes all
        assert lower(low_bits(known), in_floats(place, BOUND, fine, z, SOURCES[source]()), 0 * known, known) > 3
    grid = FixedPoint.for_bound(BOUND, CLIENTS, z)
    known = secret(grid)
    assert lower(low_bits(known), exact(place, BOUND, grid, z, SOURCES[source]()), 0 * known, known) <= printed


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("z", [0.5, 10.0, 1e6])
def test_the_low_bits_are_uniform_whatever_is_in_the_sum(place, z):
    """Of 65,536 coordinates at once, as in a large model: each of the last sixteen values as often as any other."""
    grid = FixedPoint.for_bound(BOUND, CLIENTS, z)
    codes = np.full(1 << 16, 5, np.int64)
    seen = np.asarray(exact(place, BOUND, grid, z, SecureSource())(codes))
    lost = 16 if place == "central" and z > 1e5 else 1  # a double has 53 bits of a sum
    last = (seen.astype(np.int64) // lost) % 16
    assert stats.chisquare(np.bincount(last, minlength=16)).pvalue > 1e-6


def finer_than(step):
    """Whether an answer has digits that no answer of the other world can have."""
    return lambda seen: bool(np.any(np.asarray(seen) / step % 1 != 0))


@pytest.mark.parametrize("place", PLACES)
def test_no_answer_is_impossible_for_a_neighbour(place):
    """A bit of 0 or 1/2: in floating point, noise near 0 has digits that 1/2 plus noise cannot have."""
    norm, z = 0.5, 2.0
    source, printed = stream(4, 5, 6, "query"), gdp.epsilon(DELTA, 1 / z)
    sharp = finer_than(2.0**-54)

    def floats(value):
        parts = CLIENTS if place == "share" else 1
        return value + sum(z * norm / math.sqrt(parts) * source.standard_normal(16) for _ in range(parts))

    assert lower(sharp, floats, 0.5, 0.0) > printed
    bound, grid = Flat(norm), FixedPoint.for_bound(Flat(norm), CLIENTS, z)
    yes, no = (mechanisms.answer(np.full(16, half), norm, grid) for half in (norm / 4, 0.0))
    release = exact(place, bound, grid, z, source)
    assert lower(lambda seen: sharp(grid.decode(seen)), release, yes, no) <= printed
    assert lower(low_bits(int(yes[0])), release, no, yes) <= printed
    assert lower(lambda seen: np.sum(seen) > 2 * np.sum(yes), release, no, yes) <= printed  # an honest attack


@pytest.mark.parametrize("place", PLACES)
def test_a_query_that_declares_too_small_a_norm_gains_nothing(place):
    """Its answers are a hundred times as long as it says."""
    norm, z = 0.5, 2.0
    bound, grid = Flat(norm), FixedPoint.for_bound(Flat(norm), CLIENTS, z)
    loud = mechanisms.answer(np.array([[100 * norm, 0.0]]), norm, grid)
    assert np.linalg.norm(grid.decode(loud)) <= norm
    release = exact(place, bound, grid, z, SecureSource())
    printed = gdp.epsilon(DELTA, 1 / z)
    for threshold in (0.0, norm, 10 * norm):
        assert lower(lambda seen: seen[0] / grid.scale > threshold, release, 0 * loud, loud) <= printed  # noqa: B023
    unclipped = 100 * loud  # would be seen at once
    assert lower(lambda seen: seen[0] / grid.scale > 10 * norm, release, 0 * loud, unclipped) > printed


def test_laplace_noise_is_as_fine_as_the_grid():
    bound, z = L1(1.0), 5e5
    grid = FixedPoint.for_bound(bound, 1, z)
    released, _ = mechanisms.laplace(
        Private(mechanisms.Sum(np.zeros(1 << 16, np.int64), grid), bound=bound), bound, z, SecureSource()
    )
    near = (released.value * grid.scale).astype(np.int64)
    near = near[np.abs(near) < 2**53]  # those whose every bit a double keeps
    assert near.size > 1000 and stats.chisquare(np.bincount(near % 8, minlength=8)).pvalue > 1e-6


@pytest.mark.parametrize("z", [1e-6, 0.3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("survivors", [1, 1000])
def test_every_multiplier_has_its_size_and_its_room(z, survivors):
    grid = FixedPoint.for_bound(BOUND, 10**4, z)
    codes = np.zeros(4096, np.int64)
    assert mechanisms.add_share(codes, grid, BOUND, z, survivors, SecureSource()) == z**2 / survivors
    noise = codes / (grid.scale * z / math.sqrt(survivors))
    if z * grid.scale / math.sqrt(survivors) > 1e3:
        assert stats.kstest(noise, "norm").pvalue > 1e-6
    assert stats.kstest(noise * 1.5, "norm").pvalue < 1e-6  # never two thirds of what is due
    total = 10**4 * grid.scale + 16 * z * grid.scale * math.sqrt(10**4)
    assert total < 2.0**62


def even_share(known):
    """The share of coordinates whose noise, if the secret is in, ends in a zero."""
    return lambda seen: float(np.mean((np.asarray(seen) - known) % 2 == 0))


def test_a_million_coordinates_do_not_add_up_to_a_tell():
    """An observer who sees the codes of a large model, and tests by a line that was fixed beforehand: one half.

    The control is noise in doubles at 2^53 steps, where every draw above 2^53 is even; it is not the noise of z 10.
    """
    d, z, trials = 1_000_000, 10.0, 20
    known = np.ones(d, np.int64)  # one step in every coordinate: odd everywhere
    printed, generator = gdp.epsilon(DELTA, 1 / z), stream(7, 8, 9, "noise")

    def coarse(codes):
        return codes + np.rint(generator.standard_normal(d) * 2.0**53).astype(np.int64)

    def told(release):
        alarms, found = (
            sum(even_share(known)(release(codes)) > 0.5 for _ in range(trials)) for codes in (0 * known, known)
        )
        return many_runs(alarms, trials, found, trials, DELTA, 0.9999)  # a false alarm once in ten thousand

    assert told(coarse) > printed
    grid = FixedPoint.for_bound(BOUND, CLIENTS, z)
    assert told(exact("full", BOUND, grid, z, SecureSource())) <= printed


def impossible(seen):
    """Whether a value near 0 has digits that 2^-10 plus a double near -2^-10 cannot have."""
    near = seen[np.abs(seen) < 2.0**-12]
    return bool(np.any(near * 2.0**63 % 1 != 0))


def test_a_million_sums_in_doubles_would_tell_and_ours_do_not():
    """Of a million coordinates some twenty come out near 0, where a double has digits that a neighbour's cannot have."""
    d, z, trials = 1 << 20, 10.0, 24
    printed, generator = gdp.epsilon(DELTA, 1 / z), stream(7, 8, 9, "noise")
    grid = FixedPoint.for_bound(BOUND, CLIENTS, z)
    known = grid.round(np.full(d, 2.0**-10))  # of length 1, the bound

    def doubles(codes):
        return grid.decode(codes) + z * generator.standard_normal(d)

    def told(release):
        found, alarms = (sum(impossible(release(codes)) for _ in range(trials)) for codes in (0 * known, known))
        return many_runs(alarms, trials, found, trials, DELTA, 0.95)

    assert told(doubles) > printed
    release = exact("central", BOUND, grid, z, generator)
    assert told(lambda codes: release(codes) / grid.scale) <= printed
