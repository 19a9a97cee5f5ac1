"""Example unit, pooled: one clipped sum of per-example gradients per round, from every client.

Each record takes part by its own secret coin, of the rate that is charged: `Pooled.rate`. The records drawn, in client
order, are cut into chunks, whatever the number of workers, so that the sum has the same bits everywhere. Under secure
aggregation each client also adds its share of the noise: those are items of their own (`Share`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino.errors import BadInput
from sordino.federation.sizes import PublicSizes
from sordino.gradients import WINDOW
from sordino.privacy import events, mechanisms
from sordino.privacy.bounds import Bound, Coordinates
from sordino.privacy.randomness import source
from sordino.privacy.vocabulary import Noise, Sampling, noise_for
from sordino.rules.base import Rule
from sordino.rules.query import answer_codes, answer_length, is_raw
from sordino.schemes import expected
from sordino.schemes.base import Exposure, Scheme
from sordino.schemes.client import add_answer_share
from sordino.schemes.clipped import ClippedRound
from sordino.schemes.request import Reply, Request, Work
from sordino.schemes.round import Context, Round
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from sordino.clients.site import Site
    from sordino.plan import Plan


class Pooled(Scheme):
    """Records of all clients in one sum."""

    name = "pooled"
    record_canaries = True
    gradient_sign = -1
    round_class: type[ClippedRound] = ClippedRound

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.noise = noise_for(plan.observer)

    def check(self) -> None:
        super().check()
        plan = self.plan
        if plan.cohort_size != plan.clients:
            raise BadInput(
                f"with the example unit pooled every client takes part in every round, so cohort {plan.cohort_size} of "
                f"{plan.clients} does not fit; leave cohort out, or use observer server."
            )
        refuse_fixed(plan)
        if plan.optimizer != "sgd":
            raise BadInput(
                f"pooled clients take no local steps, so optimizer {plan.optimizer} has no use: set server_optimizer."
            )

    # ---- what one record is exposed to -------------------------------------------------------------------------------------

    def rate(self, sizes: PublicSizes) -> float:
        """The probability with which each record takes part in a round: it draws, and it is charged."""
        return record_rate(self.plan, sizes.examples)

    def exposure(self, multipliers: Sequence[float], sizes: PublicSizes) -> Exposure:
        q = self.rate(sizes)
        noise = events.laplace if self.plan.mechanism == "laplace" else events.gaussian
        return noise if q == 1 else lambda z: events.poisson(q, noise(z))

    def proof_sampling(self, sizes: PublicSizes) -> tuple[Sampling, float | None]:
        q = self.rate(sizes)
        return (Sampling.NONE, None) if q == 1 else (Sampling.POISSON, q)

    def claim_inputs(self, sizes: PublicSizes) -> tuple[float | None, int | None]:
        return self.rate(sizes), self.plan.rounds

    @property
    def messages_visible(self) -> bool:
        """A server would see sums over a client's records, and attacks on single updates have nothing to look at."""
        return False

    # ---- public numbers ----------------------------------------------------------------------------------------------------

    def units(self, sizes: PublicSizes) -> float:
        n = sizes.examples
        return n if self.plan.sampling == Sampling.NONE else min(self.plan.batch_size, n)

    def denominator(self, sizes: PublicSizes, cohort: np.ndarray) -> float:
        return self.units(sizes)

    @property
    def survivors(self) -> int:
        if self.noise != Noise.SHARES:
            return 1
        return self.plan.survivors or self.plan.clients

    def capacity(self, sizes: PublicSizes) -> int:
        return max(2, sizes.examples)

    def units_held(self, examples: int) -> int:
        return examples

    @property
    def server_lr(self) -> float:
        """Clients send gradients: the plan's learning rate is applied by the server."""
        return self.plan.server_lr * self.plan.lr

    # ---- what clients do, and how a round steps ----------------------------------------------------------------------------

    def work(self, site: Site, theta: np.ndarray, rule: Rule, terms: Terms) -> Work[Any]:
        return PooledGradients(site, theta, terms)

    def rounds(self, context: Context) -> Round:
        return self.round_class(context)

    def expected(self, terms: Terms, rule: Rule, asked: Request, taken: float) -> Request:
        return expected.clipped(terms, rule, asked, taken)


def record_rate(plan: Plan, examples: int) -> float:
    """The probability with which each of so many records takes part in a batch."""
    return 1.0 if plan.sampling == Sampling.NONE else min(1.0, plan.batch_size / examples)


def refuse_fixed(plan: Plan) -> None:
    """Refuse sampling and weights that have no proof for single records."""
    if plan.sampling == Sampling.FIXED:
        raise BadInput("sampling fixed is not offered for the example unit; use poisson (or none, for full batches).")
    if plan.weights == "size":
        raise BadInput("weights size is for the client unit; in the example unit every record already counts once.")


@dataclass(frozen=True)
class Chunk:
    """Some records of the round, by their place in the pooled data."""

    rows: np.ndarray
    number: int  # of the chunk in its round


@dataclass(frozen=True)
class Share:
    """The noise that client k adds to its own part of the sum."""

    client: int


class PooledGradients:
    """The work of clients that send clipped gradients of their drawn records."""

    def __init__(self, site: Site, theta: np.ndarray, terms: Terms) -> None:
        from sordino.gradients.per_example import PerExample

        self.site, self.plan, self.theta, self.terms = site, terms.plan, theta, terms
        if site.federation.places is None:
            raise BadInput(
                "the example unit pooled draws records by their number, and how many a client holds is not declared; "
                "give Federation.on_demand a size (a number, or a function of the client)."
            )
        self.per_example = PerExample(site.flat, site.losses, slots=slots_for(self.plan.batch_size))
        self.per_example.prepare(*site.blank())  # before workers are forked
        scheme = terms.scheme
        assert isinstance(scheme, Pooled)
        self.rate = scheme.rate(terms.public)
        self.chunk: int = self.per_example.chunk
        # Where that costs no speed no chunk mixes clients: on machines of their own they then give the same bits. What a
        # chunk adds up depends on its size in the last bits, so elsewhere it takes an option (`isolate_clients`).
        self.isolate_clients = 2 * self.plan.batch_size >= self.chunk * self.plan.clients
        if site.federation.x is None:
            self.isolate_clients = True  # each client is made once for each of its chunks
        self._loaded = -1

    def items(self, t: int, cohort: np.ndarray) -> list[Chunk | Share]:
        offsets = self.site.federation.places
        assert offsets is not None
        drawn = [int(offsets[k]) + self.draw(t, int(k)) for k in cohort]
        heaps = drawn if self.isolate_clients or not drawn else [np.concatenate(drawn)]
        pieces = [piece for rows in heaps if len(rows) for piece in cut(rows, self.chunk)]
        chunks = [Chunk(rows, number) for number, rows in enumerate(pieces)]
        return [*chunks, *(Share(int(k)) for k in cohort)]

    def draw(self, t: int, k: int) -> np.ndarray:
        """The records of client k that take part in this round, by independent coins."""
        return self.site.draws.records(t, k, self.site.federation.size(k), self.rate)

    def weight(self, item: Chunk | Share) -> int:
        return len(item.rows) if isinstance(item, Chunk) else 1

    def assumptions(self) -> tuple[str, ...]:
        return self.per_example.assumptions()

    def query(self, request: Request, item: Chunk | Share) -> Reply:
        query, bound = request.query, request.bound
        assert query is not None and bound is not None
        if isinstance(item, Share):
            return self._answer_share(request, item.client)
        self._load(request)
        seed = self._seed(request, item)
        return self._answer(request, joint(self.per_example.norms(*self.site.rows(item.rows), seed=seed)))

    def contribute(self, request: Request, item: Chunk | Share, out: np.ndarray) -> Reply:
        bound = request.bound
        assert bound is not None
        if isinstance(item, Share):
            said, noise = self._answer_share(request, item.client), 0.0
            if request.multiplier is not None:
                drawn = source(self.plan.seed, request.round, item.client, "noise", self.plan.secure)
                noise = mechanisms.add_share(out, request.grid, bound, request.multiplier, request.survivors, drawn)
            return Reply(said.answer, noise, said.answer_noise)
        self._load(request)
        total, norms = self._clipped(bound, item.rows, self._seed(request, item))
        out -= request.grid.encode(total)  # the way down
        return Reply() if request.query is None else self._answer(request, norms)

    def _seed(self, request: Request, item: Chunk) -> int | None:
        """The seed of layers that draw at random."""
        return self.site.layer_seed(request.round, item.number) if self.per_example.draws else None

    def _clipped(self, bound: Bound, rows: np.ndarray, seed: int | None) -> tuple[np.ndarray, np.ndarray]:
        # What is sent is the way down, -g. Clipping is odd, except for a centre: that of g is minus that of -g.
        turned = Coordinates(-bound.mean, bound.scale) if isinstance(bound, Coordinates) else bound
        total, norms = self.per_example.clipped_sum(*self.site.rows(rows), turned, seed=seed)
        return total, joint(norms)

    def _answer(self, request: Request, norms: np.ndarray) -> Reply:
        query, bound = request.query, request.bound
        assert query is not None and bound is not None
        if is_raw(query):
            return Reply(query.encode(norms, bound.size))
        assert request.query_grid is not None
        return Reply(answer_codes(query, norms, bound.size, request.query_grid))

    def _answer_share(self, request: Request, client: int) -> Reply:
        if request.query is None or request.query_multiplier is None:
            return Reply()
        codes = np.zeros(answer_length(request.query), np.int64)
        return Reply(codes, answer_noise=add_answer_share(codes, request, self.plan, client))

    def _load(self, request: Request) -> None:
        # One copy of the parameters per round is enough: nothing here changes them.
        if self._loaded != request.round:
            self.site.flat.load(self.theta)
            self._loaded = request.round


def cut(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Pieces of a fixed number of rows; the last is filled up with blanks where it is run."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def slots_for(batch: int) -> int:
    """How many records run at a time: an even share of a large draw, so that few slots stay free.

    Two pieces at least, for two workers.
    """
    most = batch + 2 * math.sqrt(batch)  # a Poisson draw is smaller 98 times of 100
    return max(32, math.ceil(most / max(2, math.ceil(most / WINDOW))))


def joint(norms: np.ndarray) -> np.ndarray:
    """The norm of each whole gradient, from its own or from those of its groups."""
    wide = np.asarray(norms, np.float64)
    return wide if wide.ndim == 1 else np.sqrt(np.square(wide).sum(axis=1))
