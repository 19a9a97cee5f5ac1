"""A transformer encoder in BERT's form (Devlin et al. 2019): layer norm after each sum, GELU, learned positions, a [CLS].

FedMAP takes "BERT-tiny" with two layers, two heads and a hidden size of 64. Of the models of that name the smallest has a
hidden size of 128 and feed-forward layers of 512; here those 512 are kept, which makes the paper's 0.2M parameters. A local
checkpoint in the Hugging Face layout (``encoder.layer.0.attention.self.query.weight`` ...) can be loaded instead: its sizes
are read from its tensors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sordino.errors import BadInput, in_short, whole

_EPS = 1e-12  # of BERT's layer norms
_CLS = 101  # the row of [CLS] in BERT's vocabulary


@dataclass(frozen=True)
class Size:
    """The shape of an encoder."""

    hidden: int = 64
    layers: int = 2
    heads: int = 2
    wide: int = 512  # of the feed-forward layers
    length: int = 5  # longest sequence, without [CLS]

    def __post_init__(self) -> None:
        whole(hidden=self.hidden, layers=self.layers, heads=self.heads, wide=self.wide, length=self.length)
        if self.hidden % self.heads:
            raise BadInput(f"hidden size {self.hidden} cannot be divided among {self.heads} heads; choose a multiple.")


class Layer(nn.Module):
    """Self-attention and a feed-forward part, each added to its input and normed."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.qkv = nn.Linear(size.hidden, 3 * size.hidden)
        self.merge = nn.Linear(size.hidden, size.hidden)
        self.norm1 = nn.LayerNorm(size.hidden, eps=_EPS)
        self.widen = nn.Linear(size.hidden, size.wide)
        self.narrow = nn.Linear(size.wide, size.hidden)
        self.norm2 = nn.LayerNorm(size.hidden, eps=_EPS)

    def forward(self, h: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, hidden = h.shape
        q, k, v = self.qkv(h).view(batch, length, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        heard = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        h = self.norm1(h + self.merge(heard.transpose(1, 2).reshape(batch, length, hidden)))
        return self.norm2(h + self.narrow(F.gelu(self.widen(h))))


class Encoder(nn.Module):
    """From embedded steps [batch, length, hidden] to the pooled [CLS] [batch, hidden]."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.cls = nn.Parameter(torch.zeros(size.hidden))
        self.positions = nn.Parameter(torch.zeros(size.length + 1, size.hidden))
        self.norm = nn.LayerNorm(size.hidden, eps=_EPS)
        with torch.random.fork_rng(
            devices=[]
        ):  # layers draw weights that are replaced anyway; leave the generator alone
            self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
            self.pooler = nn.Linear(size.hidden, size.hidden)

    def forward(self, steps: Tensor, valid: Tensor | None = None) -> Tensor:
        return torch.tanh(self.pooler(self.states(steps, valid)[:, 0]))

    def states(self, steps: Tensor, valid: Tensor | None = None) -> Tensor:
        """All states, [CLS] first. `valid` [batch, length] tells true steps from padding."""
        h = torch.cat([self.cls.expand(len(steps), 1, -1), steps], 1) + self.positions[: steps.shape[1] + 1]
        h = self.norm(h)
        mask = None
        if valid is not None:
            mask = F.pad(valid, (1, 0), value=True)[:, None, None, :]
        for layer in self.layers:
            h = layer(h, mask)
        return h

    def initialise(self, generator: torch.Generator) -> None:
        """BERT's own initial weights: normal with a standard deviation of 0.02, but wider by what small sizes ask for."""
        std = max(0.02, 1 / math.sqrt(3 * self.size.hidden))
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.dim() > 1 or name == "cls":
                    parameter.normal_(0.0, std, generator=generator)
                elif "norm" in name and name.endswith("weight"):
                    parameter.fill_(1.0)
                else:
                    parameter.zero_()


def from_checkpoint(path: str | Path, length: int = 5, heads: int | None = None) -> Encoder:
    """The encoder in a BERT checkpoint: a safetensors file, or a folder with ``model.safetensors`` (and config.json).

    Heads cannot be read from tensors: they come from config.json beside the file, else from `heads`, else hidden / 64.
    """
    file = Path(path)
    file = file / "model.safetensors" if file.is_dir() else file
    tensors = _read(file)
    try:
        return _build(tensors, file, length, heads)
    except (LookupError, ValueError, TypeError, RuntimeError) as error:
        raise BadInput(
            f"{file} holds no whole BERT encoder ({in_short(error)}); give one in Hugging Face layout."
        ) from None


def _build(tensors: dict[str, Tensor], file: Path, length: int, heads: int | None) -> Encoder:
    query = "encoder.layer.0.attention.self.query.weight"
    for name in (query, "embeddings.position_embeddings.weight"):
        if name not in tensors:
            raise KeyError(f"there is no {name}")
    finite(tensors)
    hidden = tensors[query].shape[0]
    layers = 1 + max(int(name.split(".")[2]) for name in tensors if name.startswith("encoder.layer."))
    wide = tensors["encoder.layer.0.intermediate.dense.weight"].shape[0]
    size = Size(hidden, layers, heads or _heads(file) or max(1, hidden // 64), wide, length)
    made = Encoder(size)
    made.load_state_dict(_renamed(tensors, size))
    return made


def finite(tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights that a decision could not be computed with."""
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} holds values that are not finite")


def _read(file: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        raw = load_file(file)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"the checkpoint {file} cannot be read ({error}); give a safetensors file.") from None
    # Older checkpoints say gamma and beta, and those with a task head put "bert." in front.
    return {
        name.removeprefix("bert.")
        .replace("LayerNorm.gamma", "LayerNorm.weight")
        .replace("LayerNorm.beta", "LayerNorm.bias"): tensor.float()
        for name, tensor in raw.items()
    }


def _heads(file: Path) -> int | None:
    config = file.with_name("config.json")
    try:
        told: object = json.loads(config.read_text()).get("num_attention_heads")
    except (OSError, ValueError, AttributeError):
        return None
    return told if isinstance(told, int) and told > 0 else None


def _renamed(tensors: dict[str, Tensor], size: Size) -> dict[str, Tensor]:
    out = {"norm.weight": tensors["embeddings.LayerNorm.weight"], "norm.bias": tensors["embeddings.LayerNorm.bias"]}
    rows = tensors["embeddings.position_embeddings.weight"][: size.length + 1]
    kinds = tensors.get("embeddings.token_type_embeddings.weight")
    out["positions"] = rows if kinds is None else rows + kinds[0]
    words = tensors.get("embeddings.word_embeddings.weight")
    out["cls"] = torch.zeros(size.hidden) if words is None or len(words) <= _CLS else words[_CLS].clone()
    for part in ("weight", "bias"):
        out[f"pooler.{part}"] = tensors.get(f"pooler.dense.{part}", _identity(size.hidden, part))
        for i in range(size.layers):
            theirs, ours = f"encoder.layer.{i}.", f"layers.{i}."
            attention = [tensors[f"{theirs}attention.self.{name}.{part}"] for name in ("query", "key", "value")]
            out[f"{ours}qkv.{part}"] = torch.cat(attention)
            out[f"{ours}merge.{part}"] = tensors[f"{theirs}attention.output.dense.{part}"]
            out[f"{ours}norm1.{part}"] = tensors[f"{theirs}attention.output.LayerNorm.{part}"]
            out[f"{ours}widen.{part}"] = tensors[f"{theirs}intermediate.dense.{part}"]
            out[f"{ours}narrow.{part}"] = tensors[f"{theirs}output.dense.{part}"]
            out[f"{ours}norm2.{part}"] = tensors[f"{theirs}output.LayerNorm.{part}"]
    return out


def _identity(hidden: int, part: str) -> Tensor:
    """Stands for a pooler where the checkpoint has none."""
    return torch.from_numpy(np.eye(hidden, dtype=np.float32)) if part == "weight" else torch.zeros(hidden)
