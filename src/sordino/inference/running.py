"""Scores of a model on many examples, in pieces."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

PIECE = 1000


def scores_of(model: nn.Module, x: np.ndarray) -> np.ndarray:
    """What `model` gives for each row of x (model input), without dropout; the model's mode is left as it was."""
    device, training = next(model.parameters()).device, model.training
    model.eval()
    try:
        with torch.no_grad():
            pieces = [
                model(torch.from_numpy(np.ascontiguousarray(x[at : at + PIECE])).to(device)).cpu().numpy()
                for at in range(0, len(x), PIECE)
            ]
    finally:
        model.train(training)
    return np.concatenate(pieces)
