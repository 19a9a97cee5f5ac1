"""Example unit, local: each client runs DP-SGD for itself (Abadi et al. 2016) and trusts nobody with its gradients.

Every step draws a Poisson batch of the client's own records, clips each gradient, adds the full noise and moves on; every
step is charged. What the client sends is made of released values only, so it holds towards every observer, and the client
runs the rule of the bound by itself, from the state that the server sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sordino.clients.descent import Descent
from sordino.clients.site import Site
from sordino.gradients.per_example import PerExample
from sordino.privacy import mechanisms
from sordino.privacy.randomness import source, stream
from sordino.privacy.release import Private, Released
from sordino.rules.base import RoundOutput, Rule, State
from sordino.rules.query import Answer, Query, split
from sordino.schemes.pooled import joint, record_rate
from sordino.schemes.request import Request
from sordino.schemes.terms import local_steps


class LocalSteps:
    """The work of clients that run DP-SGD each for itself."""

    def __init__(self, site: Site, theta: np.ndarray, rule: Rule) -> None:
        self.site, self.plan, self.theta, self.rule = site, site.plan, theta, rule
        self.per_example = PerExample(site.flat, site.losses)
        self.descent = Descent(self.plan.optimizer, self.plan.lr, self.plan.momentum)

    def items(self, round: int, cohort: np.ndarray) -> list[int]:
        return [int(k) for k in cohort]

    def weight(self, item: int) -> int:
        return self.site.federation.size(item)

    def give(self, request: Request, item: int, out: np.ndarray) -> State:
        """Run the round's steps; put the released move into `out` and return the released state of the rule."""
        flat, state = self.site.flat, dict(request.state)
        flat.load(self.theta)
        self.site.seed_layers(request.round, item)
        move = self.descent.start(flat.size, flat.theta.device)
        for step in range(local_steps(self.plan, self.site.federation.size(item))):
            gradient, state = self._step(request, item, step, state)
            flat.theta.sub_(move(torch.from_numpy(gradient.astype(np.float32)).to(flat.theta.device)))
        out += request.grid.round(flat.theta.cpu().numpy().astype(np.float64) - self.theta)
        return state

    def shares(self, items: Sequence[int]) -> int:
        return len(items)

    def ask(self, request: Request, item: int) -> np.ndarray:
        raise AssertionError("local clients ask themselves")

    def _step(self, request: Request, k: int, step: int, state: State) -> tuple[np.ndarray, State]:
        """One released gradient, and the rule's next state."""
        x, y = self.site.client(k)
        rate = record_rate(self.plan.batch_size, len(y), self.plan.sampling)
        units = rate * len(y)
        key = f"step-{step}"
        coins = stream(self.plan.seed, request.round, k, f"records-{key}").random(len(y))
        drawn = torch.from_numpy(np.flatnonzero(coins < rate)).to(x.device)
        x, y = x.index_select(0, drawn), y.index_select(0, drawn)
        noise = source(self.plan.seed, request.round, k, f"noise-{key}", self.plan.secure)
        assert request.multiplier is not None

        pre_clip, with_sum = self.rule.query(state)
        z_sum, (std_pre, std_with) = split(request.multiplier, pre_clip, with_sum)
        asked = None
        if pre_clip is not None:
            norms = joint(self.per_example.norms(x, y))
            asked = self._answer(pre_clip, norms, self.rule.bound(state, None).size, std_pre, units, noise)
        bound = self.rule.bound(state, asked)
        total, norms = self.per_example.clipped_sum(x, y, bound)
        grid = mechanisms.FixedPoint.for_bound(bound, max(1, len(y)))
        raw = mechanisms.Sum(grid.encode(total), grid)
        noisy, _ = mechanisms.gaussian(Private(raw, bound=bound), bound, z_sum, noise)
        mean = bound.decode(noisy.value / units)
        beside_answer = None
        if with_sum is not None:
            beside_answer = self._answer(with_sum, joint(norms), bound.size, std_with, units, noise)
        seen = RoundOutput(request.round, bound, beside_answer, mean, bound.std(z_sum) / units, asked)
        return mean, self.rule.observe(state, seen)

    @staticmethod
    def _answer(query: Query, norms: np.ndarray, size: float, std: float | None, units: float, noise: Any) -> Answer:
        raw = Private(query.encode(norms, size))
        if std is None:
            from sordino.privacy.release import disclose

            told: Released = disclose(raw, "exact norms of a batch")[0]
        else:
            told, _ = mechanisms.release_query(raw, query.norm, std, noise)
        return Answer(told.value, units, std or 0.0)
