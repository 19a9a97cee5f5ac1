"""What a place that holds data needs to work: the model as one vector, and the data as tensors.

In a simulation one site holds all clients' data and is inherited by forked workers; at a data holder it holds one client's.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from sordino.clients.descent import Loss
from sordino.clients.devices import generator_of
from sordino.clients.personal import PersonalModels
from sordino.data.schema import CLASSIFICATION
from sordino.federation.sampling import Draws
from sordino.gradients.flat import Flat, check
from sordino.gradients.losses import LOSS_OF, mean_cross_entropy
from sordino.gradients.rewrite import faster
from sordino.privacy.randomness import stream

if TYPE_CHECKING:
    from sordino.federation.population import Federation
    from sordino.plan import Plan

PREPARED = 4 << 30  # bytes of model input that are kept ready; larger data is prepared batch by batch


class Site:
    """Model, data and settings, wherever clients run."""

    def __init__(
        self,
        model: nn.Module,
        federation: Federation,
        plan: Plan,
        loss: Loss | None = None,
        draws: Draws | None = None,
        personal: PersonalModels | None = None,
    ) -> None:
        self.federation, self.plan = federation, plan
        self.draws = Draws(plan) if draws is None else draws
        self.personal = PersonalModels() if personal is None else personal  # what clients keep for themselves
        self.losses: Loss = loss or LOSS_OF[plan.task]  # one number per example
        self.loss: Loss = lambda out, y: self.losses(out, y).mean()
        if loss is None and plan.task == CLASSIFICATION:
            self.loss = mean_cross_entropy
        self.device = next(model.parameters()).device
        x, _ = federation[0]
        check(model, tuple(x.shape[1:]), torch.from_numpy(np.array(x[:0])).dtype)  # the shape of a record, not a record
        self.flat = Flat(model.train())
        self.forward = faster(model)
        self.x, self.y = self._prepare()

    def _prepare(self) -> tuple[Tensor | None, Tensor | None]:
        pooled, shape = self.federation.x, self.federation.input_shape
        if pooled is None or len(pooled) * int(np.prod(shape)) * 4 > PREPARED:
            return None, None
        return self.tensor(self.federation.prepare(pooled)), self.tensor(np.asarray(self.federation.y))

    def tensor(self, array: np.ndarray) -> Tensor:
        """An array on the device of this site."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of arrays that must not be written; nothing here writes them
            out = torch.from_numpy(np.ascontiguousarray(array)).to(self.device)
        return out.contiguous(memory_format=torch.channels_last) if out.dim() == 4 else out

    def client(self, k: int) -> tuple[Tensor, Tensor]:
        """All of client k's examples."""
        offsets = self.federation.offsets
        if self.x is None or self.y is None or offsets is None:
            x, y = self.federation[k]
            return self.tensor(x), self.tensor(y)
        here = slice(int(offsets[k]), int(offsets[k + 1]))
        return self.x[here], self.y[here]

    def rows(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Examples by their place in the pooled data."""
        if self.x is None or self.y is None:
            x, y = self.federation.take(rows)
            return self.tensor(x), self.tensor(y)
        index = torch.from_numpy(rows).to(self.device)
        return self.x.index_select(0, index), self.y.index_select(0, index)

    def blank(self) -> tuple[Tensor, Tensor]:
        """One blank example with its label: shapes and types, and nothing of the data."""
        x, y = self.federation[0]
        return self.tensor(np.zeros((1, *x.shape[1:]), x.dtype)), self.tensor(np.zeros((1, *y.shape[1:]), y.dtype))

    def layer_seed(self, t: int, item: int, step: int = 0) -> int:
        """The seed of layers that draw at random, for one piece of a round's work."""
        return int(stream(self.plan.seed, t, item, f"layers-{step}").integers(2**62))

    def seed_layers(self, t: int, item: int) -> None:
        """Give layers that draw at random (dropout) a stream of their own: torch only lets them use the global generator."""
        # The generator itself: torch.manual_seed also visits every accelerator, which takes milliseconds.
        generator_of(self.device).manual_seed(int(stream(self.plan.seed, t, item, "layers").integers(2**62)))
