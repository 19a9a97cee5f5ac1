"""Canaries of the example unit, local: a client that holds canaries only runs DP-SGD, by the same code as real clients.

It is as large as the client that the proof is about, the one that is charged most, so that its canaries are drawn at
that client's rate for as many steps. If one such client cannot hold them all, there are several. What every step
releases is looked at; nothing of it enters the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from sordino.audit import watching
from sordino.audit.rule_observer import RuleObserver
from sordino.federation import sampling
from sordino.privacy.bounds import Bound
from sordino.rules.base import RoundOutput, Rule, State
from sordino.schemes.local import LocalSteps
from sordino.schemes.request import Request

if TYPE_CHECKING:
    from sordino.audit.inserting import Inserted
    from sordino.clients.site import Site


class CanarySteps(LocalSteps):
    """The clients of canaries; see `LocalSteps` for what they do."""

    def __init__(self, inserted: Inserted, work: LocalSteps, rule: Rule) -> None:
        super().__init__(work.site, work.theta, _Watched(rule, self), inserted.terms)
        self.inserted = inserted
        terms = inserted.terms
        self.size = self.scheme.most_charged(terms.exposed_multipliers, terms.public)
        self.site = _Slots(work.site, self.size)  # type: ignore[assignment]
        self.per_example = _Directions(self)  # type: ignore[assignment]
        self.holder, self.round = 0, 0

    def run(self, request: Request) -> None:
        """The round of each such client whose turn it is: with a certain real one, so no oftener than the busiest."""
        cohort = set(sampling.public_cohort(self.plan, request.round).tolist())
        for holder in range(-(-self.inserted.canaries.count // self.size)):
            if holder % self.plan.clients in cohort:
                self.holder, self.round = holder, request.round
                self.contribute(request, self.plan.clients + holder, np.zeros(self.theta.size, np.int64))

    @property
    def units(self) -> float:
        """What a client of that size divides its sums by."""
        return self.scheme.rate(self.size) * self.size


class _Directions:
    """Gradients of canaries: given directions, clipped by the real bound. They say nothing about their norms."""

    def __init__(self, steps: CanarySteps) -> None:
        self.steps, self.canaries = steps, steps.inserted.canaries

    def norms(self, x: torch.Tensor, y: torch.Tensor, seed: int | None = None) -> np.ndarray:
        return np.zeros(0)

    def clipped_sum(
        self, x: torch.Tensor, y: torch.Tensor, bound: Bound, seed: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        total = np.zeros(self.canaries.dimension)
        for slot in x.tolist():
            canary = self.steps.holder * self.steps.size + slot
            sign = self.steps.inserted.sign(canary) if canary < self.canaries.count else 0
            if sign:
                total += bound.clip(sign * self.canaries.update(canary, bound, self.steps.round))
        return total, np.zeros(0)


class _Watched(RuleObserver):
    """The plan's rule; what each step releases is noted for the audit."""

    def __init__(self, rule: Rule, steps: CanarySteps) -> None:
        super().__init__(rule)
        self.steps = steps

    def note(self, state: State, seen: RoundOutput) -> None:
        steps, inserted = self.steps, self.steps.inserted
        mine = np.arange(inserted.canaries.count) // steps.size == steps.holder
        total = watching.in_sum_space(seen.mean, seen.bound) * steps.units
        inserted.watch.note(seen.round, total, seen.bound, np.asarray(seen.noise) * steps.units, mine)


class _Slots:
    """A site whose clients hold numbered slots instead of records."""

    def __init__(self, site: Site, size: int) -> None:
        self.flat, self.losses, self.device, self.plan = site.flat, site.losses, site.device, site.plan
        self.draws = site.draws
        self.federation = self
        self._size = size

    def size(self, k: int) -> int:
        return self._size

    def client(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.arange(self._size), torch.zeros(self._size, dtype=torch.int64)

    def blank(self) -> tuple[torch.Tensor, torch.Tensor]:
        raise AssertionError("no model is run on slots")

    def layer_seed(self, t: int, item: int, step: int = 0) -> int:
        return 0  # no layer is run

    def seed_layers(self, t: int, item: int) -> None:
        """No layer is run."""
