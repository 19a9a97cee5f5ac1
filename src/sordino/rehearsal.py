"""What must work at the end of a run, done once before its first grant: a failure at the end would cost the whole budget.

Weights are turned into a file, the model is evaluated, and the loss gives one number per example. A copy of the model does
it, on the public test set, or on made-up examples where there is none yet; no record is seen.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from sordino.engines.scoring import PIECE, right
from sordino.errors import BadInput, SordinoError, in_short
from sordino.federation import checkpoint
from sordino.gradients.flat import made_up
from sordino.gradients.losses import LOSS_OF, checked
from sordino.models.packed import unpacked

if TYPE_CHECKING:
    from sordino.clients.descent import Loss
    from sordino.federation.population import Federation


def rehearse(
    model: nn.Module,
    federation: Federation,
    loss: Loss | None,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    prepared: bool = False,
) -> None:
    """`prepared`: the model sees what a prelude will make of records, and not the test set as it is now."""
    checkpoint.weights(unpacked(model))
    trial = copy.deepcopy(model).eval()
    device = next(trial.parameters()).device
    losses = loss or LOSS_OF[federation.task]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for x, y in _pieces(trial, federation, shape, dtype, prepared):
            x, y = x.to(device), y.to(device)
            out = trial(x)
            _losses(losses, out, y, own=loss is not None)
            right(out, y, federation.task)


def _losses(losses: Loss, out: Tensor, y: Tensor, own: bool) -> None:
    try:
        found = losses(out, y)
    except SordinoError:
        raise
    except Exception as error:
        if not own:
            raise
        raise BadInput(
            f"the loss does not take the model's outputs and the labels ({in_short(error)}); correct it."
        ) from None
    checked(found, len(out))


def _pieces(
    model: nn.Module, federation: Federation, shape: tuple[int, ...], dtype: torch.dtype, prepared: bool
) -> list[tuple[Tensor, Tensor]]:
    test = federation.test
    if test is None or prepared:
        labels = federation[0][1]
        count = 2 if test is None else min(PIECE, len(test[1]))
        blank = torch.from_numpy(np.zeros((count, *labels.shape[1:]), labels.dtype))
        return [(made_up(model, shape, dtype, count), blank)]
    x, y = (torch.from_numpy(np.array(array)) for array in test)
    return [(x[at : at + PIECE], y[at : at + PIECE]) for at in range(0, len(y), PIECE)]
