"""Clients one after another, in this process. The engine to debug with, and the one for tiny models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from sordino.engines.base import Aggregate, gathered, work_on
from sordino.engines.scoring import Scoring
from sordino.schemes.request import Request, Work


class InProcess:
    """One thread, so that results are the same as with any number of workers."""

    def __init__(self, work: Work, scoring: Scoring, theta: np.ndarray) -> None:
        self.work, self.scoring, self.theta = work, scoring, theta

    def run(self, request: Request, items: Sequence[Any]) -> Aggregate:
        codes = np.zeros(self.theta.size, np.int64)
        with one_thread(), torch.random.fork_rng(devices=[]):
            answers = [(i, work_on(self.work, request, item, codes)) for i, item in enumerate(items)]
        return gathered(request, codes, answers, self.work.shares(items))

    def evaluate(self) -> tuple[float, float] | None:
        with one_thread():
            return self.scoring.summary([self.scoring.score(start) for start in self.scoring.pieces()])

    def close(self) -> None:
        pass


@contextmanager
def one_thread() -> Iterator[None]:
    """The number of threads changes how sums are split, hence their last bits: clients always use one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
