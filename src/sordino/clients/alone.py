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


def scores_alone(model: nn.Module, x: np.ndarray) -> np.ndarray:
    """One row of scores for each row of x (model input), without dropout; `model` itself is not touched."""
    trial = copy.deepcopy(model).eval()
    device = next(trial.parameters()).device
    remembered, rows = State(trial, ()), []
    with torch.no_grad(), one_thread(), torch.random.fork_rng(devices=[]):
        for i in range(len(x)):
            rows.append(trial(torch.from_numpy(np.array(x[i : i + 1])).to(device)).cpu().numpy()[0])
            remembered.restore()
    return np.stack(rows) if rows else np.zeros((0, 1), np.float32)
