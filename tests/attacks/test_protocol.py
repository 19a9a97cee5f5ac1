"""The deal: balanced, disjoint, by example, and the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.by_heart import MEMBERS, TEST, population
from sordino import BadInput, Federation
from sordino.attacks.protocol import Protocol, deal


def test_halves_are_balanced_and_nothing_is_in_two_groups():
    cast = deal(population(), Protocol())
    assert len(cast.row) == 2 * MEMBERS and cast.member.sum() == MEMBERS
    assert np.array_equal(np.sort(np.r_[cast.own, cast.judged]), np.arange(2 * MEMBERS))
    assert cast.member[cast.own].mean() == cast.member[cast.judged].mean() == 0.5
    outsiders = cast.row[~cast.member]
    assert len(np.unique(outsiders)) == len(outsiders) and not set(outsiders) & set(cast.population)
    assert len(cast.population) == TEST // 2 and len(np.unique(cast.row[cast.member])) == MEMBERS


def test_records_are_the_ones_that_were_dealt():
    federation = population()
    cast = deal(federation, Protocol(records=30, seed=3))
    x = cast.inputs()
    for i, row in enumerate(cast.row):
        source = (federation.x, federation.y) if cast.member[i] else federation.raw_test
        assert np.array_equal(x[i], source[0][row]) and cast.labels[i] == source[1][row]
    some = np.array([4, 0, 17])
    assert np.array_equal(cast.inputs(some), x[some])
    test = federation.raw_test
    assert np.array_equal(cast.population_inputs(), test[0][cast.population])
    assert np.array_equal(cast.population_labels, test[1][cast.population])


def test_members_are_asked_about_at_their_owner_and_others_alike():
    federation = population()
    cast = deal(federation, Protocol())
    owner = np.searchsorted(federation.offsets, cast.row[cast.member], "right") - 1
    assert np.array_equal(cast.owner[cast.member], owner)
    assert np.array_equal(np.bincount(cast.owner[~cast.member]), np.bincount(owner))


def test_the_seed_decides():
    a, b, c = (deal(population(), Protocol(seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(a.row, b.row) and np.array_equal(a.own, b.own) and not np.array_equal(a.row, c.row)


def test_the_order_does_not_tell():
    cast = deal(population(), Protocol())
    first = cast.member[: len(cast.member) // 2].mean()
    assert 0.35 < first < 0.65


def test_test_records_that_training_holds_too_are_left_out():
    rng = np.random.Generator(np.random.PCG64(0))
    x, y = rng.normal(size=(60, 3)).astype(np.float32), rng.integers(0, 2, 60)
    held = rng.normal(size=(100, 3)).astype(np.float32)
    held[:10], held[11] = x[:10], held[10]
    cast = deal(Federation.from_arrays([(x, y)], test=(held, np.zeros(100, int)), classes=2), Protocol())
    assert cast.repeated == 11
    assert not set(range(10)) & (set(cast.row[~cast.member]) | set(cast.population))


def test_what_cannot_be_attacked_is_refused():
    x, y = np.zeros((30, 2), np.float32), np.arange(30) % 2
    with pytest.raises(BadInput, match="no test split"):
        deal(Federation.from_arrays([(x, y)]), Protocol())
    with pytest.raises(BadInput, match="only 0 members"):
        deal(Federation.from_arrays([(x, y)], test=(x, y)), Protocol())
    with pytest.raises(BadInput, match="made on demand"):
        deal(Federation.on_demand(3, lambda k: (x, y), 30, 2, test=(x, y)), Protocol())
    with pytest.raises(BadInput):
        Protocol(own=1.0)
