"""Client unit, released after every local epoch: noise_gamma (Sartaj et al., section 4.2), towards a server that sees every message.

    for each local epoch:
        update   one pass over the client's data, from where the last release left the model
        release  clip(update, C) + noise of the client's own, in full: Gaussian, or Laplace
        C        moves on (the rule's schedule)
    send         the sum of what was released

Each epoch is one release of the whole client, and each is charged: a round of E epochs is E events. What is sent is made of
released values only. Where the noise is not the client's own (observers `public` and `secagg-server`) there is no sum to release
before the round is over, and `schemes.client` releases once a round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino.errors import BadInput, NotPrivate
from sordino.federation.sizes import PublicSizes
from sordino.privacy import events, mechanisms
from sordino.privacy.bounds import Bound
from sordino.privacy.randomness import source, stream
from sordino.privacy.release import Private
from sordino.privacy.vocabulary import Observer, Unit
from sordino.rules.base import NOTHING, RoundOutput, Rule, State
from sordino.schemes import certified, expected
from sordino.schemes.base import Exposure
from sordino.schemes.client import Client, WholeClients
from sordino.schemes.local import LocalRound, released_request
from sordino.schemes.request import Reply, Request, Work
from sordino.schemes.round import Context, Round
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from sordino.clients.site import Site
    from sordino.plan import Plan
    from sordino.schemes.base import Scheme


def own_scheme(plan: Plan) -> type[Scheme] | None:
    """Releases by epoch where clients draw their own noise; a single Gaussian release a round is what `Client` has already."""
    if plan.unit != Unit.CLIENT or plan.observer != Observer.SERVER:
        return None
    return EpochRelease if plan.local_epochs > 1 or plan.mechanism == "laplace" else None


class EpochRelease(Client):
    """Whole clients, each of whose local epochs is a release."""

    laplace_by_clients = True

    def check(self) -> None:
        super().check()
        if self.plan.weights != "uniform":
            raise BadInput(
                f"weights {self.plan.weights} would scale what a client adds to its own model after every epoch; use uniform."
            )
        if self.plan.defence is not None:
            raise BadInput(
                f"defence {self.plan.defence} changes one update of a client in a round, and here every local epoch makes one; "
                "use local_epochs 1 with mechanism gaussian, or leave defence out."
            )
        if self.plan.personal is not None:
            raise BadInput(
                f"personal {self.plan.personal!r} keeps layers out of one update of a client in a round, and here every local epoch "
                "makes one; use local_epochs 1 with mechanism gaussian, or leave personal out."
            )
        if self.plan.canaries:
            raise BadInput(
                "canaries are made for one Gaussian release of a client in a round, and here every local epoch makes one; "
                "use local_epochs 1 with mechanism gaussian, or canaries 0."
            )

    # ---- what one client is exposed to -------------------------------------------------------------------------------------

    def exposure(self, multipliers: Sequence[float], sizes: PublicSizes) -> Exposure:
        one = super().exposure(multipliers, sizes)
        return lambda z: events.repeated(one(z), self.plan.local_epochs)

    def claim_inputs(self, sizes: PublicSizes) -> tuple[float | None, int | None]:
        return None, self.plan.rounds * self.plan.local_epochs

    def steps(self, sizes: PublicSizes) -> int:
        return self.plan.local_epochs

    # ---- what clients do, and how a round steps ----------------------------------------------------------------------------

    def work(self, site: Site, theta: np.ndarray, rule: Rule, terms: Terms) -> Work[Any]:
        return EpochUpdates(site, theta, rule, terms)

    def rounds(self, context: Context) -> Round:
        return EpochRound(context)

    def expected(self, terms: Terms, rule: Rule, asked: Request, taken: float) -> Request:
        return expected.same(released_request(terms, asked.round, asked.state), asked)


class EpochRound(LocalRound):
    """The mean of what clients released, each after every epoch."""

    def noise(self, t: int, rule_state: State) -> float | None:
        """Releases are added up, so their noises are, too: that of every epoch at every client of a cohort."""
        state, z, epochs, squares = dict(rule_state), self.terms.multiplier_of(t), self.plan.local_epochs, 0.0
        for epoch in range(epochs):
            bound = self.rule.bound(state, None)
            std = bound.std(z)
            squares += float(np.mean(np.square(std)))
            nothing = np.zeros(0)
            ends = epoch == epochs - 1
            state = self.rule.observe(state, RoundOutput(t, bound, None, nothing, std, epochs=1, ends_round=ends))
        return math.sqrt(squares / self.plan.cohort_size)


class EpochUpdates(WholeClients):
    """The work of clients that release after every local epoch."""

    def __init__(self, site: Site, theta: np.ndarray, rule: Rule, terms: Terms) -> None:
        super().__init__(site, theta, terms)
        self.rule = rule

    def query(self, request: Request, item: int) -> Reply:
        raise AssertionError("clients that release by epoch are asked nothing")

    def contribute(self, request: Request, item: int, out: np.ndarray) -> Reply:
        """Run the round's epochs; put the sum of what they released into `out`, and report the rule's state."""
        state, z, epochs = dict(request.state), request.multiplier, self.plan.local_epochs
        assert z is not None
        batches = stream(self.plan.seed, request.round, item, "batches")
        self.site.seed_layers(request.round, item)
        moved = np.zeros(self.theta.size)
        for epoch in range(epochs):
            bound = self.rule.bound(state, None)
            certified.check_bound(self.terms, bound)
            if self.rule.query(state) != NOTHING:
                raise NotPrivate("a rule that asks about norms is not for clients that release after every epoch.")
            update = self.update(self.theta + moved.astype(np.float32), item, bound, batches)
            noisy = self._release(update, bound, z, request.round, item, epoch)
            moved += noisy
            output = RoundOutput(
                request.round, bound, None, noisy, bound.std(z), epochs=1, ends_round=epoch == epochs - 1
            )
            state = self.rule.observe(state, output)
        out += request.grid.round(moved)
        return Reply(report=state)

    def update(self, start: np.ndarray, item: int, bound: Bound, batches: np.random.Generator) -> np.ndarray:
        """What one local epoch adds to the model `start`."""
        from sordino.clients.descent import train

        flat = self.site.flat
        x, y = self.site.client(item)
        flat.load(start)
        train(flat, self.site.forward, x, y, self.site.loss, self.descent, 1, self.plan.batch_size, batches)
        flat.guard()
        return flat.theta.detach().cpu().numpy() - start

    def _release(self, update: np.ndarray, bound: Bound, z: float, t: int, item: int, epoch: int) -> np.ndarray:
        """One clipped update through the door, held against the grant."""
        grid = mechanisms.FixedPoint.for_bound(bound, 2, max(1000.0, z))
        total = Private(mechanisms.Sum(grid.encode(bound.clip(update)), grid), bound=bound)
        noise = source(self.plan.seed, t, item, f"noise-epoch-{epoch}", self.plan.secure)
        mechanism = mechanisms.laplace if self.plan.mechanism == "laplace" else mechanisms.gaussian
        noisy, event = mechanism(total, bound, z, noise)
        if self.terms.proven:
            certified.check_released(self.plan.mechanism, [event], z, f"epoch {epoch + 1} of round {t}")
        return noisy.value
