"""Where clients run: in this process, in worker processes, on other machines. The choice never changes the result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sordino import own_code
from sordino.errors import BadInput, SordinoError, at_least, one_of, whole
from sordino.machine import cores

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from sordino.clients.descent import Loss
    from sordino.clients.personal import PersonalModels
    from sordino.engines.scoring import Scoring
    from sordino.federation.population import Federation
    from sordino.federation.sampling import Draws
    from sordino.rules.base import Rule
    from sordino.schemes.aggregate import Engine
    from sordino.schemes.request import Work
    from sordino.schemes.terms import Terms

ENGINES = ("auto", "in-process", "workers")


class Aborted(SordinoError):
    """A round that could not be finished, because too few clients are left or cannot be reached. It may be tried again."""


@dataclass(frozen=True)
class EngineOptions:
    """Settings that change speed, or what is kept on disk, and never the result (`isolate_clients`: only its last bits).

    `engine` is `auto` (workers where the machine has several cores), `in-process`, `workers`, or code of your own as
    ``module:object``: a function of (work, scoring, theta, options) that returns an `Engine`.
    """

    engine: str = "auto"
    workers: int = 0  # 0: as many as there are cores
    evaluate_every: int = 0  # rounds; 0: about twenty times in a run
    checkpoint_every: int = 1
    patience: int = 10  # rounds that may be aborted in a row before training gives up
    keep_models: int = 0  # keep the released model of every so many rounds, for attacks that watch several; 0: none
    # Pooled records of different clients never share a batch. Up to 3 times slower where clients are small; the model then
    # has the same bits as a deployment of the same plan, where clients cannot share a batch.
    isolate_clients: bool = False

    def __post_init__(self) -> None:
        if not own_code.is_reference(self.engine):
            one_of(ENGINES, engine=self.engine)
        at_least(0, workers=self.workers, evaluate_every=self.evaluate_every, keep_models=self.keep_models)
        whole(checkpoint_every=self.checkpoint_every, patience=self.patience)

    def evaluates(self, t: int, rounds: int) -> bool:
        """Whether accuracy is measured after this round."""
        every = self.evaluate_every or max(1, rounds // 20)
        return t % every == 0 or t == rounds

    def checkpoints(self, t: int, rounds: int) -> bool:
        """Whether a checkpoint is saved after this round."""
        return t % self.checkpoint_every == 0 or t == rounds

    def keeps(self, t: int) -> bool:
        """Whether the model of this round is kept."""
        return self.keep_models > 0 and t % self.keep_models == 0

    @property
    def count(self) -> int:
        """How many worker processes there are."""
        return self.workers or cores()


EngineFactory = Callable[["Work[Any]", "Scoring", "np.ndarray", EngineOptions], "Engine"]


class Started(NamedTuple):
    """An engine with its clients' work, and the vector that the model starts from."""

    engine: Engine
    work: Work[Any]
    theta: np.ndarray


@dataclass(frozen=True)
class Setup:
    """What an engine is started with."""

    model: nn.Module
    federation: Federation
    terms: Terms
    rule: Rule
    draws: Draws
    options: EngineOptions
    loss: Loss | None = None
    personal: PersonalModels | None = None  # where clients keep what is theirs; None: in memory


StartEngine = Callable[[Setup], Started]


def start_engine(setup: Setup) -> Started:
    """The engine of a simulation: all clients' data is on this machine."""
    from sordino.clients.site import Site
    from sordino.engines.scoring import Scoring
    from sordino.engines.workers import shared
    from sordino.schemes.pooled import PooledGradients

    options = setup.options
    site = Site(setup.model, setup.federation, setup.terms.plan, setup.loss, setup.draws, setup.personal)
    start = site.flat.vector().cpu().numpy()
    theta = shared(start.shape, start.dtype.type)
    theta[:] = start
    work = setup.terms.scheme.work(site, theta, setup.rule, setup.terms)
    if options.isolate_clients and isinstance(work, PooledGradients):
        work.isolate_clients = True
    can_fork = sys.platform == "linux" and site.device.type == "cpu"
    if setup.terms.scheme.keeps_personal and setup.personal is None:
        can_fork = False  # what a client keeps in memory would be lost to the next worker
    return Started(_engine(options, can_fork)(work, Scoring(site, theta), theta, options), work, start)


def _engine(options: EngineOptions, can_fork: bool) -> EngineFactory:
    from sordino.engines.inprocess import InProcess
    from sordino.engines.workers import Workers

    if own_code.is_reference(options.engine):
        made: Any = own_code.load(options.engine, "engine")
        return made
    if options.engine == "workers" and not can_fork:
        raise BadInput("worker processes need Linux and a model on the processor; use engine in-process.")
    several = options.engine == "workers" or options.engine == "auto" and options.count > 1 and can_fork
    return Workers if several else InProcess
