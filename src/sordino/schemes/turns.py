"""Client unit, towards the public, in turns: noise that is correlated over b rounds, for clients that take part in one round of b at most.

Clients are dealt into b groups by the public seed. Round t is the turn of group (t - 1) mod b, and each client of it takes part by a secret coin of
rate cohort b / clients. What a client adds in its turn shows in b noisy releases, and its turns do not overlap (`privacy.banded`): it
is charged ceil(rounds / b) Poisson-sampled Gaussians. With one band this is `schemes.client`.

More bands correlate noise over more rounds, which takes noise out of the model, and give up amplification: the group is smaller, so that the
coin's rate is higher. Which number is best follows from clients, cohort, rounds and epsilon (`planning.bands`).

The noise of past rounds is kept in memory alone. A seeded run that resumes draws it again, to the same bits; a secure one cannot, and refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import BadInput, NotPrivate, whole
from sordino.federation.checkpoint import TrainState
from sordino.federation.sizes import PublicSizes
from sordino.privacy import events
from sordino.privacy.banded import Bands, CorrelatedNoise
from sordino.privacy.bounds import Bound
from sordino.privacy.filter import Filter
from sordino.privacy.mechanisms import Sum
from sordino.privacy.randomness import SERVER, stream
from sordino.privacy.release import Private, Released
from sordino.privacy.vocabulary import Observer, Relation, Sampling, Unit
from sordino.schemes.base import Exposure
from sordino.schemes.client import Client, ClientUpdate
from sordino.schemes.clipped import ClippedRound, Mechanism
from sordino.schemes.request import Reply, Request
from sordino.schemes.round import Context
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from sordino.plan import Plan

USUAL = 8  # bands, where there are clients and rounds enough


class TurnUpdate(ClientUpdate):
    """The work of clients that take turns."""

    def contribute(self, request: Request, item: int, out: np.ndarray) -> Reply:
        turn = self.terms.scheme.turn(request.round)
        if turn is not None and item not in turn:
            raise NotPrivate(
                f"round {request.round} is not the turn of client {item}: a client that takes part more often than one round in "
                f"{self.terms.scheme.separation} is not covered by the proof."
            )
        return super().contribute(request, item, out)

    def assumptions(self) -> tuple[str, ...]:
        apart = self.terms.scheme.separation
        return (
            f"Clients take turns: none takes part in two rounds that are fewer than {apart} apart. Groups follow from the public seed.",
            "The noise of earlier rounds, which later rounds partly take back, stays as secret as noise must be.",
        )


class BandedRound(ClippedRound):
    """A clipped sum with noise that partly takes back that of the rounds before."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        assert isinstance(self.scheme, Turns)
        self._noise = CorrelatedNoise(self.scheme.bands)

    def pass_over(self, state: TrainState) -> TrainState:
        """A secure run cannot go on in a new process: noise that it would have to take back is gone with the old one."""
        if self.plan.secure and self._noise.round == 0 and self.ledger.granted(1) is not None:
            raise BadInput(
                f"this run was interrupted after {state.round} rounds, and with secure noise method {self.plan.method} cannot resume: the noise "
                "that later rounds take back was never written down; start a new run, and count this one as spent."
            )
        return super().pass_over(state)

    def surplus(self, t: int, cohort: int) -> float:
        """How much larger the noise of what round t lets out is than that of its event."""
        assert isinstance(self.scheme, Turns)
        return self.scheme.bands.noise_of_round(t)

    def _open(
        self, total: Private[Sum] | Released[Sum], bound: Bound, z: float, t: int, purpose: str, mechanism: Mechanism
    ) -> np.ndarray:
        if not isinstance(total, Private):
            raise NotPrivate("a sum that clients released themselves was about to be noised again; report this.")
        self._catch_up(total, bound, z, t, purpose)
        noisy, event = self._noise.gaussian(total, bound, z, t, self._noise_source(t, purpose))
        self._released.append(event)
        return noisy.value

    def _catch_up(self, total: Private[Sum], bound: Bound, z: float, t: int, purpose: str) -> None:
        """Noise of rounds before t that were run by another process (seeded: the same bits again), or lost in this one."""
        if self._noise.round >= t and not self.plan.secure:
            self._noise = CorrelatedNoise(self._noise.bands)
        for earlier in range(self._noise.round + 1, t):
            self._noise.skip(total, bound, z, earlier, self._noise_source(earlier, purpose))


class Turns(Client):
    """Whole clients, in turns."""

    name = "turns"
    work_class = TurnUpdate
    round_class: type[ClippedRound] = BandedRound

    @cached_property
    def separation(self) -> int:
        """b: a client takes part in one of so many consecutive rounds at most. As many as there are bands."""
        plan = self.plan
        given = plan.options.get("bands")
        if given is None:
            fits = min(USUAL, plan.clients // plan.cohort_size, plan.rounds)
            return fits if plan.sampling == Sampling.POISSON else 1
        if given != int(given):
            raise BadInput(f"bands must be a whole number, not {given!r}.")
        whole(1, bands=int(given))
        return int(given)

    @cached_property
    def bands(self) -> Bands:
        """The correlation of the noise over rounds."""
        return Bands.square_root(self.separation, self.momentum)

    @property
    def momentum(self) -> float:
        """Of the server, which the workload follows."""
        return self.plan.server_momentum if self.plan.server_optimizer == "momentum" else 0.0

    def check(self) -> None:
        super().check()
        plan, b = self.plan, self.separation
        if b == 1:
            return
        if plan.sampling != Sampling.POISSON:
            raise BadInput(
                f"clients that take turns are drawn by coins, so sampling {plan.sampling} does not fit; use poisson."
            )
        if plan.cohort_size * b > plan.clients:
            raise BadInput(
                f"{b} bands deal {plan.clients} clients into groups of {plan.clients // b}, too few for a cohort of {plan.cohort_size}; "
                f"use at most {plan.clients // plan.cohort_size} bands, or a smaller cohort."
            )
        if plan.server_optimizer == "adam":
            raise BadInput(
                "correlated noise is for steps that add up, and adam's do not; use server_optimizer sgd or momentum."
            )
        if self.relation != Relation.ZERO_OUT:
            raise BadInput(f"correlated noise is proven for zero-out, not for {self.relation}; leave relation out.")
        if plan.lr_schedule != "constant":
            raise BadInput("correlated noise is taken back in steps of one size; use lr_schedule constant.")
        if plan.average != "none":
            raise BadInput(
                "noise that is correlated over rounds says nothing on whether training has settled; use average none."
            )

    # ---- who takes part ----------------------------------------------------------------------------------------------------

    @cached_property
    def _groups(self) -> list[np.ndarray]:
        order = stream(self.plan.seed, 0, SERVER, "turns").permutation(self.plan.clients)
        return [np.sort(order[g :: self.separation]) for g in range(self.separation)]

    def turn(self, t: int) -> np.ndarray | None:
        return None if self.separation == 1 else self._groups[(t - 1) % self.separation]

    @property
    def turn_rate(self) -> float:
        """The coin of a client in its turn: it draws, and it is charged."""
        return min(1.0, self.plan.cohort_size * self.separation / self.plan.clients)

    # ---- what one client is exposed to -------------------------------------------------------------------------------------

    def exposure(self, multipliers: Sequence[float], sizes: PublicSizes) -> Exposure:
        if self.separation == 1:
            return super().exposure(multipliers, sizes)
        q = self.turn_rate
        return events.gaussian if q == 1 else lambda z: events.poisson(q, events.gaussian(z))

    def exposures(self, rounds: int) -> int:
        return -(-rounds // self.separation)

    def filter_of(self, terms: Terms, client: int) -> Filter:
        if self.separation == 1 or not terms.proven:
            return super().filter_of(terms, client)
        return terms.counted_off([(terms.schedule[0][0], terms.exposures)])

    def proof_sampling(self, sizes: PublicSizes) -> tuple[Sampling, float | None]:
        if self.separation == 1:
            return super().proof_sampling(sizes)
        return (Sampling.NONE, None) if self.turn_rate == 1 else (Sampling.POISSON, self.turn_rate)

    @property
    def noise_room(self) -> float:
        return self.bands.room


def own_scheme(plan: Plan) -> type[Client] | None:
    """Correlated noise needs a server that is trusted with it, and whole clients."""
    return Turns if plan.unit == Unit.CLIENT and plan.observer == Observer.PUBLIC else None
