"""The encoder against PyTorch's own, and checkpoints in the Hugging Face layout."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import save_file  # noqa: E402

from sordino.errors import BadInput  # noqa: E402
from sordino.schemes.fedmap.metanet.bert import Encoder, Size, from_checkpoint  # noqa: E402


def made(size: Size = Size()) -> Encoder:  # noqa: B008 - frozen
    encoder = Encoder(size)
    encoder.initialise(torch.Generator().manual_seed(3))
    with torch.no_grad():  # biases and norms too, or half of the test would be about zeros
        for parameter in encoder.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
    return encoder.eval()


def test_it_is_what_pytorch_calls_a_transformer_encoder():
    encoder, size = made(), Size()
    reference = torch.nn.TransformerEncoderLayer(
        size.hidden, size.heads, size.wide, 0.0, "gelu", layer_norm_eps=1e-12, batch_first=True, norm_first=False
    )
    h = torch.randn(7, 6, size.hidden, generator=torch.Generator().manual_seed(0))
    layer = encoder.layers[0]
    with torch.no_grad():
        reference.self_attn.in_proj_weight.copy_(layer.qkv.weight)
        reference.self_attn.in_proj_bias.copy_(layer.qkv.bias)
        for theirs, ours in (
            (reference.self_attn.out_proj, layer.merge),
            (reference.linear1, layer.widen),
            (reference.linear2, layer.narrow),
            (reference.norm1, layer.norm1),
            (reference.norm2, layer.norm2),
        ):
            theirs.weight.copy_(ours.weight)
            theirs.bias.copy_(ours.bias)
        reference.train()  # no dropout, and no fast path of inference
        assert torch.allclose(layer(h, None), reference(h), atol=1e-5)


def test_padding_changes_nothing():
    encoder = made()
    steps = torch.randn(4, 5, 64, generator=torch.Generator().manual_seed(1))
    valid = torch.tensor([[True, True, False, False, False]] * 4)
    other = steps.clone()
    other[:, 2:] = 1e3
    with torch.no_grad():
        assert torch.allclose(encoder(steps, valid), encoder(other, valid), atol=1e-6)
        assert torch.allclose(encoder(steps, valid), encoder(steps[:, :2]), atol=1e-5)
        assert not torch.allclose(encoder(steps), encoder(other), atol=1e-2)


def their_layout(encoder: Encoder, prefix: str = "", old: bool = False) -> dict[str, torch.Tensor]:
    """The tensors of an encoder under the names that checkpoints use."""
    size = encoder.size
    words = torch.zeros(110, size.hidden)
    words[101] = encoder.cls.detach()
    kinds = torch.full((2, size.hidden), 0.25)
    out = {
        "embeddings.word_embeddings.weight": words,
        "embeddings.position_embeddings.weight": torch.cat(
            [encoder.positions.detach() - 0.25, torch.ones(10, size.hidden)]
        ),
        "embeddings.token_type_embeddings.weight": kinds,
        "embeddings.LayerNorm.weight": encoder.norm.weight.detach(),
        "embeddings.LayerNorm.bias": encoder.norm.bias.detach(),
        "pooler.dense.weight": encoder.pooler.weight.detach(),
        "pooler.dense.bias": encoder.pooler.bias.detach(),
    }
    for i, layer in enumerate(encoder.layers):
        at = f"encoder.layer.{i}."
        for part in ("weight", "bias"):
            pieces = getattr(layer.qkv, part).detach().chunk(3)
            for name, piece in zip(("query", "key", "value"), pieces):
                out[f"{at}attention.self.{name}.{part}"] = piece.clone()
            for name, module in (
                ("attention.output.dense", layer.merge),
                ("attention.output.LayerNorm", layer.norm1),
                ("intermediate.dense", layer.widen),
                ("output.dense", layer.narrow),
                ("output.LayerNorm", layer.norm2),
            ):
                out[f"{at}{name}.{part}"] = getattr(module, part).detach()
    if old:
        out = {k.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): v for k, v in out.items()}
    return {prefix + k: v.contiguous() for k, v in out.items()}


@pytest.mark.parametrize(("prefix", "old"), [("", False), ("bert.", True)])
def test_a_checkpoint_is_read_as_the_encoder_it_holds(tmp_path, prefix, old):
    encoder = made(Size(hidden=128, heads=4, wide=512))
    folder = tmp_path / "bert-tiny"
    folder.mkdir()
    save_file(their_layout(encoder, prefix, old), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": 4}))
    read = from_checkpoint(folder)
    assert read.size == Size(hidden=128, heads=4, wide=512)
    steps = torch.randn(3, 5, 128, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        assert torch.allclose(read(steps), encoder(steps), atol=1e-5)


def test_without_a_config_heads_have_64_dimensions(tmp_path):
    file = tmp_path / "model.safetensors"
    save_file(their_layout(made(Size(hidden=128, heads=2))), file)
    assert from_checkpoint(file).size.heads == 2
    assert from_checkpoint(file, heads=8).size.heads == 8


def test_what_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        from_checkpoint(tmp_path / "missing.safetensors")
    (tmp_path / "noise.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(BadInput, match="cannot be read"):
        from_checkpoint(tmp_path / "noise.safetensors")
    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(BadInput, match="no whole BERT encoder"):
        from_checkpoint(tmp_path / "other.safetensors")
    with pytest.raises(BadInput, match="heads"):
        Size(hidden=64, heads=3)


FIRST = "encoder.layer.0."


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"encoder.layer.1.output.dense.bias": None}, "layer.1.output.dense.bias"),
        ({f"{FIRST}intermediate.dense.weight": None}, "intermediate.dense.weight"),
        ({f"{FIRST}attention.self.query.weight": torch.tensor(1.0)}, "index"),
        ({"encoder.layer.x.output.dense.bias": torch.zeros(64)}, "'x'"),
        ({"embeddings.token_type_embeddings.weight": torch.zeros(0, 64)}, "index 0"),
        ({"embeddings.position_embeddings.weight": torch.zeros(9, 3)}, "must match the size"),
        ({f"{FIRST}output.dense.bias": torch.full((64,), float("nan"))}, "not finite"),
        ({f"{FIRST}attention.self.query.weight": torch.zeros(63, 64)}, "heads"),
    ],
)
def test_a_checkpoint_that_was_tampered_with_is_refused_in_one_sentence(tmp_path, changes, why):
    tensors = {k: v for k, v in (their_layout(made()) | changes).items() if v is not None}
    (tmp_path / "config.json").write_text('{"num_attention_heads": 2}')
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(BadInput, match="no whole BERT encoder") as refusal:
        from_checkpoint(tmp_path)
    assert why in str(refusal.value) and "\n" not in str(refusal.value)


def test_initial_weights_are_a_function_of_the_seed():
    first, again, other = (Encoder(Size()) for _ in range(3))
    for encoder, seed in ((first, 1), (again, 1), (other, 2)):
        encoder.initialise(torch.Generator().manual_seed(seed))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters()))
    assert not torch.equal(first.pooler.weight, other.pooler.weight)
    assert np.isfinite(first.pooler.weight.detach().numpy()).all()
