"""Clients one after another, in this process. The engine to debug with, and the one for tiny models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sordino.clients.threads import one_thread
from sordino.engines import EngineOptions
from sordino.engines.scoring import Scoring
from sordino.schemes.aggregate import Aggregate, aggregate
from sordino.schemes.request import Request, Work, work_on


class InProcess:
    """One thread, so that results are the same as with any number of workers."""

    simulated = True
    clients_keep_state = False

    def __init__(
        self, work: Work[Any], scoring: Scoring | None, theta: np.ndarray, options: EngineOptions | None = None
    ) -> None:
        self.work, self.scoring, self.theta = work, scoring, theta

    def run(self, request: Request, items: Sequence[object]) -> Aggregate:
        codes = np.zeros(self.theta.size, np.int64)
        with one_thread(), torch.random.fork_rng(devices=[]):
            replies = [(i, work_on(self.work, request, item, codes)) for i, item in enumerate(items)]
        return aggregate(request, codes, replies)

    def evaluate(self) -> tuple[float, float] | None:
        return None if self.scoring is None else self.scoring.here()

    def close(self) -> None:
        pass
