"""Models that the attacker trains: on the right records, side by side to the same bits, and only once."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest

from attacks.by_heart import make, plan, population
from sordino.attacks import shadows
from sordino.attacks.protocol import Protocol, deal
from sordino.errors import BadInput, SordinoError

QUICK = {"rounds": 2, "local_epochs": 1}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def rows_of(x: np.ndarray) -> set[bytes]:
    return {row.tobytes() for row in np.asarray(x)}


def test_pairs_of_reference_models_complement_each_other():
    cast = deal(population(), Protocol())
    inside = shadows.reference_sides(cast, 6, seed=1)
    assert (inside.sum(0) == 3).all() and (inside.mean(1) == 0.5).all()
    assert (inside[0] != inside[1]).all() and (inside[0] != inside[2]).any()
    assert np.array_equal(inside[:4], shadows.reference_sides(cast, 4, seed=1))  # more models extend the same


def test_a_reference_population_holds_what_is_in_and_nothing_that_is_out():
    federation = population()
    cast = deal(federation, Protocol(records=100))
    inside = shadows.reference_sides(cast, 1, seed=1)[0]
    made = shadows.reference_federation(cast, inside, rng())
    held, x = rows_of(made.x), cast.inputs()
    for i in range(len(cast.row)):
        assert (x[i].tobytes() in held) == inside[i]
    assert not rows_of(cast.population_inputs()) & held
    assert np.array_equal(made.sizes, federation.sizes) and made.classes == federation.classes
    stays = np.setdiff1d(np.arange(federation.examples), cast.row[cast.member & ~inside])
    assert np.array_equal(made.x[stays], federation.x[stays])  # whoever stays, stays with its client
    labels = {row.tobytes(): label for row, label in zip(x, cast.labels)}
    assert all(labels[row.tobytes()] == y for row, y in zip(made.x, made.y) if row.tobytes() in labels)


def test_labels_of_a_client_are_kept_where_they_can_be():
    federation = population()
    cast = deal(federation, Protocol())
    inside = shadows.reference_sides(cast, 1, seed=1)[0]
    made = shadows.reference_federation(cast, inside, rng())
    moved = (made.y != federation.y).sum()
    vacant, coming = federation.y[cast.row[cast.member & ~inside]], cast.labels[~cast.member & inside]
    unmatched = len(vacant) - np.minimum(np.bincount(vacant, minlength=4), np.bincount(coming, minlength=4)).sum()
    assert moved <= unmatched


def test_shadow_models_never_see_an_attacked_record():
    federation = population()
    cast = deal(federation, Protocol())
    inside = shadows.shadow_sides(cast, 3, seed=1)
    for side in inside:
        made = shadows.shadow_federation(cast, side, rng())
        assert rows_of(made.x) == rows_of(cast.population_inputs()[side])
        assert not rows_of(made.x) & rows_of(cast.inputs())
        assert made.clients == federation.clients and made.sizes.min() >= 1
        assert np.abs(made.sizes / made.examples - federation.sizes / federation.examples).max() < 0.05


def test_too_few_records_for_a_shadow_are_refused():
    cast = deal(population(), Protocol(population=0.01))
    with pytest.raises(BadInput, match="too few to train a shadow"):
        shadows.shadow_sides(cast, 1, seed=0)


def test_side_by_side_or_one_by_one_gives_the_same_bits_and_trains_once(tmp_path, monkeypatch):
    cast = deal(population(), Protocol())
    inside = shadows.reference_sides(cast, 3, seed=1)
    told = []
    say = lambda what, done, total: told.append((what, done, total))  # noqa: E731

    def jobs():
        return shadows.reference_jobs(cast, inside, seed=1)

    one = shadows.train_all(jobs(), make, plan(**QUICK), tmp_path / "a", 1)
    two = shadows.train_all(jobs(), make, plan(**QUICK), tmp_path / "b", 2, say)
    assert all(np.array_equal(a, b) for a, b in zip(one, two)) and not np.array_equal(one[0], one[1])
    assert told[0] == ("reference models", 0, 3) and told[-1] == ("reference models", 3, 3)
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [f"reference-00{k}.safetensors" for k in range(3)]
    monkeypatch.setattr(shadows, "_train", lambda *_: pytest.fail("trained again"))
    again = shadows.train_all(jobs(), make, plan(**QUICK), tmp_path / "a", 2)
    assert np.array_equal(again[2], one[2])


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interruption_leaves_finished_models_and_nothing_else(tmp_path, workers):
    cast = deal(population(), Protocol())

    def stop(what, done, total):
        if done:
            raise KeyboardInterrupt

    jobs = shadows.reference_jobs(cast, shadows.reference_sides(cast, 4, seed=1), seed=1)
    with pytest.raises(KeyboardInterrupt):
        shadows.train_all(jobs, make, plan(**QUICK), tmp_path, workers, stop)
    left = [p.name for p in tmp_path.iterdir()]
    assert left and all(name.endswith(".safetensors") for name in left) and not multiprocessing.active_children()


def test_a_model_that_cannot_be_trained_is_named(tmp_path):
    cast = deal(population(), Protocol())
    jobs = shadows.shadow_jobs(cast, shadows.shadow_sides(cast, 2, seed=1), seed=1)
    with pytest.raises(SordinoError, match="training shadow-00. for the attack failed: the plan is for 5 clients"):
        shadows.train_all(jobs, make, plan(**QUICK, clients=5), tmp_path, 2)


def test_the_folder_depends_on_what_decides_the_weights():
    a, b = deal(population(), Protocol()), deal(population(), Protocol(seed=1))
    names = {
        shadows.digest(plan(), a, "shadow", 0), shadows.digest(plan(), b, "shadow", 0),
        shadows.digest(plan(rounds=3), a, "shadow", 0), shadows.digest(plan(), a, "reference", 0),
        shadows.digest(plan(), a, "shadow", 1),
    }  # fmt: skip
    assert len(names) == 5
