"""MetaNet: size, what is trained, speed, files."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sordino.errors import BadInput  # noqa: E402
from sordino.schemes.fedmap.metanet import features, synthetic  # noqa: E402
from sordino.schemes.fedmap.metanet.features import CERTIFIED, LENGTH, NAMES, PUBLISHED  # noqa: E402
from sordino.schemes.fedmap.metanet.net import SHIPPED, fresh, load, save  # noqa: E402


@pytest.mark.parametrize("kind", [CERTIFIED, PUBLISHED])
def test_the_shipped_controllers_have_the_papers_size(kind):
    net = load(kind)
    size = net.encoder.size
    assert (size.layers, size.hidden, size.heads, size.length) == (2, 64, 2, 5)
    assert 150_000 < sum(p.numel() for p in net.parameters()) < 250_000
    assert SHIPPED.stat().st_size < 1_000_000
    inputs = len(NAMES[kind])
    assert sum(p.numel() for p in net.trained) == (inputs + 1) * 64 + 65 * 2
    assert {name for name, p in net.named_parameters() if p.requires_grad} == {
        "projection.weight", "projection.bias", "head.weight", "head.bias"
    }  # fmt: skip


def test_published_takes_the_papers_four_statistics():
    assert len(NAMES[PUBLISHED]) == 4 and LENGTH == 5


@pytest.mark.parametrize("kind", [CERTIFIED, PUBLISHED])
def test_pretraining_beats_none_on_new_sequences(kind):
    data = synthetic.sequences(kind, 2000, seed=7)  # not a seed that was trained on
    spread = np.var(data.labels, axis=0).sum()
    trained = np.square(load(kind).decide(data.steps, data.valid) - data.labels).sum(1).mean()
    untrained = np.square(fresh(kind).decide(data.steps, data.valid) - data.labels).sum(1).mean()
    assert trained < 0.5 * spread and trained < 0.5 * untrained


def test_the_shipped_controller_moves_the_bound_the_right_way():
    """All within the bound, step after step: lower it. None within: raise it. In between: neither by much."""
    net = load(CERTIFIED)

    def change(within: float) -> float:
        rows = [features.Look(within, 0.0, 0.03, 0.05, 4.0, 0.5, 0.5).row()] * LENGTH
        bound, multiplier = features.read(CERTIFIED, net.decide(*features.stack([rows], 7))[0].tolist())
        assert 0.5 < multiplier < 2
        return math.log(bound)

    assert change(1.0) < -0.4 and change(0.0) > 0.4
    assert abs(change(0.2)) < 0.1 < change(0.05) and change(0.4) < -0.2


def test_a_personal_vector_is_the_controller():
    one, other = load(CERTIFIED), fresh(CERTIFIED, seed=4)
    other.encoder = one.encoder
    data = synthetic.sequences(CERTIFIED, 8, 0)
    vector = one.personal
    assert not np.allclose(one.decide(data.steps, data.valid), other.decide(data.steps, data.valid))
    other.take(vector)
    assert np.array_equal(one.decide(data.steps, data.valid), other.decide(data.steps, data.valid))
    vector[:] = 0  # a copy: the network keeps its own
    assert one.personal.any()
    with pytest.raises(BadInput, match="642 weights"):
        one.take(np.zeros(3, np.float32))


def test_files_round_trip_and_others_are_refused(tmp_path):
    certified = fresh(CERTIFIED)
    published = fresh(PUBLISHED)
    with pytest.raises(BadInput, match="share their encoder"):
        save({CERTIFIED: certified, PUBLISHED: published}, tmp_path / "no.safetensors", {})
    published.encoder = certified.encoder
    file = tmp_path / "metanet.safetensors"
    save({CERTIFIED: certified, PUBLISHED: published}, file, {"note": "made for a test"})
    data = synthetic.sequences(PUBLISHED, 5, 0)
    expected = published.decide(data.steps, data.valid)
    assert np.array_equal(load(PUBLISHED, file).decide(data.steps, data.valid), expected)
    for content in (b"", b"nonsense", file.read_bytes()[:1000]):
        (tmp_path / "bad.safetensors").write_bytes(content)
        with pytest.raises(BadInput, match="holds no MetaNet"):
            load(CERTIFIED, tmp_path / "bad.safetensors")
    with pytest.raises(BadInput, match="holds no MetaNet"):
        load(CERTIFIED, tmp_path / "missing.safetensors")
    with pytest.raises(BadInput, match="kind"):
        load("other")
