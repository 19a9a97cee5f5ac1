"""What a client keeps for itself: versions by round, files that only their owner reads, layers by name."""

from __future__ import annotations

import stat

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from sordino import BadInput  # noqa: E402
from sordino.clients.personal import PersonalLayers, PersonalModels, coordinates  # noqa: E402
from sordino.gradients.flat import Flat  # noqa: E402


@pytest.fixture(params=["disk", "memory"])
def models(request, tmp_path):
    return PersonalModels(tmp_path / "personal" if request.param == "disk" else None, keep=3)


def test_a_round_begins_from_the_newest_version_of_an_earlier_one(models):
    assert models.load(4, 1) is None
    models.save(4, 1, np.array([1.0], np.float32))
    models.save(4, 3, np.array([3.0], np.float32))
    assert models.load(4, 4) == 3.0 and models.load(4, 3) == 1.0 and models.load(4, 1) is None
    models.save(4, 3, np.array([33.0], np.float32))  # the round is run again
    assert models.load(4, 3) == 1.0 and models.load(4, 4) == 33.0
    assert models.load(5, 4) is None


def test_old_versions_go_and_going_back_beyond_them_is_refused(models):
    for t in range(1, 6):
        models.save(0, t, np.array([t], np.float32))
    assert models.load(0, 4) == 3
    with pytest.raises(BadInput, match="round 2 needs a personal model of before it"):
        models.load(0, 2)


def test_a_model_that_diverged_is_not_kept(models):
    models.save(0, 1, np.array([1.0], np.float32))
    models.save(0, 2, np.array([np.nan], np.float32))
    assert models.load(0, 3) == 1.0


def test_only_the_owner_can_read(tmp_path):
    models = PersonalModels(tmp_path / "personal")
    models.save(0, 1, np.zeros(3, np.float32))
    for path in [tmp_path / "personal", *(tmp_path / "personal").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_damaged_file_is_named(tmp_path):
    models = PersonalModels(tmp_path / "personal")
    models.save(0, 1, np.zeros(3, np.float32))
    file = next((tmp_path / "personal").rglob("*.safetensors"))
    file.write_bytes(b"no")
    with pytest.raises(BadInput, match="cannot be read"):
        models.load(0, 2)


def net():
    return Flat(
        nn.Sequential(nn.Linear(2, 2, bias=False), nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1)), nn.Linear(1, 2))
    )


@pytest.mark.parametrize(
    ("names", "marked"),
    [
        ("head", range(9, 13)),
        ("2", range(9, 13)),
        ("1", range(4, 9)),
        ("0, 1.1", [0, 1, 2, 3, 7, 8]),
        ("1.0,head", [4, 5, 6, *range(9, 13)]),
    ],
)
def test_layers_by_name(names, marked):
    assert np.flatnonzero(coordinates(net().slots, names)).tolist() == list(marked)


@pytest.mark.parametrize(
    ("names", "said"), [("fc9", "no layer 'fc9'.*it has '0', '1.0'"), (",", "names no layer"), ("0,1,2", "every layer")]
)
def test_names_that_do_not_do(names, said):
    with pytest.raises(BadInput, match=said):
        coordinates(net().slots, names)


def test_layers_stay_and_the_rest_leaves():
    flat = net()
    layers = PersonalLayers(flat, "head", PersonalModels())
    theta, trained = np.zeros(13, np.float32), np.arange(13, dtype=np.float32)
    np.testing.assert_array_equal(layers.enter(theta, 0, 1), theta)
    sent = layers.leave(trained, theta, 0, 1)
    np.testing.assert_array_equal(sent, [*range(9), 0, 0, 0, 0])
    np.testing.assert_array_equal(layers.enter(theta, 0, 2), [0] * 9 + [9, 10, 11, 12])
    np.testing.assert_array_equal(layers.enter(theta, 1, 2), theta)  # another client
