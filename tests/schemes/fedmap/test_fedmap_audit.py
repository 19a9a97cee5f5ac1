"""The certified variant attacked: two worlds that differ in one record, played many times through the real client.

The target's gradient is as long as the bound lets it be, in a direction that the observer knows; all other gradients are zero.
The observer sees every released gradient, every bound and every multiplier, which is more than the server does.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("one_thread")
torch = pytest.importorskip("torch")

from sordino.audit import thresholds  # noqa: E402
from sordino.clients.site import Site  # noqa: E402
from sordino.errors import NotPrivate  # noqa: E402
from sordino.federation.population import Federation  # noqa: E402
from sordino.federation.sizes import PublicSizes  # noqa: E402
from sordino.methods import RuleContext  # noqa: E402
from sordino.plan import Plan  # noqa: E402
from sordino.privacy import mechanisms  # noqa: E402
from sordino.privacy.mechanisms import FixedPoint  # noqa: E402
from sordino.schemes import certified  # noqa: E402
from sordino.schemes.fedmap.budgets import settle  # noqa: E402
from sordino.schemes.fedmap.client import ClientState, ClientTask, ControlledSteps  # noqa: E402
from sordino.schemes.request import CONTRIBUTE, Request  # noqa: E402

EPSILON, DELTA, RUNS = 2.0, 0.1, 160


class World:
    """One client of four records, of which the first is the target; one round of two full batches."""

    def __init__(self, present: bool) -> None:
        x, y = np.zeros((4, 3), np.float32), np.array([1, 0, 0, 0])
        federation = Federation.from_arrays([(x, y)], test=(x, y), classes=2, name="world")
        self.plan = Plan(
            clients=1, method="fedmap", observer="server", epsilon=EPSILON, delta=DELTA, rounds=1, local_epochs=2,
            batch_size=4, lr=0.1,
        )  # fmt: skip
        self.terms = settle(self.plan, PublicSizes.of(federation))
        site = Site(torch.nn.Linear(3, 2), federation, self.plan)
        rule = self.plan.method_spec.build(RuleContext(self.plan, (6, 2), 4))
        self.work = ControlledSteps(site, site.flat.vector().numpy().copy(), rule, self.terms)
        self.work.per_example.clipped_sum = self.clipped_sum
        self.present, self.seen = present, []
        self.real, self.work._step = self.work._step, self.step

    def clipped_sum(self, x, y, bound, seed=None):
        there = bool((y == 1).any()) and self.present
        total = np.zeros(8)
        total[0] = bound.size if there else 0.0
        return total, np.where(np.asarray(y) == 1, 1e9 if self.present else 0.0, 0.0)

    def step(self, round, k, number, state, z):
        gradient, after = self.real(round, k, number, state, z)
        self.seen.append((float(gradient[0]) * 4 / state["bound"], after["within"], z))
        return gradient, after

    def score(self, run: int) -> list[float]:
        """What tells the worlds apart best: shares of the bound in the sum, and of the count, weighed by precision."""
        self.seen.clear()
        # Noise depends on (seed, round): every run gets a round of its own, far apart in the two worlds.
        state = {"bound": 1.0, "moved": 0.0, "order": self.terms.order}
        number = 1 + 2 * run + self.present
        request = Request(
            round=number, phase=CONTRIBUTE, grid=FixedPoint(2.0**32), bound=None, state=state, released=True
        )
        self.work.contribute(
            request, ClientTask(0, self.terms.budget, 0.0, 1, ClientState.blank()), np.zeros(8, np.int64)
        )
        weights = [z**-2 for _, _, z in self.seen]
        share = self.work.rule.share
        total = sum(w * v * (1 - share) for w, (v, _, _) in zip(weights, self.seen))
        count = sum(w * (0.5 - c) * 4 * 4 * share for w, (_, c, _) in zip(weights, self.seen))
        return [total, total + count, sum(weights)]


def lower_bound(runs: int = RUNS) -> float:
    without, with_it = (np.array([world.score(i) for i in range(runs)]) for world in (World(False), World(True)))
    assert not math.isclose(without[:, 0].mean(), with_it[:, 0].mean(), abs_tol=0.1), "the attack sees something"
    return thresholds.split(without, with_it, DELTA, 0.99).epsilon


def test_the_proof_stands():
    assert lower_bound() <= EPSILON


def test_a_third_of_the_noise_is_caught(monkeypatch):
    real = mechanisms.gaussian
    monkeypatch.setattr(mechanisms, "gaussian", lambda total, bound, z, noise: real(total, bound, z / 3, noise))
    with pytest.raises(NotPrivate, match="a mechanism and the plan disagree"):
        lower_bound()
    monkeypatch.setattr(certified, "check_released", lambda *said: None)
    assert lower_bound(3 * RUNS) > EPSILON  # with RUNS it would be so for one seed in three
