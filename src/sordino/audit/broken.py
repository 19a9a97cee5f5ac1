"""Rounds, clients and bounds that get one thing wrong. Each derives from the real one and overrides as little as it can."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sordino.audit.script import TENSORS
from sordino.federation.sampling import Draws
from sordino.privacy import events, mechanisms
from sordino.privacy.bounds import L1, Bound, Flat, Grouped
from sordino.privacy.mechanisms import Sum
from sordino.privacy.randomness import SERVER, Source, source
from sordino.privacy.release import Private, Released
from sordino.rules.base import Queries, RoundOutput, Rule, State
from sordino.rules.query import Answer, BoundedValue, CentredBit, Query
from sordino.schemes.aggregate import Aggregate
from sordino.schemes.client import ClientUpdate
from sordino.schemes.clipped import ClippedRound, Mechanism
from sordino.schemes.fed_dpa import FedDpaUpdate
from sordino.schemes.request import Reply, Request
from sordino.schemes.round import Context
from sordino.schemes.turns import BandedRound

# ---- rounds ----------------------------------------------------------------------------------------------------------


class Unchecked(ClippedRound):
    """Without the library's own checks of bounds, queries and releases."""

    def _bound(self, rule_state: State, answer: Answer | None) -> Bound:
        return self.rule.bound(rule_state, answer)

    def _queries(self, rule_state: State) -> Queries:
        return self.rule.query(rule_state)

    def _check_released(self, t: int) -> None:
        pass


def weaker(factor: float) -> type[ClippedRound]:
    """Less noise than the event says."""

    class Weaker(ClippedRound):
        def _open(
            self,
            total: Private[Sum] | Released[Sum],
            bound: Bound,
            z: float,
            t: int,
            purpose: str,
            mechanism: Mechanism,
        ) -> np.ndarray:
            noisy = super()._open(total, bound, factor * z, t, purpose, mechanism)
            self._released[-1] = events.gaussian(z)
            return noisy

    return Weaker


class Bare(ClippedRound):
    """Answers leave without noise."""

    def _answer(self, request: Request, aggregate: Aggregate, z: float, cohort: int) -> Answer:
        noised = super()._answer(request, aggregate, z, cohort)
        assert aggregate.answer is not None
        exact, _ = mechanisms.without_noise(aggregate.answer, "forgotten")
        return Answer(exact.value, noised.units, noised.std)


class SumOnly(ClippedRound):
    """The sum gets the noise of the whole round, as if the histogram had cost nothing."""

    def _sum_multiplier(self, z: float, taken: float) -> float:
        return z


class SameNoise(ClippedRound):
    """The same noise every round."""

    def _noise_source(self, t: int, purpose: str) -> Source:
        return super()._noise_source(0, purpose)


class RestartedNoise(ClippedRound):
    """One generator for all rounds of a process, which begins anew when the run is resumed."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._generator = source(self.plan.seed, 0, SERVER, "noise", False)

    def _noise_source(self, t: int, purpose: str) -> Source:
        return self._generator


class EveryoneDraws(ClippedRound):
    """All clients take part, whatever the coins say."""

    def __init__(self, context: Context) -> None:
        super().__init__(dataclasses.replace(context, draws=_All(context.terms.plan)))


class OutOfTurn(BandedRound):
    """Clients take part in every round, though their turn is one of b."""

    def __init__(self, context: Context) -> None:
        super().__init__(dataclasses.replace(context, draws=_All(context.terms.plan)))


class _All(Draws):
    def cohort(self, t: int) -> np.ndarray:
        return np.arange(self.plan.clients)


# ---- clients ---------------------------------------------------------------------------------------------------------


class SameForAll(ClientUpdate):
    """Every client draws the same noise."""

    def noise_source(self, t: int, item: int, purpose: str) -> Source:
        return super().noise_source(t, 0, purpose)


class TooManySurvivors(ClientUpdate):
    """Shares are cut for four times as many clients, and said to be whole."""

    def contribute(self, request: Request, item: int, out: np.ndarray) -> Reply:
        reply = super().contribute(dataclasses.replace(request, survivors=4 * request.survivors), item, out)
        return dataclasses.replace(reply, noise=4 * reply.noise)


class ForgottenShare(ClientUpdate):
    """Adds no noise, and says that it did."""

    def contribute(self, request: Request, item: int, out: np.ndarray) -> Reply:
        assert request.multiplier is not None
        reply = super().contribute(dataclasses.replace(request, multiplier=request.multiplier / 8), item, out)
        return dataclasses.replace(reply, noise=64 * reply.noise)


class UploadedPersonal(FedDpaUpdate):
    """Personal coordinates are sent too, and left out of the norm that clips."""

    def contribute(self, request: Request, item: int, out: np.ndarray) -> Reply:
        reply = super().contribute(request, item, out)
        update = self.update(request.round, item)
        kept = self.site.personal.load(item, request.round + 1)
        if kept is not None and np.any(update) and request.bound is not None:
            factor = min(1.0, request.bound.size / float(np.linalg.norm(update.astype(np.float64))))
            out += request.grid.encode(np.where(update == 0, kept - self.theta, 0.0) * factor)
        return reply


class ScaledUp(FedDpaUpdate):
    """What is shared is clipped, and then scaled up for the coordinates that are left out."""

    def contribute(self, request: Request, item: int, out: np.ndarray) -> Reply:
        reply = super().contribute(request, item, out)
        update = self.update(request.round, item)
        if np.any(update) and request.bound is not None:
            more = update.size / np.count_nonzero(update) - 1
            out += request.grid.encode(request.bound.clip(update) * more)
        return reply


class NoiseWhereShared(FedDpaUpdate):
    """Noise lies on the coordinates that are shared only, so that the mask shows."""

    def contribute(self, request: Request, item: int, out: np.ndarray) -> Reply:
        before = out.copy()
        reply = super().contribute(request, item, out)
        personal = self.update(request.round, item) == 0
        if not personal.all():
            out[personal] = before[personal]
        return reply


class _Answers(ClientUpdate):
    """Answers by another query than the one that was asked, not clipped to its norm."""

    def said(self, query: Query, norm: float, bound: float) -> np.ndarray:
        raise AssertionError("a broken answer says what it is")

    def _answer(self, request: Request, item: int, bound: Bound, update: np.ndarray) -> Reply:
        reply = super()._answer(request, item, bound, update)
        assert request.query is not None and request.query_grid is not None
        if not np.any(update) or reply.answer is None:  # a client that gives nothing
            return reply
        norm = float(np.linalg.norm(update.astype(np.float64)))
        wrong = request.query_grid.encode(self.said(request.query, norm, bound.size))
        right = request.query_grid.encode(request.query.encode(np.array([norm]), bound.size))
        return dataclasses.replace(reply, answer=reply.answer + wrong - right)


class WholeBits(_Answers):
    """Bits of 0 and 1 in the place of centred ones."""

    def said(self, query: Query, norm: float, bound: float) -> np.ndarray:
        assert isinstance(query, CentredBit)
        return np.array([float(norm <= bound)])


class Uncapped(_Answers):
    """A bounded value without its cap."""

    def said(self, query: Query, norm: float, bound: float) -> np.ndarray:
        assert isinstance(query, BoundedValue)
        return np.array([norm / (query.cap * bound)])


class UnclippedAnswers(_Answers):
    """Forty times the answer that was asked for, which a clip to the declared norm would have caught."""

    def said(self, query: Query, norm: float, bound: float) -> np.ndarray:
        return 40 * query.encode(np.array([norm]), bound)


# ---- bounds ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rebound:
    """A rule whose bounds are changed."""

    rule: Rule
    change: Callable[[Bound], Bound]

    def init(self) -> State:
        return self.rule.init()

    def query(self, state: State) -> Queries:
        return self.rule.query(state)

    def bound(self, state: State, answer: Answer | None) -> Bound:
        if self.change == LateBound.of:
            following = self.rule.bound({**state, "round": state["round"] + 1}, answer)
            return LateBound(self.rule.bound(state, answer).size, following.size)
        return self.change(self.rule.bound(state, answer))

    def observe(self, state: State, seen: RoundOutput) -> State:
        return self.rule.observe(state, seen)


@dataclass(frozen=True)
class LateBound(Flat):
    """Clips to one bound and takes noise for the next."""

    following: float = 1.0

    @staticmethod
    def of(bound: Bound) -> Bound:
        """Stands for the bound of the next round, which `Rebound` looks up."""
        return bound

    def std(self, multiplier: float) -> float:
        return multiplier * self.following


@dataclass(frozen=True)
class PerTensor(Flat):
    """Clips every tensor by itself."""

    def clip(self, v: np.ndarray) -> np.ndarray:
        return np.concatenate([super(PerTensor, self).clip(part) for part in np.split(v, TENSORS)])


@dataclass(frozen=True)
class Unclipped(Flat):
    """Clips nothing."""

    def clip(self, v: np.ndarray) -> np.ndarray:
        return np.asarray(v, float)


@dataclass(frozen=True)
class UpsideDown(Flat):
    """Stretches what is too long."""

    def factors(self, norms: np.ndarray) -> np.ndarray:
        return np.maximum(1.0, np.asarray(norms, float) / self.bound)


@dataclass(frozen=True)
class OnlyGroups(Grouped):
    """Noise of each group for its own bound, as if the groups were different units."""

    def std(self, multiplier: float) -> np.ndarray:
        return np.repeat(multiplier * np.array(self.bounds), self.sizes)


@dataclass(frozen=True)
class ViaL2(L1):
    """Clips the L2 norm where Laplace noise needs the L1 norm."""

    def clip(self, v: np.ndarray) -> np.ndarray:
        return Flat(self.bound).clip(v)
