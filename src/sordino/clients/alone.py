"""What a model gives for private records, each by itself.

A contribution to a noisy figure must be a function of one record and of released weights. A batch does not promise that: a
module of one's own may mix its examples, and a library may round a row otherwise beside other rows. So records pass one at a
time, and whatever a module remembers of one of them is put back before the next.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn

from sordino.clients.threads import one_thread
from sordino.gradients.state import State


class Alone:
    """A copy of a model, without dropout; the model itself is not touched."""

    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(model).eval()
        self._device = next(self.model.parameters()).device
        self._remembered = State(self.model, ())

    def scores(self, x: np.ndarray) -> np.ndarray:
        """One row of scores for each row of x (model input)."""
        rows = []
        with torch.no_grad(), one_thread(), torch.random.fork_rng(devices=[]):
            for i in range(len(x)):
                rows.append(self.model(torch.from_numpy(np.array(x[i : i + 1])).to(self._device)).cpu().numpy()[0])
                self._remembered.restore()
        return np.stack(rows) if rows else np.zeros((0, 1), np.float32)
