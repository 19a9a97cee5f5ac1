"""MetaNet: input projection, frozen encoder, head (FedMAP, section 3.1 and figure 2).

Only the projection and the head are ever trained, in pre-training as at the clients, so a client's own controller is
a short vector (`personal`) beside the encoder that all of them share.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from sordino.errors import BadInput, in_short, one_of
from sordino.schemes.fedmap.metanet.bert import Encoder, Size, finite
from sordino.schemes.fedmap.metanet.features import LENGTH, NAMES

SHIPPED = Path(__file__).with_name("weights.safetensors")
FORM = "sordino-metanet-1"


class MetaNet(nn.Module):
    """From the last steps [n, length, features] to two numbers each; `features.read` makes a decision of them."""

    def __init__(self, kind: str, encoder: Encoder) -> None:
        super().__init__()
        one_of(tuple(NAMES), kind=kind)
        if encoder.size.length < LENGTH:
            raise BadInput(f"the encoder takes {encoder.size.length} steps; MetaNet looks back on {LENGTH}.")
        self.kind, self.encoder = kind, encoder
        with torch.random.fork_rng(devices=[]):
            self.projection = nn.Linear(len(NAMES[kind]), encoder.size.hidden)
            self.head = nn.Linear(encoder.size.hidden, 2)
        self.encoder.requires_grad_(False)

    def forward(self, steps: Tensor, valid: Tensor) -> Tensor:
        return self.head(self.encoder(self.projection(steps), valid))

    @torch.inference_mode()
    def decide(self, steps: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Outputs [n, 2] in double precision."""
        return self(torch.from_numpy(steps), torch.from_numpy(valid)).numpy().astype(np.float64)

    @property
    def trained(self) -> list[nn.Parameter]:
        """What is trained: the projection and the head."""
        return [*self.projection.parameters(), *self.head.parameters()]

    @property
    def personal(self) -> np.ndarray:
        """The trained weights as one vector."""
        return torch.cat([p.detach().reshape(-1) for p in self.trained]).numpy().copy()

    def take(self, personal: np.ndarray) -> None:
        """Become the controller whose `personal` vector this is."""
        wanted = sum(p.numel() for p in self.trained)
        if personal.shape != (wanted,):
            raise BadInput(f"this MetaNet has {wanted} weights of its own, the vector has shape {personal.shape}.")
        source, at = torch.from_numpy(np.asarray(personal, np.float32)), 0
        with torch.no_grad():
            for parameter in self.trained:
                parameter.copy_(source[at : at + parameter.numel()].view_as(parameter))
                at += parameter.numel()

    def initialise(self, generator: torch.Generator) -> None:
        """Fresh projection and head, as if never pre-trained."""
        with torch.no_grad():
            self.projection.weight.normal_(0.0, 1 / math.sqrt(self.projection.in_features), generator=generator)
            self.head.weight.normal_(0.0, 0.02, generator=generator)
            self.projection.bias.zero_()
            self.head.bias.zero_()


def fresh(kind: str, seed: int = 0, size: Size | None = None) -> MetaNet:
    """A MetaNet that was never trained, encoder and all."""
    generator = torch.Generator().manual_seed(seed)
    made = MetaNet(kind, Encoder(size or Size()))
    made.encoder.initialise(generator)
    made.initialise(generator)
    return made


def load(kind: str, path: str | Path | None = None) -> MetaNet:
    """The controller of one variant from a file that `save` wrote; without a path, the one that ships with the package."""
    from safetensors import SafetensorError, safe_open

    one_of(tuple(NAMES), kind=kind)
    file = SHIPPED if path is None else Path(path)
    try:
        with safe_open(file, "pt") as opened:
            facts = json.loads((opened.metadata() or {})["facts"])
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - not a dict
        finite(tensors)
        if facts["form"] != FORM:
            raise KeyError(facts["form"])
        made = MetaNet(kind, Encoder(Size(**facts["size"])))
        made.encoder.load_state_dict(_part(tensors, "encoder."))
        for name in ("projection", "head"):
            getattr(made, name).load_state_dict(_part(tensors, f"{kind}.{name}."))
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise BadInput(
            f"{file} holds no MetaNet ({in_short(error)}); make one with sordino metanet pretrain."
        ) from None
    return made


def save(nets: Mapping[str, MetaNet], path: str | Path, facts: Mapping[str, object]) -> None:
    """Both controllers and the encoder they share, in one file; `facts` say how they came about."""
    from safetensors.torch import save as to_bytes

    first = next(iter(nets.values()))
    tensors = {f"encoder.{name}": t for name, t in first.encoder.state_dict().items()}
    for kind, net in nets.items():
        if net.encoder is not first.encoder:
            raise BadInput("the controllers of one file share their encoder; these do not.")
        for name in ("projection", "head"):
            tensors |= {f"{kind}.{name}.{key}": t for key, t in getattr(net, name).state_dict().items()}
    told = {"form": FORM, "size": vars(first.encoder.size), **facts}
    blob = to_bytes(
        {k: t.contiguous() for k, t in sorted(tensors.items())}, {"facts": json.dumps(told, sort_keys=True)}
    )
    Path(path).write_bytes(blob)


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
