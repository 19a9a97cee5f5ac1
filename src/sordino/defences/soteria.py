"""Soteria (Sun, Li, Wang, Yang, Li and Chen, CVPR 2021): hide the features that tell most about the input.

    score_j = sum over examples of |d r_j / d x| / (|r_j| + offset)
    the columns of the layer's weight that belong to scores below the `percentile`-th percentile are set to zero

r is what enters one dense layer: the first that sees features and not the example itself. What leaks through a dense layer
is r (its gradient is an outer product with r), so the features from which x is easiest to compute are left out.

Differences from the public code, on purpose: it divides by the signed r_j + 0.1, which turns the order round for negative
features, and it scores each whole batch; here at most `records` of the client's records are scored in a round. An exact share
of the columns is set to zero, also where many scores are equal (dead features).

What it does not do: every other layer leaves as it is, and the pattern of zeros is itself a function of the data. An attacker
who leaves the masked layer out of its comparison loses little (`tests/attacks/inversion/test_adaptive.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sordino.defences.base import OwnView
from sordino.errors import BadInput, between, positive, whole

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Soteria:
    """Columns of one dense layer's update are left out."""

    name: ClassVar[str] = "soteria"
    paper: ClassVar[str] = "Sun et al. 2021, Soteria: provable defense against privacy leakage in federated learning"

    percentile: float = 80.0  # share of the features that is hidden, in percent
    offset: float = 0.1
    records: int = 16  # scored in a round

    def __post_init__(self) -> None:
        between(0, 100, soteria_percentile=self.percentile)
        positive(soteria_offset=self.offset)
        whole(soteria_records=self.records)

    def check(self, model: nn.Module, x: Tensor) -> None:
        """Refuse a model without an inner dense layer, or input that cannot be differentiated by."""
        from sordino.gradients.sensitivity import first_inner_dense

        if not x.dtype.is_floating_point:
            raise BadInput("defence soteria differentiates by the input, and this data is tokens; leave defence out.")
        if first_inner_dense(model, x) is None:
            raise BadInput(
                f"defence soteria masks a dense layer behind other layers, and the model {type(model).__name__} has none; "
                "choose a network with one, such as lenet, or leave defence out."
            )

    def __call__(self, update: np.ndarray, own: OwnView) -> np.ndarray:
        import torch

        from sordino.gradients.sensitivity import first_inner_dense

        x, _ = own.some(self.records)
        layer = first_inner_dense(own.flat.model, x[:1])
        assert layer is not None  # `check` saw it on the same model
        hidden = torch.from_numpy(self.hidden(self.scores(own.flat.model, layer, x)))
        kept = torch.from_numpy(update.copy())
        for slot in own.flat.slots:
            if slot.name == f"{layer}.weight":
                slot.view(kept)[:, hidden] = 0.0
        return kept.numpy()

    def scores(self, model: nn.Module, layer: str, x: Tensor) -> np.ndarray:
        """How much each feature of the layer depends on the record, relative to its own size."""
        from sordino.gradients.sensitivity import sensitivities

        slopes, r = sensitivities(model, layer, x)
        each = slopes.double() / (r.double().abs() + self.offset)
        return each.sum(0).numpy(force=True)

    def hidden(self, scores: np.ndarray) -> np.ndarray:
        """The features that are left out: those of the lowest scores, in a share of `percentile` percent."""
        # Not finite: the features of a diverged model. They are hidden first.
        order = np.argsort(np.where(np.isfinite(scores), scores, -np.inf), kind="stable")
        return np.sort(order[: int(np.ceil(len(scores) * self.percentile / 100))])
