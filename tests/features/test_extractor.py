import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from sordino.errors import BadInput
from sordino.features import examples, generator, kept
from sordino.features.extractor import extractor, shortening
from sordino.features.maps import Block
from sordino.features.recipe import Recipe, recipe_for

SMALL = Recipe((Block(12, patch=4), Block(6, patch=3, shrink=2)), damped=8, pictures=30)


def test_features_of_a_recipe() -> None:
    made = extractor(SMALL, (3, 12, 12))
    pictures = generator.images(5, (3, 12, 12), seed=4)
    rows = made.joined(pictures)
    assert rows.shape == (5, made.dimension) == (5, 2 * 4 * (12 + 6))
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    finished = made.finished(rows, rows.mean(axis=0))
    assert np.allclose(np.linalg.norm(finished, axis=1), 1, atol=1e-5)
    plain = extractor(replace(SMALL, damped=0), (3, 12, 12)).finished(rows, rows.mean(axis=0))
    assert np.abs(plain - finished).max() > 1e-3


def test_the_digest_follows_what_decides_features() -> None:
    made = extractor(SMALL, (3, 12, 12))
    assert made.digest == extractor(SMALL, (3, 12, 12)).digest
    others = [replace(SMALL, seed=1), replace(SMALL, power=0.4), replace(SMALL, blocks=SMALL.blocks[:1])]
    others.append(replace(SMALL, leaves=generator.Leaves(leaves=30)))
    found = {extractor(other, (3, 12, 12)).digest for other in others} | {extractor(SMALL, (1, 12, 12)).digest}
    assert len(found) == 5 and made.digest not in found


def test_another_process_finds_the_same_bits() -> None:
    code = (
        "import sys, hashlib; sys.path.insert(0, 'tests/features'); from test_extractor import *\n"
        "made = extractor(SMALL, (3, 12, 12)); rows = made.joined(generator.images(5, (3, 12, 12), seed=4))\n"
        "print(made.digest, hashlib.sha256(rows.tobytes()).hexdigest())"
    )
    lines = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(lines) == 1 and extractor(SMALL, (3, 12, 12)).digest in lines.pop().decode()


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (4, 40, 24), (1, 500), (6, 128)])
def test_there_is_a_recipe_for_every_shape(shape: tuple[int, ...]) -> None:
    recipe = recipe_for(shape)
    few = tuple(replace(block, filters=4) for block in recipe.blocks)
    made = extractor(replace(recipe, blocks=few, pictures=20, damped=5), shape)
    assert made.joined(generator.images(2, shape, seed=1)).shape == (2, made.dimension)


def test_pictures_that_are_too_small_are_refused_at_once() -> None:
    with pytest.raises(BadInput, match="3 x 3 are too small"):
        extractor(recipe_for((1, 28, 28)), (1, 3, 3))


def test_an_extractor_is_found_again_on_disk(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SORDINO_FEATURES", str(tmp_path))
    kept.extractor_for.cache_clear()
    made = kept.extractor_for(SMALL, (3, 12, 12))
    kept.extractor_for.cache_clear()
    monkeypatch.setattr(kept, "extractor", lambda *_: pytest.fail("it was made again"))
    found = kept.extractor_for(SMALL, (3, 12, 12))
    pictures = generator.images(3, (3, 12, 12), seed=4)
    rows = made.joined(pictures)
    assert found.digest == made.digest and np.array_equal(found.joined(pictures), rows)
    assert np.array_equal(found.finished(rows, rows[0] / 2), made.finished(rows, rows[0] / 2))
    kept.extractor_for.cache_clear()


def test_a_broken_file_is_made_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SORDINO_FEATURES", str(tmp_path))
    kept.extractor_for.cache_clear()
    made = kept.extractor_for(SMALL, (3, 12, 12))
    (file,) = tmp_path.glob("extractor-*.npz")
    file.write_bytes(file.read_bytes()[:100])
    kept.extractor_for.cache_clear()
    assert kept.extractor_for(SMALL, (3, 12, 12)).digest == made.digest
    kept.extractor_for.cache_clear()


def test_a_shortening_depends_on_the_space_that_is_kept_and_not_on_signs(monkeypatch):
    made = extractor(SMALL, (3, 12, 12))
    first = shortening(made, 6)
    usual = examples.principal
    signs = np.array([1, -1, 1, -1, -1, 1], np.float32)[:, None]
    monkeypatch.setattr(examples, "principal", lambda rows, k: (usual(rows, k)[0], signs * usual(rows, k)[1]))
    again = shortening(made, 6)
    assert np.allclose(first.map, again.map, atol=1e-5) and np.allclose(first.centre, again.centre, atol=1e-4)
    assert first.scale == pytest.approx(again.scale, rel=0.01)


def test_a_shortening_is_damping_and_then_the_directions_in_which_synthetic_pictures_vary():
    made = extractor(SMALL, (3, 12, 12))
    plain = extractor(replace(SMALL, damped=0), (3, 12, 12))
    rows = made.joined(generator.images(20, (3, 12, 12), seed=9))
    kept = shortening(plain, 8).map
    assert np.allclose(kept.T @ kept, np.eye(8), atol=1e-5)
    factors = np.linalg.svd(shortening(made, 8).map, compute_uv=False)
    assert factors.max() <= 1 + 1e-5 and factors.min() < 0.9
    short = shortening(made, 8)
    by_hand = (rows.astype(float) @ short.map.astype(float) - short.centre) / short.scale
    assert np.allclose(short(rows), by_hand, atol=1e-5) and short(rows).dtype == np.float64


def test_short_rows_lie_around_synthetic_ones_and_are_about_as_long_as_a_contribution_may_be():
    made = extractor(SMALL, (3, 12, 12))
    short = shortening(made, 8)
    lengths = np.linalg.norm(short(made.joined(generator.images(400, (3, 12, 12), seed=9))), axis=1)
    assert np.sqrt(np.square(lengths).mean()) == pytest.approx(1 / 1.5, rel=0.1)
    assert (lengths <= 1).mean() > 0.9


def test_levels_of_signals_are_kept_as_they_are():
    recipe = recipe_for((2, 64))
    recipe = replace(
        recipe, blocks=tuple(replace(block, filters=6) for block in recipe.blocks[:2]), pictures=30, damped=5
    )
    made = extractor(recipe, (2, 64))
    levels = made.map.sizes[-1]
    found = shortening(made, 10).map
    assert found.shape == (made.dimension, 10 + levels)
    assert np.allclose(found[-levels:, 10:], np.eye(levels), atol=0.2) and np.allclose(
        found[-levels:, :10], 0, atol=0.2
    )


@pytest.mark.parametrize("count", [0, -1, 144, 5000])
def test_more_directions_than_there_are_are_refused(count):
    with pytest.raises(BadInput):
        shortening(extractor(SMALL, (3, 12, 12)), count)
