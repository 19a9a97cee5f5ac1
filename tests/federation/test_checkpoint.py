"""A checkpoint holds exactly what a round changes, and is whole at any moment."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("safetensors")

from sordino import BadInput  # noqa: E402
from sordino.federation import checkpoint  # noqa: E402
from sordino.federation.checkpoint import TrainState  # noqa: E402

STATE = TrainState(
    7,
    np.arange(3, dtype=np.float32),
    {"velocity": np.ones(3, np.float32)},
    {"bound": 0.25, "counts": [1.0, 2.5]},
    {"ids": np.array([4, 9])},
)


def test_what_is_saved_is_loaded(tmp_path):
    assert checkpoint.load(tmp_path) is None
    checkpoint.save(tmp_path, STATE, {"ledger": {"seq": 3, "hash": "ab"}})
    kept = checkpoint.load(tmp_path)
    assert kept is not None and kept.facts == {"ledger": {"seq": 3, "hash": "ab"}}
    assert kept.state.round == 7 and kept.state.rule == STATE.rule
    np.testing.assert_array_equal(kept.state.theta, STATE.theta)
    np.testing.assert_array_equal(kept.state.optimizer["velocity"], [1, 1, 1])
    np.testing.assert_array_equal(kept.state.clients["ids"], [4, 9])


def test_a_later_one_takes_the_place_of_an_earlier_one(tmp_path):
    checkpoint.save(tmp_path, STATE, {})
    later = TrainState(8, STATE.theta + 1, {}, {})
    checkpoint.save(tmp_path, later, {})
    kept = checkpoint.load(tmp_path)
    assert kept is not None and kept.state.round == 8 and kept.state.optimizer == {}
    assert len(list(tmp_path.iterdir())) == 1  # no draft is left


def test_a_torn_file_is_one_sentence(tmp_path):
    checkpoint.save(tmp_path, STATE, {})
    path = tmp_path / checkpoint.NAME
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(BadInput, match="cannot be read"):
        checkpoint.load(tmp_path)


def test_models_that_are_put_aside_come_back_by_round(tmp_path):
    for t in (3, 12):
        checkpoint.keep(tmp_path / "models", TrainState(t, np.full(2, t, np.float32), {}, {}))
    kept = checkpoint.kept(tmp_path / "models")
    assert sorted(kept) == [3, 12] and kept[12].tolist() == [12, 12]
