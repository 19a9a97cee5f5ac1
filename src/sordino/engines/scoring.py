"""How well a model does on the public test set, in pieces that may be scored anywhere."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from sordino.clients.site import Site
from sordino.clients.threads import one_thread
from sordino.data.dataset import NO_LABEL
from sordino.data.schema import CLASSIFICATION, MULTI_LABEL

PIECE = 1000


class Scoring:
    """Counts correct answers and adds up losses, piece by piece."""

    def __init__(self, site: Site, theta: np.ndarray) -> None:
        self.site, self.theta = site, theta
        test = site.federation.test
        self.x: Tensor | None = None if test is None else site.tensor(test[0])
        self.y: Tensor | None = None if test is None else site.tensor(test[1])

    def pieces(self) -> list[int]:
        """Where each piece of the test set begins."""
        return [] if self.y is None else list(range(0, len(self.y), PIECE))

    def score(self, start: int) -> tuple[float, float]:
        """How many answers of the piece are right, and the sum of its losses."""
        assert self.x is not None and self.y is not None
        flat = self.site.flat
        flat.load(self.theta)
        flat.model.eval()
        with torch.no_grad():
            x, y = self.x[start : start + PIECE], self.y[start : start + PIECE]
            logits = self.site.forward(x)
            correct = right(logits, y, self.site.plan.task)
            loss = float(self.site.loss(logits, y)) * len(y)
        flat.model.train()
        return correct, loss

    def here(self) -> tuple[float, float] | None:
        """The summary of all pieces, scored in this process."""
        with one_thread():
            return self.summary([self.score(start) for start in self.pieces()])

    def summary(self, scores: list[tuple[float, float]]) -> tuple[float, float] | None:
        """Accuracy (NaN where there is no such thing) and loss."""
        if self.y is None:
            return None
        return sum(c for c, _ in scores) / judged(self.y, self.site.plan.task), sum(s for _, s in scores) / len(self.y)


def right(scores: Tensor, y: Tensor, task: str) -> float:
    """How many answers are right; of several labels each counts its share. Numbers are not right or wrong: NaN."""
    if task == MULTI_LABEL:
        return float(((scores > 0) == (y > 0.5)).double().mean(1).sum())
    return float((scores.argmax(-1) == y).sum()) if task == CLASSIFICATION else math.nan


def judged(y: Tensor, task: str) -> int:
    """How many answers there are to be right or wrong: one per example, or one at every position that has a label."""
    return int((y != NO_LABEL).sum()) if task == CLASSIFICATION else len(y)
