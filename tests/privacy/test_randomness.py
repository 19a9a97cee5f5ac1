"""Streams repeat and never meet; the secure source does neither."""

import copy
import json
import os
import pickle

import numpy as np
import pytest
from scipy import stats

from sordino.errors import BadInput, NotPrivate
from sordino.privacy import randomness
from sordino.privacy.randomness import SERVER, SecureSource, source, stream


def test_same_key_gives_the_same_bits():
    first = stream(7, 3, 11, "noise").standard_normal(1000)
    stream(7, 3, 12, "noise").standard_normal(10)  # what else is drawn in between does not matter
    assert np.array_equal(first, stream(7, 3, 11, "noise").standard_normal(1000))
    assert np.array_equal(first, stream(np.int64(7), np.int32(3), 11, "noise").standard_normal(1000))


def test_bits_are_those_of_the_first_release():
    # A change here would make every recorded seed mean another run.
    expected = [0.5614325227087212, 0.5629055662240872, 0.29508124158297666]
    assert stream(0, 0, SERVER, "cohort").random(3) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    "other",
    [(8, 3, 11, "noise"), (7, 4, 11, "noise"), (7, 3, 12, "noise"), (7, 3, 11, "batch"), (73, 1, 1, "noise")],
)
def test_different_keys_are_uncorrelated(other):
    n = 20_000
    a, b = stream(7, 3, 11, "noise").standard_normal(n), stream(*other).standard_normal(n)
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(n)
    assert not np.intersect1d(a, b).size


def test_first_draws_of_neighbouring_keys_are_uniform():
    first = [stream(0, t, k, "coin").random() for t in range(40) for k in range(50)]
    assert stats.kstest(first, "uniform").pvalue > 1e-6
    assert len(set(first)) == len(first)


@pytest.mark.parametrize("key", [(1.0, 0, 0, "x"), (1, True, 0, "x"), (1, 0, None, "x"), (1, 0, 0, ""), (1, 0, 0, 3)])
def test_keys_are_checked(key):
    with pytest.raises(BadInput):
        stream(*key)


def test_source_chooses():
    assert isinstance(source(None, 0, 0, "noise", secure=True), SecureSource)
    assert source(5, 0, 0, "noise", secure=False).random() == stream(5, 0, 0, "noise").random()
    with pytest.raises(BadInput):
        source(None, 0, 0, "noise", secure=False)


def test_secure_source_never_repeats():
    a, b = SecureSource(), SecureSource()
    draws = np.concatenate([one.integers64(5000) for one in (a, b, a, SecureSource())])
    assert len(np.unique(draws)) == len(draws)


def test_secure_source_cannot_be_seeded_copied_or_saved():
    with pytest.raises(TypeError):
        SecureSource(1)
    with pytest.raises(TypeError):
        SecureSource(seed=1)
    one = SecureSource()
    assert not hasattr(one, "seed") and not hasattr(one, "__dict__")
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(NotPrivate):
            way(one)
    with pytest.raises(TypeError):
        json.dumps(one)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_draws_other_bits():
    one = SecureSource()
    one.bytes(10)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, one.bytes(32))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 32) != one.bytes(32)
    os.close(reader)
    os.close(writer)


def test_a_long_draw_changes_the_key(monkeypatch):
    keys = []
    urandom = os.urandom
    monkeypatch.setattr(randomness.os, "urandom", lambda n: keys.append(urandom(n)) or keys[-1])
    monkeypatch.setattr(randomness, "_REKEY_AFTER", 1 << 18)
    words = SecureSource().integers64(3 << 15)  # three times as much as one key may give
    assert len(keys) >= 3 and len(set(keys)) == len(keys)
    assert len(np.unique(words)) == len(words)


@pytest.mark.parametrize("size", [None, 0, 1, 7, (3, 5), 2 * randomness._CHUNK + 3])
def test_shapes(size):
    one = SecureSource()
    for draw in (one.standard_normal, one.random, one.integers64, lambda size: one.laplace(size=size)):
        assert np.shape(draw(size)) == np.shape(np.random.Generator(np.random.Philox(0)).random(size))


def both_ways(draws, law):
    """Accepted at the right scale, rejected at two thirds and three halves of it."""
    assert stats.kstest(draws, law(1.0).cdf).pvalue > 1e-6
    assert stats.kstest(draws, law(2 / 3).cdf).pvalue < 1e-9
    assert stats.kstest(draws, law(3 / 2).cdf).pvalue < 1e-9


def test_distributions_of_the_secure_source():
    one, n = SecureSource(), 40_000
    both_ways(one.standard_normal(n), lambda scale: stats.norm(scale=scale))
    both_ways(one.laplace(size=n), lambda scale: stats.laplace(scale=scale))
    assert stats.kstest(one.laplace(2.0, 3.0, n), stats.laplace(2.0, 3.0).cdf).pvalue > 1e-6
    assert stats.kstest(one.random(n), "uniform").pvalue > 1e-6
    counts = np.bincount(one.integers(7, size=n), minlength=7)
    assert counts.size == 7 and stats.chisquare(counts).pvalue > 1e-6
    wide = one.integers(-(1 << 62), 1 << 62, size=n)  # a span of 2^63
    assert stats.kstest(wide / 2.0**63 + 0.5, "uniform").pvalue > 1e-6


def test_the_two_halves_of_box_muller_are_independent():
    n = 2 * randomness._CHUNK
    x = SecureSource().standard_normal(n)
    left, right = x[: n // 2], x[n // 2 :]
    for a, b in ((left, right), (left**2, right**2), (abs(left), right)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(n / 2)


def test_normal_tails_are_there():
    x = SecureSource().standard_normal(2_000_000)
    beyond = np.sum(np.abs(x) > 4)  # 127 expected
    assert 80 < beyond < 180
    # The smallest 64-bit uniform reaches 9.4 standard deviations, the largest 0.
    ends = np.sqrt(2 * randomness._exponential(np.array([0, 2**64 - 1], dtype=np.uint64)))
    assert ends[0] > 9.4 and ends[1] == 0.0


def test_integers_refuses_an_empty_range():
    with pytest.raises(BadInput):
        SecureSource().integers(3, 3)
