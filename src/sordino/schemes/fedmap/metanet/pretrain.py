"""Pre-training (FedMAP, section 3.1): mean squared error on synthetic sequences, Adam, gradient clipping, early stopping.

In two parts, as BERT has them. First the encoder learns to fill in a step that was left out of a sequence, as BERT fills
in words; a local BERT checkpoint takes the place of this part. Then it is frozen, and the projections and heads of the two
variants are trained to the labels of `synthetic`. Errors are of logarithms, since labels spread over decades.

Everything is a function of the settings: one thread, generators of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sordino.clients.threads import one_thread
from sordino.errors import BadInput, positive, whole
from sordino.privacy.randomness import stream
from sordino.schemes.fedmap.metanet import bert, synthetic
from sordino.schemes.fedmap.metanet.features import CERTIFIED, NAMES, PUBLISHED
from sordino.schemes.fedmap.metanet.net import MetaNet

Tell = Callable[[str, int, float], None]  # part, step, error on sequences that are not trained on


@dataclass(frozen=True)
class Settings:
    """Of both parts.

    The paper has Adam at 1e-4 and the error of (C, sigma) themselves (equation 5): ``Settings(lr=1e-4, logarithms=False)``. Ours differ:
    labels spread over decades, so that the plain error is that of the few largest alone; and 1e-4 reaches the same error in some
    twenty times the steps.
    """

    sequences: int = 20_000
    seed: int = 42
    batch: int = 64
    lr: float = 2e-3
    first_lr: float = 1e-3
    first_steps: int = 1_000
    most_steps: int = 3_000
    clip: float = 1.0
    patience: int = 5  # checks without a better error, each after `check` steps
    check: int = 200
    logarithms: bool = (
        True  # the published controller's error is of log C and log sigma; False: of C and sigma (equation 5)
    )

    def __post_init__(self) -> None:
        whole(2, sequences=self.sequences)  # one is held out
        whole(batch=self.batch, most_steps=self.most_steps, patience=self.patience)
        whole(check=self.check)
        whole(0, seed=self.seed, first_steps=self.first_steps)
        positive(lr=self.lr, first_lr=self.first_lr, clip=self.clip)


@dataclass(frozen=True)
class Outcome:
    """The two controllers, on one encoder, and what is known about them."""

    nets: dict[str, MetaNet]
    facts: dict[str, Any]


def pretrain(settings: Settings, backbone: str | Path | None = None, tell: Tell | None = None) -> Outcome:
    """Train both controllers from nothing, or on the encoder of a local BERT checkpoint."""
    tell = tell or (lambda part, step, error: None)
    with one_thread():
        if backbone is None:
            encoder = bert.Encoder(bert.Size())
            encoder.initialise(_generator(settings, "encoder"))
            _fill_in(encoder, settings, tell)
        else:
            encoder = bert.from_checkpoint(backbone)
        nets, errors = {}, {}
        for kind in (CERTIFIED, PUBLISHED):
            nets[kind] = MetaNet(kind, encoder)
            nets[kind].initialise(_generator(settings, kind))
            errors[kind] = _fit(nets[kind], settings, tell)
    facts = {"settings": asdict(settings), "backbone": "own" if backbone is None else "given", "errors": errors}
    return Outcome(nets, facts)


def _fill_in(encoder: bert.Encoder, settings: Settings, tell: Tell) -> None:
    """Part one: hide one of the steps of a sequence, and have the encoder tell what was there."""
    data = synthetic.sequences(CERTIFIED, settings.sequences, settings.seed + 1)
    features, hidden = len(NAMES[CERTIFIED]), encoder.size.hidden
    generator = _generator(settings, "fill-in")
    with torch.random.fork_rng(devices=[]):
        projection, back = nn.Linear(features, hidden), nn.Linear(hidden, features)
    with torch.no_grad():
        for layer in (projection, back):
            layer.weight.normal_(0.0, layer.in_features**-0.5, generator=generator)
            layer.bias.zero_()
    trained = [*encoder.parameters(), *projection.parameters(), *back.parameters()]
    adam = torch.optim.Adam(trained, lr=settings.first_lr)
    rng = stream(settings.seed, 0, 0, "metanet-hidden")
    for step in range(1, settings.first_steps + 1):
        batch = _tensors(data.part(rng.integers(len(data), size=settings.batch)))
        steps, valid = batch[0], batch[1]
        hide = torch.zeros_like(valid)
        hide[torch.arange(len(steps)), torch.from_numpy(rng.integers(steps.shape[1], size=len(steps)))] = True
        hide &= valid
        states = encoder.states(projection(torch.where(hide[:, :, None], 0.0, steps)), valid)[:, 1:]
        error = F.mse_loss(back(states)[hide], steps[hide])
        _step(adam, trained, error, settings.clip)
        if step % settings.check == 0:
            tell("encoder", step, float(error.detach()))
    encoder.requires_grad_(False)


def _fit(net: MetaNet, settings: Settings, tell: Tell) -> float:
    """Part two: projection and head. The best error on sequences that are held out, and the weights that had it."""
    data = synthetic.sequences(net.kind, settings.sequences, settings.seed)
    held = max(1, len(data) // 10)
    test, train = data.part(slice(0, held)), data.part(slice(held, None))
    steps, valid, labels = _tensors(test)
    adam = torch.optim.Adam(net.trained, lr=settings.lr)
    rng = stream(settings.seed, 0, 0, f"metanet-batches-{net.kind}")
    best, kept, waited = np.inf, net.personal, 0
    for step in range(1, settings.most_steps + 1):
        batch = _tensors(train.part(rng.integers(len(train), size=settings.batch)))
        error = _error(net, settings, *batch)
        _step(adam, net.trained, error, settings.clip)
        if step % settings.check and step < settings.most_steps:
            continue
        with torch.no_grad():
            missed = float(_error(net, settings, steps, valid, labels))
        tell(net.kind, step, missed)
        if missed < best:
            best, kept, waited = missed, net.personal, 0
        else:
            waited += 1
            if waited >= settings.patience:
                break
    if not np.isfinite(best):
        raise BadInput("the controllers' errors are not finite: nothing was learned; use another backbone or settings.")
    net.take(kept)
    return best


def _error(net: MetaNet, settings: Settings, steps: Tensor, valid: Tensor, labels: Tensor) -> Tensor:
    """Equation 5, of the outputs as they are (logarithms), or of what they stand for."""
    outputs = net(steps, valid)
    if settings.logarithms or net.kind == CERTIFIED:
        return F.mse_loss(outputs, labels)
    return F.mse_loss(torch.exp(outputs.clamp(max=20.0)), torch.exp(labels))


def _step(adam: torch.optim.Optimizer, trained: list[nn.Parameter], error: Tensor, clip: float) -> None:
    adam.zero_grad()
    error.backward()
    nn.utils.clip_grad_norm_(trained, clip)
    adam.step()


def _tensors(data: synthetic.Set) -> tuple[Tensor, Tensor, Tensor]:
    return torch.from_numpy(data.steps), torch.from_numpy(data.valid), torch.from_numpy(data.labels)


def _generator(settings: Settings, part: str) -> torch.Generator:
    return torch.Generator().manual_seed(int(stream(settings.seed, 0, 0, f"metanet-{part}").integers(2**62)))
