"""Client unit: each client trains, and its whole update is one contribution.

    update_k = clip(weight_k * (theta_k - theta), bound) [+ its share of the noise]

The weight is 1, or min(n_k / cap, 1) with a public cap, and is applied before clipping so that the bound holds for what is
sent. Where the rule asks for this round's norms first, updates wait here between the two phases, up to `KEEP` bytes; beyond
that they are trained again, to the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from sordino.clients import descent as local
from sordino.clients.site import Site
from sordino.privacy.bounds import Bound
from sordino.privacy.mechanisms import noise_share
from sordino.privacy.query_noise import query_share
from sordino.privacy.randomness import source, stream
from sordino.schemes.request import Request

KEEP = 256 << 20


class ClientUpdate:
    """The work of clients whose whole update is protected (or, without a bound, of plain FedAvg)."""

    def __init__(self, site: Site, theta: np.ndarray) -> None:
        self.site, self.plan, self.theta = site, site.plan, theta
        self.descent = local.Descent(self.plan.optimizer, self.plan.lr, self.plan.momentum)
        self._waiting: dict[tuple[int, int], np.ndarray] = {}  # by round and client
        self._room = KEEP // (4 * site.flat.size)

    def items(self, round: int, cohort: np.ndarray) -> list[int]:
        return [int(k) for k in cohort]

    def weight(self, item: int) -> int:
        return self.site.federation.size(item)

    def shares(self, items: Sequence[int]) -> int:
        return len(items)

    def ask(self, request: Request, item: int) -> np.ndarray:
        update = self.update(request.round, item)
        self._waiting = {key: kept for key, kept in self._waiting.items() if key[0] == request.round}
        if len(self._waiting) < self._room:
            self._waiting[request.round, item] = update
        assert request.query is not None and request.bound is not None
        return self._answer(request, item, request.bound, update)

    def give(self, request: Request, item: int, out: np.ndarray) -> np.ndarray | None:
        update = self._waiting.pop((request.round, item), None)
        if update is None:
            update = self.update(request.round, item)
        bound = request.bound
        if bound is None:
            out += request.grid.encode(np.nan_to_num(update.astype(np.float64), posinf=0, neginf=0))
            return None
        out += request.grid.encode(bound.clip(update))
        if request.multiplier is not None:
            noise = source(self.plan.seed, request.round, item, "noise", self.plan.secure)
            out += request.grid.round(noise_share(bound, request.multiplier, request.survivors, noise, out.size))
        return None if request.query is None else self._answer(request, item, bound, update)

    def update(self, round: int, item: int) -> np.ndarray:
        """theta_k - theta, weighted."""
        flat = self.site.flat
        x, y = self.site.client(item)
        flat.load(self.theta)
        self.site.seed_layers(round, item)
        batches = stream(self.plan.seed, round, item, "batches")
        epochs, batch = self.plan.local_epochs, self.plan.batch_size
        local.train(flat, self.site.forward, x, y, self.site.loss, self.descent, epochs, batch, batches)
        flat.guard()
        with torch.no_grad():
            moved = flat.theta.cpu().numpy() - self.theta
        return moved * np.float32(self.share(len(y)))

    def share(self, examples: int) -> float:
        if self.plan.weights == "uniform":
            return 1.0
        cap = self.plan.weight_cap
        return float(examples) if cap is None else min(examples / cap, 1.0)

    def _answer(self, request: Request, item: int, bound: Bound, update: np.ndarray) -> np.ndarray:
        assert request.query is not None
        wide = update.astype(np.float64)
        norm = np.abs(wide).sum() if bound.norm_kind == "l1" else np.sqrt(np.square(wide).sum())
        answer = request.query.encode(np.array([norm]), bound.size)
        if request.query_std is None:
            return answer
        noise = source(self.plan.seed, request.round, item, f"query-{request.phase}", self.plan.secure)
        return answer + query_share(request.query_std, request.survivors, noise, answer.size)
