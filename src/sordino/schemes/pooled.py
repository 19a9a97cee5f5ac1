"""Example unit, pooled: one clipped sum of per-example gradients per round, from every client.

Each record takes part by its own coin. The records drawn, in client order, are cut into even chunks, whatever
the number of workers, so that the sum has the same bits everywhere. Under secure aggregation each client also adds its share of
the noise: those are items of their own (`Share`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sordino.clients.site import Site
from sordino.errors import BadInput
from sordino.gradients.per_example import PerExample
from sordino.privacy.bounds import Bound, Coordinates
from sordino.privacy.mechanisms import noise_share
from sordino.privacy.query_noise import query_share
from sordino.privacy.randomness import source, stream
from sordino.schemes.request import Request


@dataclass(frozen=True)
class Chunk:
    """Some records of the round, by their place in the pooled data."""

    rows: np.ndarray


@dataclass(frozen=True)
class Share:
    """The noise that client k adds to its own part of the sum."""

    client: int


class PooledGradients:
    """The work of clients that send clipped gradients of their drawn records."""

    def __init__(self, site: Site, theta: np.ndarray) -> None:
        self.site, self.plan, self.theta = site, site.plan, theta
        if site.federation.x is None or site.federation.offsets is None:
            raise BadInput("the example unit pooled needs data that is held, not made on demand; use the client unit.")
        self.per_example = PerExample(site.flat, site.losses)
        self.rate = record_rate(self.plan.batch_size, site.federation.examples, self.plan.sampling)
        self.chunk = int(np.clip(self.plan.batch_size // 2, 32, 128))
        # Where that costs no speed no chunk mixes clients: on machines of their own they then come to the very same bits. What
        # a chunk adds up depends on its size in the last bits, so that elsewhere it takes a setting (`EngineOptions.apart`).
        self.apart = 2 * self.plan.batch_size >= self.chunk * self.plan.clients
        self._loaded = -1

    def items(self, round: int, cohort: np.ndarray) -> list[Chunk | Share]:
        offsets = self.site.federation.offsets
        assert offsets is not None
        drawn = [int(offsets[k]) + self.draw(round, int(k)) for k in cohort]
        heaps = drawn if self.apart or not drawn else [np.concatenate(drawn)]
        pieces = [np.array_split(rows, max(1, len(rows) // self.chunk)) for rows in heaps if len(rows)]
        chunks = [Chunk(piece) for heap in pieces for piece in heap]
        return [*chunks, *(Share(int(k)) for k in cohort)]

    def draw(self, round: int, k: int) -> np.ndarray:
        """The records of client k that take part in this round, by independent coins."""
        coins = stream(self.plan.seed, round, k, "records").random(self.site.federation.size(k))
        return np.flatnonzero(coins < self.rate)

    def weight(self, item: Chunk | Share) -> int:
        return len(item.rows) if isinstance(item, Chunk) else 1

    def shares(self, items: Sequence[Chunk | Share]) -> int:
        return sum(isinstance(item, Share) for item in items)

    def ask(self, request: Request, item: Chunk | Share) -> np.ndarray:
        query, bound = request.query, request.bound
        assert query is not None and bound is not None
        if isinstance(item, Chunk):
            self._load(request)
            norms = self.per_example.norms(*self.site.rows(item.rows))
            return query.encode(joint(norms), bound.size)
        return self._query_noise(request, item.client)

    def give(self, request: Request, item: Chunk | Share, out: np.ndarray) -> np.ndarray | None:
        query, bound = request.query, request.bound
        assert bound is not None
        if isinstance(item, Share):
            if request.multiplier is None:
                return None if query is None else np.zeros_like(query.encode(np.empty(0), bound.size))
            noise = source(self.plan.seed, request.round, item.client, "noise", self.plan.secure)
            out += request.grid.round(noise_share(bound, request.multiplier, request.survivors, noise, out.size))
            return None if query is None else self._query_noise(request, item.client)
        self._load(request)
        total, norms = self._clipped(bound, item.rows)
        out -= request.grid.encode(total)  # the way down
        return None if query is None else query.encode(norms, bound.size)

    def _clipped(self, bound: Bound, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # What is sent is the way down, -g. Clipping is odd, but for a centre: that of g is minus that of -g.
        turned = Coordinates(-bound.mean, bound.scale) if isinstance(bound, Coordinates) else bound
        total, norms = self.per_example.clipped_sum(*self.site.rows(rows), turned)
        return total, joint(norms)

    def _query_noise(self, request: Request, k: int) -> np.ndarray:
        assert request.query is not None and request.bound is not None
        zero = np.zeros_like(request.query.encode(np.empty(0), request.bound.size))
        if request.query_std is None:
            return zero
        noise = source(self.plan.seed, request.round, k, f"query-{request.phase}", self.plan.secure)
        return zero + query_share(request.query_std, request.survivors, noise, zero.size)

    def _load(self, request: Request) -> None:
        # One copy of the parameters per round is enough: nothing here changes them.
        if self._loaded != request.round:
            self.site.flat.load(self.theta)
            self._loaded = request.round


def joint(norms: np.ndarray) -> np.ndarray:
    """The norm of each whole gradient, from its own or from those of its groups."""
    wide = np.asarray(norms, np.float64)
    return wide if wide.ndim == 1 else np.sqrt(np.square(wide).sum(axis=1))


def record_rate(batch: int, examples: int, sampling: str) -> float:
    """The probability with which each record takes part. The number of records is taken to be public."""
    return 1.0 if sampling == "none" else min(1.0, batch / examples)
