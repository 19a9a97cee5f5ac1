"""The life of a round, on one screen.

    grant    the ledger grants the round's event, on disk, before any data is touched
    cohort   who takes part, drawn without looking at data
    answer   what the rule asks of this round's units, released
    bound    from the rule's state and that answer
    total    each unit's contribution, clipped to `bound` where the data is
    noisy    the one door out; the bound that clipped is the bound that noises
    model    a server step with the noisy mean, divided by a public number
    state    what the rule makes of what was released

Everything after `grant` is a pure function of (plan, round, state, model), unless the noise comes from a secure source.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sordino.engines.base import Aggregate, Engine
from sordino.errors import NotPrivate
from sordino.federation import sampling
from sordino.federation.server import Arrays, ServerOptimizer
from sordino.privacy import events, mechanisms
from sordino.privacy.bounds import Bound
from sordino.privacy.ledger import Ledger
from sordino.privacy.query_noise import open_answer
from sordino.privacy.randomness import SERVER, source
from sordino.privacy.release import Private, Released, disclose, require_released
from sordino.privacy.vocabulary import Noise
from sordino.rules.base import RoundOutput, Rule, State, merge
from sordino.rules.query import Answer, Query, is_raw, split
from sordino.schemes.request import CONTRIBUTE, QUERY, Request, Work
from sordino.schemes.terms import Terms


@dataclass(frozen=True)
class TrainState:
    """All that a round changes: a checkpoint holds exactly this."""

    round: int
    theta: np.ndarray
    optimizer: Arrays
    rule: State
    clients: Arrays = field(default_factory=dict)  # what clients keep between their rounds, where a method has such


@dataclass(frozen=True)
class RoundMetrics:
    """What a round released, for metrics and the progress bar."""

    cohort: int | None  # None where it must not be told
    bound: float | None
    multiplier: float
    noise: float  # norm of the noise in the mean, expected; public
    moved: float  # norm of the noisy mean
    extra: dict[str, Any] = field(default_factory=dict)


class Round:
    """Runs one round after another on an engine, under a ledger."""

    def __init__(self, terms: Terms, rule: Rule, engine: Engine, work: Work, ledger: Ledger) -> None:
        self.terms, self.plan, self.rule, self.engine, self.work, self.ledger = (
            terms,
            terms.plan,
            rule,
            engine,
            work,
            ledger,
        )
        self._released: list[events.Event] = []
        step = self.plan.server_lr * (self.plan.lr if self.plan.pooled else 1.0)
        self.optimizer = ServerOptimizer(self.plan.server_optimizer, step, self.plan.server_momentum)

    def start(self, theta: np.ndarray) -> TrainState:
        return TrainState(0, theta, self.optimizer.init(theta.size), self.rule.init())

    def run(self, model: TrainState) -> tuple[TrainState, RoundMetrics]:
        t = model.round + 1
        self._grant(t)
        cohort = sampling.draw(self.plan, t)
        items = self.work.items(t, cohort)
        self.engine.theta[:] = model.theta
        if not self.plan.private:
            mean, bound, state, noise = self._without_privacy(t, cohort, items, model.rule)
        elif self.plan.local:
            mean, bound, state, noise = self._local(t, cohort, items, model.rule)
        else:
            mean, bound, state, noise = self._clipped(t, cohort, items, model.rule)
        theta, optimizer = self.optimizer.step(model.theta, mean, model.optimizer)
        facts = self._facts(t, cohort, bound, noise, mean)
        self._check_released(t)
        return TrainState(t, theta, optimizer, state), facts

    def pass_over(self, model: TrainState) -> TrainState:
        """Skip rounds that were granted but are not in `model`, because a crash or an abort cut them short.

        A seeded run repeats such a round to the bit. Secure noise would be new on a cohort and records that are a pure
        function of the round: two releases on one draw cost more than the two rounds that a ledger would charge. So the
        round is lost, and what it was granted stays spent.
        """
        while self.plan.secure and self.ledger.granted(model.round + 1) is not None:
            model = self._lose(model)
            self.ledger.forfeit(model.round)
        return model

    def _lose(self, model: TrainState) -> TrainState:
        return replace(model, round=model.round + 1)

    def share(self, model: TrainState) -> float:
        """The part of the budget that is spent, 0 to 1."""
        return self.ledger.filter.share

    def close(self, model: TrainState) -> Terms:
        """The terms at the end; a method whose paper's epsilon follows from the run fills it in."""
        return self.terms

    def _grant(self, t: int) -> None:
        """On disk before any data is touched. A seeded round that was cut short runs again under the grant that stands."""
        self._released = []
        event = self.terms.slot(t)
        if self.plan.secure or self.ledger.resume(t, secure=False, event=event) is None:
            self.ledger.request(event, t)

    def _check_released(self, t: int) -> None:
        """What went through the doors must be what was granted: the round's Gaussians are one of the round's multiplier."""
        if not self.terms.proven or self.plan.local:
            return
        why = [reason for event in self._released for reason in events.reasons(event)]
        if why:
            raise NotPrivate(
                f"round {t} was granted as private but {why[0]}: a mechanism and the plan disagree; report this."
            )
        said = events.joint(*(event.noise_multiplier for event in self._released)).noise_multiplier
        if said < self.terms.multiplier_of(t) * (1 - 1e-9):
            raise NotPrivate(
                f"round {t} released at multiplier {said:.6g} but was granted {self.terms.multiplier_of(t):.6g}: "
                "a mechanism and the plan disagree; report this."
            )

    # ---- the three ways ----------------------------------------------------------------------------------------------------

    def _clipped(self, t: int, cohort: np.ndarray, items: list, state: State) -> tuple:
        """Clipped contributions, with noise on their sum."""
        pre_clip, with_sum = self.rule.query(state)
        z = self.terms.multiplier_of(t)
        z_sum, (std_pre, std_with) = split(z, pre_clip, with_sum)
        answer = (
            None if pre_clip is None else self._ask(t, cohort, items, pre_clip, std_pre, self.rule.bound(state, None))
        )
        bound = self.rule.bound(state, answer)
        local = self.plan.noise != Noise.CENTRAL
        request = Request(
            round=t,
            phase=CONTRIBUTE,
            grid=mechanisms.FixedPoint.for_bound(bound, self._most()),
            bound=bound,
            query=with_sum,
            multiplier=z_sum if local else None,
            query_std=std_with if local else None,
            survivors=self.terms.survivors,
        )
        harvest = self.engine.run(request, items)
        noisy = self._release(harvest, bound, z_sum, t)
        denominator = self.terms.denominator(cohort)
        mean = bound.decode(noisy.value / denominator)
        std = bound.std(z_sum) / denominator * self._surplus(cohort)
        said = None if with_sum is None else self._answer(harvest, with_sum, std_with, CONTRIBUTE, t, cohort)
        return mean, bound, self.rule.observe(state, RoundOutput(t, bound, said, mean, std, answer)), std

    def _local(self, t: int, cohort: np.ndarray, items: list, state: State) -> tuple:
        """Clients that run DP-SGD each for itself: what they send is released already."""
        z = self.terms.multiplier_of(t)
        grid = mechanisms.FixedPoint(2.0**32)
        request = Request(round=t, phase=CONTRIBUTE, grid=grid, bound=None, multiplier=z, state=state, released=True)
        harvest = self.engine.run(request, items)
        total = require_released(harvest.total, "what local clients send").decode()
        states = require_released(harvest.answers, "the state of a local client's rule")
        mean = total / self.terms.denominator(cohort)
        return mean, self.rule.bound(state, None), merge(states) if states else state, 0.0

    def _without_privacy(self, t: int, cohort: np.ndarray, items: list, state: State) -> tuple:
        """FedAvg: the exact mean, through the other door."""
        request = Request(round=t, phase=CONTRIBUTE, grid=mechanisms.FixedPoint(2.0**24), bound=None)
        harvest = self.engine.run(request, items)
        exact, _ = mechanisms.without_noise(_private(harvest.total), self.terms.reasons[0])
        return exact.value / self.terms.denominator(cohort), None, state, 0.0

    # ---- doors -------------------------------------------------------------------------------------------------------------

    def _release(self, harvest: Aggregate, bound: Bound, z: float, t: int) -> Released[np.ndarray]:
        if self.plan.noise != Noise.CENTRAL:
            noisy, event = mechanisms.open_noised(_private(harvest.total), bound, z)
        else:
            noise = source(self.plan.seed, t, SERVER, "noise", self.plan.secure)
            mechanism = mechanisms.laplace if self.plan.mechanism == "laplace" else mechanisms.gaussian
            noisy, event = mechanism(_private(harvest.total), bound, z, noise)
        self._released.append(event)
        return noisy

    def _ask(self, t: int, cohort: np.ndarray, items: list, query: Query, std: float | None, bound: Bound) -> Answer:
        """The first phase: only rules that need this round's norms."""
        local = self.plan.noise != Noise.CENTRAL
        request = Request(
            round=t,
            phase=QUERY,
            grid=mechanisms.FixedPoint.for_bound(bound, self._most()),
            bound=bound,
            query=query,
            query_std=std if local else None,
            survivors=self.terms.survivors,
        )
        return self._answer(self.engine.run(request, items), query, std, QUERY, t, cohort)

    def _answer(
        self, harvest: Aggregate, query: Query, std: float | None, phase: str, t: int, cohort: np.ndarray
    ) -> Answer:
        if is_raw(query) or std is None:
            exact = _private(harvest.answers).map(lambda answers: np.concatenate(answers) if answers else np.zeros(0))
            told, _ = disclose(exact, "exact norms, or exact functions of them, are sent")
            return Answer(told.value, self.terms.units)
        zero = query.encode(np.zeros(0), 1.0)
        total: Private[np.ndarray] = _private(harvest.answers).map(lambda answers: sum(answers, start=zero.copy()))
        if self.plan.noise == Noise.CENTRAL:
            noise = source(self.plan.seed, t, SERVER, f"query-{phase}", self.plan.secure)
            told, event = mechanisms.release_query(total, query.norm, std, noise)
        else:
            told, event = open_answer(total, query.norm, std, harvest.shares, self.terms.survivors)
        self._released.append(event)
        return Answer(told.value, self.terms.units, std * self._surplus(cohort))

    # ---- public numbers ----------------------------------------------------------------------------------------------------

    def _most(self) -> int:
        """The most units whose contributions one sum may hold."""
        return max(2, self.plan.clients if not self.plan.pooled else self.terms.public.examples)

    def _surplus(self, cohort: np.ndarray) -> float:
        """How much larger than needed the noise on the sum is, where clients add it themselves."""
        if self.plan.noise == Noise.CENTRAL:
            return 1.0
        return float(np.sqrt(max(len(cohort), 1) / self.terms.survivors))

    def _facts(self, t: int, cohort: np.ndarray, bound: Bound | None, noise: Any, mean: np.ndarray) -> RoundMetrics:
        # A Poisson cohort's size is secret towards the public: the amplification rests on it.
        visible = self.plan.noise != Noise.CENTRAL or not self.plan.private or self.plan.sampling != "poisson"
        size = mean.size
        norm = _length(np.broadcast_to(noise, (size,)))
        return RoundMetrics(
            cohort=len(cohort) if visible else None,
            bound=None if bound is None else bound.size,
            multiplier=self.terms.multiplier_of(t),
            noise=norm,
            moved=_length(mean),
        )


def _length(vector: np.ndarray) -> float:
    """Without BLAS, whose threads would go on spinning beside the workers."""
    return float(np.sqrt(np.square(vector).sum()))


def _private(value: Private | Released) -> Private:
    """What came from clients that add no noise in full of their own: it must go through a door first."""
    if not isinstance(value, Private):
        raise NotPrivate("a value that clients released themselves was about to be noised again; report this.")
    return value
