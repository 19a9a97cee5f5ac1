"""Pre-training: the same weights every time, better than none, on the encoder that is given."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import save_file  # noqa: E402

from sordino.errors import BadInput  # noqa: E402
from sordino.schemes.fedmap.metanet import bert, synthetic  # noqa: E402
from sordino.schemes.fedmap.metanet.net import SHIPPED, load, save  # noqa: E402
from sordino.schemes.fedmap.metanet.pretrain import Settings, pretrain  # noqa: E402

SMALL = Settings(sequences=600, batch=32, first_steps=20, most_steps=60, check=20)


@pytest.fixture(scope="module")
def outcome():
    return pretrain(SMALL)


def test_it_is_deterministic(outcome, tmp_path):
    torch.manual_seed(99)  # whatever happened before
    again = pretrain(SMALL)
    for name, made in (("first", outcome), ("again", again)):
        save(made.nets, tmp_path / name, made.facts)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "again").read_bytes()
    other = pretrain(replace(SMALL, seed=1, first_steps=0))
    assert not np.array_equal(other.nets["certified"].personal, again.nets["certified"].personal)


def test_it_leaves_the_global_generator_and_the_threads_alone():
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    pretrain(replace(SMALL, first_steps=1, most_steps=1, check=1))
    load("certified")
    assert torch.get_num_threads() == threads and torch.equal(torch.random.get_rng_state(), state)


def test_errors_fall_and_are_told():
    told: list[tuple[str, int, float]] = []
    made = pretrain(replace(SMALL, lr=5e-3, most_steps=200, check=10), tell=lambda *row: told.append(row))
    for kind in ("certified", "published"):
        errors = [error for part, _, error in told if part == kind]
        assert min(errors) < 0.9 * errors[0]
        assert made.facts["errors"][kind] == min(errors)


def test_steps_before_the_first_check_count():
    one, many = (pretrain(replace(SMALL, first_steps=0, most_steps=n)) for n in (1, 19))
    for kind, net in many.nets.items():
        assert not np.array_equal(net.personal, one.nets[kind].personal)
        assert many.facts["errors"][kind] < one.facts["errors"][kind] < np.inf


def test_a_backbone_that_gives_no_numbers_is_refused(tmp_path):
    from .test_bert import their_layout

    encoder = bert.Encoder(bert.Size())
    encoder.initialise(torch.Generator().manual_seed(0))
    tensors = their_layout(encoder)
    tensors["encoder.layer.0.output.dense.weight"] = torch.full((64, 512), 3e38)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(BadInput, match="not finite"):
        pretrain(SMALL, tmp_path)


def test_only_projection_and_head_are_trained_in_the_second_part():
    with_part, without = (pretrain(replace(SMALL, most_steps=n, check=1)) for n in (1, 10))
    for a, b in zip(with_part.nets["certified"].encoder.parameters(), without.nets["certified"].encoder.parameters()):
        assert torch.equal(a, b) and not a.requires_grad
    assert not np.array_equal(with_part.nets["certified"].personal, without.nets["certified"].personal)


def test_a_local_bert_can_be_the_encoder(tmp_path, outcome):
    from .test_bert import made, their_layout

    theirs = made(bert.Size(hidden=128))
    save_file(their_layout(theirs, "bert."), tmp_path / "model.safetensors")
    trained = pretrain(SMALL, backbone=tmp_path)
    net = trained.nets["certified"]
    assert net.encoder.size.hidden == 128 and trained.facts["backbone"] == "given"
    assert torch.equal(net.encoder.layers[1].widen.weight, theirs.layers[1].widen.weight)
    save(trained.nets, tmp_path / "mine.safetensors", trained.facts)
    data = synthetic.sequences("certified", 4, 0)
    expected = net.decide(data.steps, data.valid)
    assert np.array_equal(load("certified", tmp_path / "mine.safetensors").decide(data.steps, data.valid), expected)


def test_the_shipped_weights_say_how_they_came_about():
    from safetensors import safe_open

    with safe_open(SHIPPED, "np") as file:
        facts = json.loads(file.metadata()["facts"])
    assert facts["backbone"] == "own" and Settings(**facts["settings"]) == Settings()
    assert facts["errors"]["certified"] < 0.15


def test_bad_settings_are_refused():
    with pytest.raises(BadInput, match="sequences"):
        Settings(sequences=0)
    with pytest.raises(BadInput, match="lr"):
        Settings(lr=-1.0)
    with pytest.raises(BadInput, match="cannot be read"):
        pretrain(SMALL, backbone="nowhere.safetensors")
