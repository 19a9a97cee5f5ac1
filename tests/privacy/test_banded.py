"""Noise that is correlated over rounds: who is exposed to how much, and what leaves."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from sordino.errors import BadInput, NotPrivate
from sordino.privacy import grid_noise
from sordino.privacy.banded import BITS, Bands, CorrelatedNoise
from sordino.privacy.bounds import Flat, Grouped
from sordino.privacy.mechanisms import FixedPoint, Sum
from sordino.privacy.randomness import stream
from sordino.privacy.release import Private

BOUND = Flat(2.0)
Z = 1.5


def matrix(bands, rounds):
    c = bands.coefficients
    return sum(np.diag(np.full(rounds - i, c[i]), -i) for i in range(min(len(c), rounds)))


def grid_for(bands, length=1):
    return FixedPoint.for_bound(BOUND, 10, 1000.0 * bands.room)


def private(codes, grid):
    return Private(Sum(np.asarray(codes, np.int64), grid), bound=BOUND)


def test_coefficients_by_hand():
    """1/sqrt(1 - x) = 1 + x/2 + 3x^2/8 + 5x^3/16; its square is 1 + x + x^2 + ..."""
    assert Bands.square_root(4).steps == (256, 128, 96, 80)
    c = Bands.square_root(5, momentum=0.5).coefficients
    wanted = [sum(0.5**k for k in range(i + 1)) for i in range(5)]  # of 1 / ((1 - x)(1 - x/2))
    np.testing.assert_allclose(np.convolve(c, c)[:5], wanted, atol=0.01)


@pytest.mark.parametrize("b", [1, 2, 3])
def test_no_set_of_turns_is_more_exposed_than_is_charged(b):
    """By brute force over all sets of rounds at least b apart, and all signs of what a client adds in them."""
    rounds, bands = 7, Bands.square_root(b)
    c = matrix(bands, rounds)
    worst, crowded = 0.0, 0.0
    for count in range(1, rounds + 1):
        for chosen in combinations(range(rounds), count):
            apart = all(j - i >= b for i, j in zip(chosen, chosen[1:]))
            for signs in product([1, -1], repeat=count):
                moved = np.linalg.norm(sum(s * c[:, t] for s, t in zip(signs, chosen)))
                if apart:
                    assert moved <= bands.norm * np.sqrt(count) + 1e-12
                    worst = max(worst, moved)
                else:
                    crowded = max(crowded, moved / np.sqrt(-(-rounds // b)) / bands.norm)
    turns = -(-rounds // b)
    assert worst > 0.9 * bands.norm * np.sqrt(turns)  # the bound is nearly reached: only the last column is cut off
    assert b == 1 or crowded > 1.2  # a client that does not wait for its turn is not covered


def test_what_one_turn_adds_shows_in_its_own_stretch_alone():
    c = matrix(Bands.square_root(3), 9)
    for group in range(3):
        mine = c[:, group::3]
        gram = mine.T @ mine
        assert np.array_equal(gram, np.diag(np.diag(gram)))


@pytest.mark.parametrize("b", [1, 2, 5])
def test_what_leaves_is_a_function_of_the_noisy_products_and_of_what_left_before(b):
    bands = Bands.square_root(b)
    grid, rounds, length = grid_for(bands), 12, 50
    rng = np.random.default_rng(0)
    x = rng.integers(-(2**20), 2**20, (rounds, length))
    noise, left, spread = CorrelatedNoise(bands), [], BOUND.std(Z) * bands.norm * 2**BITS * grid.scale
    for t in range(rounds):
        drawn = grid_noise.gaussian(spread, length, stream(1, t + 1, 0, "noise"))
        y = [int(v) for v in drawn]  # y_t, in whole numbers of any size
        for i, a in enumerate(bands.steps[: t + 1]):
            y = [v + a * int(u) for v, u in zip(y, x[t - i])]
        for i, a in enumerate(bands.steps[1 : t + 1], 1):
            y = [v - a * int(u) for v, u in zip(y, left[t - i])]
        wanted = [(v + 2 ** (BITS - 1)) // 2**BITS for v in y]
        out, event = noise.gaussian(private(x[t], grid), BOUND, Z, t + 1, stream(1, t + 1, 0, "noise"))
        left.append(np.rint(out.value * grid.scale).astype(object))
        assert [int(v) for v in left[-1]] == wanted
        assert event.noise_multiplier == Z


def test_noise_has_the_size_that_is_charged_and_later_rounds_take_it_back():
    """Both ways: C applied to what left has independent noise of z |c| bound, and neither two thirds nor three halves of it."""
    bands = Bands.square_root(4)
    grid, rounds, length = grid_for(bands), 30, 4000
    noise = CorrelatedNoise(bands)
    left = np.array(
        [
            noise.gaussian(private(np.zeros(length), grid), BOUND, Z, t, stream(0, t, 0, "noise"))[0].value
            for t in range(1, rounds + 1)
        ]
    )
    seen = matrix(bands, rounds) @ left
    wanted = Z * BOUND.size * bands.norm
    assert 0.98 < seen.std() / wanted < 1.02
    assert not 0.98 < seen.std() / (wanted * 2 / 3) < 1.02 and not 0.98 < seen.std() / (wanted * 3 / 2) < 1.02
    assert np.abs(np.corrcoef(seen) - np.eye(rounds)).max() < 6 / np.sqrt(length)
    model = left.sum(axis=0).std()
    assert model == pytest.approx(Z * BOUND.size * bands.noise_of_model(rounds), rel=0.05)
    assert left[-1].std() == pytest.approx(Z * BOUND.size * bands.noise_of_round(rounds), rel=0.05)
    assert model < 0.7 * Z * BOUND.size * np.sqrt(rounds)  # independent noise of the same multiplier


def test_noise_is_drawn_once_in_order_and_for_one_bound():
    bands = Bands.square_root(2)
    grid = grid_for(bands)
    noise, rng = CorrelatedNoise(bands), stream(0, 1, 0, "noise")
    noise.gaussian(private([0], grid), BOUND, Z, 1, rng)
    with pytest.raises(NotPrivate, match="drawn once, in order"):
        noise.gaussian(private([0], grid), BOUND, Z, 1, rng)
    with pytest.raises(NotPrivate, match="drawn once, in order"):
        noise.gaussian(private([0], grid), BOUND, Z, 3, rng)
    with pytest.raises(NotPrivate, match="same bound"):
        noise.gaussian(private([0], grid), BOUND, 2 * Z, 2, rng)
    other = Private(Sum(np.zeros(1, np.int64), grid), bound=Flat(1.0))
    with pytest.raises(NotPrivate, match="same bound"):
        noise.gaussian(other, Flat(1.0), Z, 2, rng)
    grouped = Grouped((1,), (1.0,))
    with pytest.raises(NotPrivate, match="one bound"):
        noise.gaussian(Private(Sum(np.zeros(1, np.int64), grid), bound=grouped), grouped, Z, 2, rng)


def test_bands_that_make_no_sense_are_refused():
    for steps in ((), (255,), (256, 0.5), (256,) * 300):
        with pytest.raises(BadInput, match="bands"):
            Bands(steps)
    with pytest.raises(BadInput, match="bands"):
        Bands.square_root(0)
