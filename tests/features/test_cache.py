import os
import stat
from pathlib import Path

import numpy as np
import pytest
from test_extractor import SMALL

from sordino.errors import BadInput
from sordino.features import cache, generator
from sordino.features.extractor import Extractor, extractor

MADE = extractor(SMALL, (3, 12, 12))
PICTURES = generator.images(9, (3, 12, 12), seed=4)


def test_kept_features_are_the_computed_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = cache.features(MADE, PICTURES, folder=tmp_path)
    assert np.allclose(kept / cache.scale(MADE), MADE.joined(PICTURES), atol=1e-3)
    monkeypatch.setattr(Extractor, "joined", lambda *_: pytest.fail("computed again"))
    assert (cache.features(MADE, PICTURES, folder=tmp_path) == kept).all()


def test_one_pixel_or_another_recipe_is_another_file(tmp_path: Path) -> None:
    changed = PICTURES.copy()
    changed[4, 0, 0, 0] ^= 1
    assert len({cache.key(MADE, PICTURES), cache.key(MADE, changed), cache.key(MADE, PICTURES[:8])}) == 3
    other = extractor(SMALL.__class__(SMALL.blocks, seed=5, damped=0, pictures=30), (3, 12, 12))
    assert cache.key(other, PICTURES) != cache.key(MADE, PICTURES)


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    cache.features(MADE, PICTURES, folder=tmp_path / "mine")
    (file,) = (tmp_path / "mine").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o700


def test_a_broken_file_is_made_again(tmp_path: Path) -> None:
    kept = np.array(cache.features(MADE, PICTURES, folder=tmp_path))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-40])
    assert (cache.features(MADE, PICTURES, folder=tmp_path) == kept).all()


def test_an_interruption_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Extractor, "joined", stop)
    with pytest.raises(KeyboardInterrupt):
        cache.features(MADE, PICTURES, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadInput, match="SORDINO_FEATURES"):
        cache.features(MADE, PICTURES, folder=tmp_path / "file")


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SORDINO_FEATURES", "/somewhere")
    assert cache.root() == Path("/somewhere")
    monkeypatch.delenv("SORDINO_FEATURES")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert os.fspath(cache.root()) == "/caches/sordino/features"
