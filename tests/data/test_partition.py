"""Partitions: everything is dealt out once, nobody goes empty, the seed decides, and the skew is the one asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.data.dataset import Dataset
from sordino.data.partition import alike, by_shards, dirichlet, dirichlet_mix, iid, natural, split
from sordino.errors import BadInput
from sordino.privacy.randomness import stream


def labelled(y: np.ndarray, **more) -> Dataset:
    return Dataset("set", np.zeros((len(y), 1), np.float32), y, None, None, classes=int(y.max()) + 1, **more)


@settings(max_examples=80, deadline=None)
@given(
    examples=st.integers(2, 300),
    share=st.floats(0.01, 1.0),
    kinds=st.integers(1, 12),
    alpha=st.sampled_from([1e-3, 0.05, 0.5, 1.0, 100.0]),
    partition=st.sampled_from(["iid", "dirichlet", "shards"]),
    seed=st.integers(0, 2**32),
)
def test_every_row_once_and_nobody_empty(examples, share, kinds, alpha, partition, seed):
    clients = max(1, int(share * examples))
    y = np.arange(examples) % kinds
    rows = split(labelled(y), partition, clients=clients, alpha=alpha, seed=seed, shards=1).indices
    assert len(rows) == clients and min(len(r) for r in rows) >= 1
    assert sorted(np.concatenate(rows).tolist()) == list(range(examples))
    again = split(labelled(y), partition, clients=clients, alpha=alpha, seed=seed, shards=1).indices
    assert all((a == b).all() for a, b in zip(rows, again))


def test_the_seed_decides():
    y = np.repeat(np.arange(10), 100)
    for partition in ("iid", "dirichlet", "shards"):
        first, other = (split(labelled(y), partition, clients=10, seed=seed).indices for seed in (1, 2))
        assert any(len(a) != len(b) or (a != b).any() for a, b in zip(first, other)), partition


def test_iid_sizes_differ_by_one_at_most():
    assert sorted(len(r) for r in iid(23, 5, stream(0, 0, -1, "t"))) == [4, 4, 5, 5, 5]


def share_variance(alpha: float, clients: int = 10, kinds: int = 300, per_class: int = 2000) -> float:
    """Of the share that a client has of a class, over all clients and classes."""
    y = np.repeat(np.arange(kinds), per_class)
    parts = dirichlet(y, clients, alpha, stream(7, 0, -1, "t"))
    shares = np.stack([np.bincount(y[rows], minlength=kinds) for rows in parts]) / per_class
    return float(shares.var())


def expected_variance(alpha: float, clients: int = 10) -> float:
    """Of one share of a symmetric Dirichlet distribution."""
    return (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)


def test_the_skew_is_that_of_alpha_and_not_of_two_thirds_or_three_halves_of_it():
    measured = share_variance(1.0)
    assert measured == pytest.approx(expected_variance(1.0), rel=0.12)
    for wrong in (2 / 3, 3 / 2):
        assert measured != pytest.approx(expected_variance(wrong), rel=0.12)


def test_shards_give_few_classes_to_each():
    y = np.tile(np.arange(10), 60)
    rows = by_shards(y, 30, 2, stream(0, 0, -1, "t"))
    assert {len(r) for r in rows} == {20}
    assert max(len(set(y[r])) for r in rows) <= 2


def test_natural_owners_by_number_where_they_have_no_names():
    parts = natural(labelled(np.array([0, 1, 0, 1]), groups=np.array([7, 3, 7, 7])), None, 0)
    assert parts.ids == ("3", "7") and [r.tolist() for r in parts.indices] == [[1], [0, 2, 3]] and parts.tests is None


@pytest.mark.parametrize(
    ("partition", "options", "sentence"),
    [
        ("random", {}, "partition must be one of iid, dirichlet, dirichlet-mix, shards, natural"),
        ("iid", {}, "needs the number of clients"),
        ("iid", {"clients": 0}, "clients must be a whole number"),
        ("iid", {"clients": 11}, "11 clients cannot share the 10 examples of set"),
        ("dirichlet", {"clients": 2, "alpha": 0.0}, "alpha must be a number above 0"),
        ("shards", {"clients": 6, "shards": 2}, "6 clients of 2 shards need more than 10 examples"),
        ("natural", {}, "set does not say whose its examples are"),
    ],
)
def test_refusals(partition, options, sentence):
    with pytest.raises(BadInput, match=sentence):
        split(labelled(np.arange(10) % 2), partition, **options)


def test_more_natural_clients_than_there_are():
    with pytest.raises(BadInput, match="only 2 natural clients, not 3"):
        split(labelled(np.array([0, 1]), groups=np.array([0, 1])), "natural", clients=3)


def test_dirichlet_mix_gives_equal_sizes_and_a_mix_for_each_client():
    """Hsu et al. 2019: sizes differ by one at most; a large alpha gives everyone the mix of the whole, a small one few classes."""
    labels = np.repeat(np.arange(5), [100, 200, 300, 200, 203])
    for alpha in (0.01, 1.0, 1e6):
        parts = dirichlet_mix(labels, 10, alpha, np.random.Generator(np.random.PCG64(1)))
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
        assert {len(part) for part in parts} == {100, 101}
    shares = np.bincount(labels) / len(labels)
    mixes = [np.bincount(labels[part], minlength=5) / len(part) for part in parts[:-1]]  # the last takes what is left
    assert all(np.abs(mix - shares).max() < 0.2 for mix in mixes)
    few = dirichlet_mix(labels, 10, 0.01, np.random.Generator(np.random.PCG64(1)))
    assert np.mean([len(np.unique(labels[part])) for part in few]) < 3


def test_the_two_dirichlet_partitions_by_name():
    data = labelled(np.arange(60) % 3)
    by_class = split(data, "dirichlet", clients=4, alpha=0.3, seed=1).indices
    by_client = split(data, "dirichlet-mix", clients=4, alpha=0.3, seed=1).indices
    assert len({len(rows) for rows in by_class}) > 1 and {len(rows) for rows in by_client} == {15}


def test_the_test_set_is_dealt_out_with_the_label_shares_of_the_clients():
    """Client 0 holds three quarters of class 0 and none of class 1: it gets six of the eight test rows of class 0."""
    labels = np.array([0, 0, 0, 0, 1, 1])
    held = np.array([0] * 8 + [1] * 4)
    parts = alike(labels, [np.array([0, 1, 2]), np.array([3, 4, 5])], held, seed=3)
    assert [np.bincount(held[rows], minlength=2).tolist() for rows in parts] == [[6, 0], [2, 4]]
    assert sorted(np.concatenate(parts).tolist()) == list(range(12))  # each row is one client's
    again = alike(labels, [np.array([0, 1, 2]), np.array([3, 4, 5])], held, seed=3)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again))


def test_a_class_that_only_the_test_set_has_is_nobodys():
    parts = alike(np.array([0, 0]), [np.array([0]), np.array([1])], np.array([0, 0, 1, 1]), seed=0)
    assert sorted(np.concatenate(parts).tolist()) == [0, 1]
