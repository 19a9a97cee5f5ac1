"""Where clients run: in this process, in worker processes, on other machines. The choice never changes the result."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sordino.errors import SordinoError, at_least, one_of, whole

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from sordino.clients.descent import Loss
    from sordino.engines.base import Engine
    from sordino.federation.population import Federation
    from sordino.plan import Plan
    from sordino.rules.base import Rule
    from sordino.schemes.request import Work

ENGINES = ("auto", "in-process", "workers")


class Aborted(SordinoError):
    """A round that could not be finished, because too few clients are left or the way to them is. It may be tried again."""


@dataclass(frozen=True)
class EngineOptions:
    """Settings that change speed, or what is kept on disk, and never the result (`apart`: never more than its last bits)."""

    engine: str = "auto"
    workers: int = 0  # 0: as many as there are cores
    evaluate_every: int = 0  # rounds; 0: about twenty times in a run
    checkpoint_every: int = 1
    patience: int = 10  # rounds that may be aborted in a row before training gives up
    keep_models: int = 0  # keep the released model of every so many rounds, for attacks that watch several; 0: none
    # Pooled records of different clients never share a batch. Up to 3 times slower where clients are small; the model then has
    # the very bits that the same plan gives across machines, where clients cannot share one.
    apart: bool = False

    def __post_init__(self) -> None:
        one_of(ENGINES, engine=self.engine)
        at_least(0, workers=self.workers, evaluate_every=self.evaluate_every, keep_models=self.keep_models)
        whole(checkpoint_every=self.checkpoint_every, patience=self.patience)

    def evaluates(self, round: int, rounds: int) -> bool:
        every = self.evaluate_every or max(1, rounds // 20)
        return round % every == 0 or round == rounds

    def checkpoints(self, round: int, rounds: int) -> bool:
        return round % self.checkpoint_every == 0 or round == rounds

    def keeps(self, round: int) -> bool:
        return self.keep_models > 0 and round % self.keep_models == 0

    @property
    def count(self) -> int:
        return self.workers or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_engine(
    model: nn.Module, federation: Federation, plan: Plan, rule: Rule, speed: EngineOptions, loss: Loss | None
) -> tuple[Engine, Work, np.ndarray]:
    """An engine with its clients' work, and the vector that the model starts from."""
    from sordino.clients.site import Site
    from sordino.engines.inprocess import InProcess
    from sordino.engines.scoring import Scoring
    from sordino.engines.workers import Workers, shared
    from sordino.schemes.pooled import PooledGradients

    site = Site(model, federation, plan, loss)
    start = site.flat.vector().cpu().numpy()
    theta = shared(start.shape, start.dtype.type)
    theta[:] = start
    work, scoring = make_work(site, theta, rule), Scoring(site, theta)
    if speed.apart and isinstance(work, PooledGradients):
        work.apart = True
    if speed.engine != "in-process" and speed.count > 1 and sys.platform == "linux" and site.device.type == "cpu":
        return Workers(work, scoring, theta, speed.count), work, start
    return InProcess(work, scoring, theta), work, start


def make_work(site: Any, theta: np.ndarray, rule: Rule) -> Work:
    """What clients do, by the unit that is protected."""
    plan = site.plan
    if plan.pooled and plan.private:
        from sordino.schemes.pooled import PooledGradients

        return PooledGradients(site, theta)
    if plan.method_spec.closed_loop:
        from sordino.schemes.fedmap.client import ControlledSteps
        from sordino.schemes.fedmap.published import PrintedSteps

        return PrintedSteps(site, theta, rule) if plan.published else ControlledSteps(site, theta, rule)
    if plan.local and plan.private:
        from sordino.schemes.local import LocalSteps

        return LocalSteps(site, theta, rule)
    from sordino.schemes.client import ClientUpdate

    return ClientUpdate(site, theta)
