"""The life of a round, on one screen.

    grant    the ledger grants the round's event, on disk, before any data is touched
    cohort   who takes part, drawn without looking at data
    release  what clients compute, clipped and noised; each scheme has its own way (`ClippedRound`, `LocalRound`, `PlainRound`)
    model    a server step with the released mean
    check    what left through the doors is held against the grant

Everything after `grant` is a pure function of (plan, round, state), unless the noise comes from a secure source.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from sordino.federation.averaging import Averaging
from sordino.federation.checkpoint import TrainState
from sordino.federation.sampling import Draws
from sordino.federation.server import Arrays, ServerOptimizer, factor
from sordino.privacy import events
from sordino.privacy.bounds import Bound
from sordino.privacy.ledger import Ledger
from sordino.rules.base import Queries, Rule, State
from sordino.rules.query import Answer
from sordino.rules.schedule import skipped
from sordino.schemes import certified
from sordino.schemes.aggregate import Engine
from sordino.schemes.request import Work
from sordino.schemes.terms import Terms


@dataclass(frozen=True)
class Context:
    """All that rounds are run with."""

    terms: Terms
    rule: Rule
    engine: Engine
    work: Work[Any]
    ledger: Ledger
    draws: Draws


@dataclass(frozen=True)
class RoundMetrics:
    """What a round released, for metrics and the progress bar."""

    cohort: int | None  # None where it must not be told
    bound: float | None
    multiplier: float
    noise: float | None  # norm of the noise in the mean, expected; public. None: it cannot be told (many local steps)
    moved: float  # norm of the noisy mean
    extra: dict[str, float] = field(default_factory=dict)


class RoundResult(NamedTuple):
    """What a round leaves behind."""

    state: TrainState
    metrics: RoundMetrics


@dataclass(frozen=True)
class Release:
    """What a round let out: the mean to step along, and the rule's next state."""

    mean: np.ndarray
    bound: Bound | None
    noise: float | np.ndarray | None  # std of the noise in the mean; None: it cannot be told
    rule: State


class Round(ABC):
    """Runs one round after another on an engine, under a ledger."""

    def __init__(self, context: Context) -> None:
        self.terms, self.rule, self.engine = context.terms, context.rule, context.engine
        self.work, self.ledger, self.draws = context.work, context.ledger, context.draws
        self.plan, self.scheme = self.terms.plan, self.terms.scheme
        self._released: list[events.Event] = []
        plan = self.plan
        self.averaging = Averaging(plan.average, plan.rounds)
        lr, momentum = self.scheme.server_lr, plan.server_momentum
        self.optimizer = ServerOptimizer(plan.server_optimizer, lr, momentum, plan.steps)

    def start(self, theta: np.ndarray) -> TrainState:
        """The state before round 1."""
        kept = {**self.optimizer.init(theta.size), **self.averaging.init(theta.size)}
        return TrainState(0, theta, kept, self.rule.init())

    def step(
        self, t: int, state: TrainState, mean: np.ndarray, bound: float | None = None
    ) -> tuple[np.ndarray, Arrays]:
        """The server's step of round t along a released mean of contributions within `bound`."""
        part = factor(self.plan.lr_schedule, t, self.plan.rounds)
        theta, stepped = self.optimizer.step(state.theta, mean, state.optimizer, bound, part)
        kept = self.averaging.add(t, self.optimizer.direction(mean, bound), theta, state.optimizer)
        return self._left(t, theta, kept), {**stepped, **kept}

    def _left(self, t: int, theta: np.ndarray, kept: Arrays) -> np.ndarray:
        """The model after round t."""
        return self.averaging.model(theta, kept) if t == self.plan.rounds else theta

    @abstractmethod
    def run(self, state: TrainState) -> RoundResult:
        """One round; raises `BudgetRefused` before data is touched if the ledger refuses it."""

    def _grant(self, t: int) -> None:
        """On disk before any data is touched. A seeded round that was cut short runs again under the grant that stands."""
        self._released = []
        event = self.terms.round_event(t)
        if self.plan.secure or self.ledger.resume(t, secure=False, event=event) is None:
            self.ledger.request(event, t)

    def pass_over(self, state: TrainState) -> TrainState:
        """Skip rounds that were granted but are not in `state`, because a crash or an abort cut them short.

        A seeded run repeats such a round to the bit. Secure noise would be new, and the first release may have been
        seen. So the round is lost, and what it was granted stays spent.
        """
        while self.plan.secure and self.ledger.granted(state.round + 1) is not None:
            state = self._lose(state)
            self.ledger.forfeit(state.round)
            state = replace(state, theta=self._left(state.round, state.theta, state.optimizer))
        return state

    def _lose(self, state: TrainState) -> TrainState:
        return replace(state, round=state.round + 1)

    def share(self, state: TrainState) -> float:
        """The part of the budget that is spent, 0 to 1."""
        return self.ledger.filter.share

    def close(self, state: TrainState) -> Terms:
        """The terms at the end; a method whose paper's epsilon follows from the run fills it in."""
        return self.terms


class ScheduledRound(Round):
    """A round whose event was settled before the first one."""

    def run(self, state: TrainState) -> RoundResult:
        t = state.round + 1
        self._grant(t)
        cohort = self.draws.cohort(t)
        self.engine.theta[:] = state.theta
        released = self.release(t, cohort, state.rule)
        theta, optimizer = self.step(t, state, released.mean, self.step_bound(released))
        self._check_released(t)
        return RoundResult(TrainState(t, theta, optimizer, released.rule), self._metrics(t, cohort, released))

    def _lose(self, state: TrainState) -> TrainState:
        """A schedule is by rounds, lost ones included."""
        return replace(super()._lose(state), rule=self._skip(state.round + 1, state.rule))

    def _skip(self, t: int, rule_state: State) -> State:
        """The rule's state after a round of which nothing was released: only a schedule moves on."""
        return skipped(self.rule, rule_state, t, self.scheme.round_epochs)

    @abstractmethod
    def release(self, t: int, cohort: np.ndarray, rule_state: State) -> Release:
        """What this scheme's clients compute, and how it leaves them."""

    def step_bound(self, released: Release) -> float | None:
        """The bound of the contributions whose mean was released."""
        return None if released.bound is None else released.bound.size

    # ---- what the rule may do ----------------------------------------------------------------------------------------------

    def _queries(self, rule_state: State) -> Queries:
        """What the rule asks; in a certified run, only what a mechanism can answer."""
        queries = self.rule.query(rule_state)
        certified.check_queries(self.terms, queries)
        return queries

    def _bound(self, rule_state: State, answer: Answer | None) -> Bound:
        """The rule's bound; in a certified run, only one whose clipping and noise are proven to match."""
        bound = self.rule.bound(rule_state, answer)
        certified.check_bound(self.terms, bound)
        return bound

    def _check_released(self, t: int) -> None:
        if self.terms.proven:
            certified.check_released(self.plan.mechanism, self._released, self.terms.multiplier_of(t), f"round {t}")

    # ---- public numbers ----------------------------------------------------------------------------------------------------

    def _metrics(self, t: int, cohort: np.ndarray, released: Release) -> RoundMetrics:
        moved, std = length(released.mean), released.noise
        noise = None if std is None else length(np.broadcast_to(std, (released.mean.size,)))
        snr = None if noise is None else signal_to_noise(moved, noise)
        return RoundMetrics(
            cohort=len(cohort) if self.scheme.cohort_visible else None,
            bound=None if released.bound is None else released.bound.size,
            multiplier=self._multiplier(t, released.bound),
            noise=noise,
            moved=moved,
            extra={} if snr is None else {"snr": snr},
        )

    def _multiplier(self, t: int, bound: Bound | None) -> float:
        """That of the round; where noise does not follow the bound, as some papers print it, what it comes to under this one."""
        z = self.terms.multiplier_of(t)
        if self.plan.method_spec.sigma_in(self.plan, z) is None or bound is None:
            return z
        return float(np.mean(bound.std(z))) / bound.size


def signal_to_noise(mean: float, noise: float) -> float | None:
    """AdaCT's Eq. 7, from released values alone: the length of the signal in the noisy mean over that of its noise.

    The paper divides the raw norm of one clipped update by sigma C, the deviation of a single coordinate. Here the signal is what the
    released mean is longer than its noise, and the noise has its full length: sqrt(d) times the deviation of a coordinate of the mean.

    >>> signal_to_noise(5.0, 4.0), signal_to_noise(3.0, 4.0), signal_to_noise(1.0, 0.0)
    (0.75, 0.0, None)
    """
    return math.sqrt(max(mean**2 - noise**2, 0.0)) / noise if noise > 0 else None


def length(vector: np.ndarray) -> float:
    """Without BLAS, whose threads would go on spinning beside the workers."""
    return float(np.sqrt(np.square(vector).sum()))
