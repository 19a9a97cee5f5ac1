"""Rounds of clipped contributions with noise on their sum: whole clients, and records in one sum.

    answer   what the rule asks of this round's units, released
    bound    from the rule's state and that answer
    total    each unit's contribution, clipped to `bound` where the data is
    noisy    the one door out; the bound that clipped is the bound that noises
    mean     divided by a public number

A request is made by `request_for`, from the terms and what is public about the round. The server sends it, and a data
holder makes the same one from its own terms: what is not in the plan cannot be asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sordino.errors import NotPrivate
from sordino.privacy import events, mechanisms
from sordino.privacy.bounds import Bound, Flat
from sordino.privacy.mechanisms import FixedPoint, Sum
from sordino.privacy.randomness import SERVER, Source, source
from sordino.privacy.release import Private, Released, disclose
from sordino.privacy.vocabulary import Noise
from sordino.rules.base import RoundOutput, State
from sordino.rules.query import Answer, Query, is_raw
from sordino.schemes.aggregate import Aggregate
from sordino.schemes.request import CONTRIBUTE, QUERY, Request
from sordino.schemes.round import Release, ScheduledRound
from sordino.schemes.terms import Terms

Mechanism = Callable[[Private[Sum], Bound, float, Source], tuple[Released[np.ndarray], events.Event]]


def share_of(query: Query | None) -> float:
    """The part of the round's privacy that a query takes; raw ones are paid for by the statement."""
    return 0.0 if query is None or is_raw(query) else query.share


def request_for(terms: Terms, t: int, phase: str, bound: Bound, query: Query | None, taken: float) -> Request:
    """What clients are asked in one phase of round t. `taken`: the share of the round that earlier phases took."""
    z, scheme = terms.multiplier_of(t), terms.scheme
    units, by_clients = scheme.capacity(terms.public), scheme.noise != Noise.CENTRAL
    noisy = query is not None and not is_raw(query)
    rest = 1 - (taken + share_of(query))
    # The largest multiplier that any part of the round can have: all of it must fit the grid.
    room = max(1000.0, z / math.sqrt(min([rest, *([share_of(query)] if noisy else [])]))) * scheme.noise_room
    return Request(
        round=t,
        phase=phase,
        grid=FixedPoint.for_bound(bound, units, room),
        bound=bound,
        query=query,
        query_grid=FixedPoint.for_bound(Flat(query.norm), units, room) if query is not None and noisy else None,
        multiplier=z / math.sqrt(rest) if by_clients and phase == CONTRIBUTE else None,
        query_multiplier=z / math.sqrt(share_of(query)) if by_clients and noisy else None,
        survivors=scheme.survivors,
    )


class ClippedRound(ScheduledRound):
    """Clipped contributions, with noise on their sum."""

    def release(self, t: int, cohort: np.ndarray, rule_state: State) -> Release:
        items = self.work.items(t, cohort)
        queries, z = self._queries(rule_state), self.terms.multiplier_of(t)
        last = self._bound(rule_state, None)
        asked = None
        if queries.pre_clip is not None:
            first = request_for(self.terms, t, QUERY, last, queries.pre_clip, 0.0)
            asked = self._answer(first, self.engine.run(first, items), z, len(cohort))
        bound = self._bound(rule_state, asked)
        taken = share_of(queries.pre_clip)
        request = request_for(self.terms, t, CONTRIBUTE, bound, queries.with_sum, taken)
        aggregate = self.engine.run(request, items)
        z_sum = self._sum_multiplier(z, taken + share_of(queries.with_sum))
        mechanism = mechanisms.laplace if self.plan.mechanism == "laplace" else mechanisms.gaussian
        total = self._open(aggregate.total, bound, z_sum, t, "noise", mechanism)
        denominator = self.terms.denominator(cohort)
        mean = bound.decode(total / denominator)
        std = bound.std(z_sum) / denominator * self.surplus(t, len(cohort))
        said = None if queries.with_sum is None else self._answer(request, aggregate, z, len(cohort))
        output = RoundOutput(t, bound, said, mean, std, asked, epochs=self.scheme.round_epochs)
        return Release(mean, bound, std, self.rule.observe(rule_state, output))

    def surplus(self, t: int, cohort: int) -> float:
        """How much larger than that of its event the noise on the sum of round t is."""
        return self.scheme.noise_surplus(cohort)

    # ---- doors -------------------------------------------------------------------------------------------------------------

    def _open(
        self, total: Private[Sum] | Released[Sum], bound: Bound, z: float, t: int, purpose: str, mechanism: Mechanism
    ) -> np.ndarray:
        """A sum, through the one door out."""
        if not isinstance(total, Private):
            raise NotPrivate("a sum that clients released themselves was about to be noised again; report this.")
        if self.scheme.noise != Noise.CENTRAL:
            noisy, event = mechanisms.open_noised(total, bound, z)
        else:
            noisy, event = mechanism(total, bound, z, self._noise_source(t, purpose))
        self._released.append(event)
        return noisy.value

    def _sum_multiplier(self, z: float, taken: float) -> float:
        """The sum gets what the queries leave of the round."""
        return z / math.sqrt(1 - taken)

    def _noise_source(self, t: int, purpose: str) -> Source:
        """A stream of its own for each round and purpose."""
        return source(self.plan.seed, t, SERVER, purpose, self.plan.secure)

    def _answer(self, request: Request, aggregate: Aggregate, z: float, cohort: int) -> Answer:
        """An answer is a sum too, clipped to the norm that its query declares."""
        query = request.query
        assert query is not None
        if aggregate.answer is None:
            assert aggregate.raw is not None
            exact = aggregate.raw.map(lambda answers: np.concatenate(answers) if answers else np.zeros(0))
            told, event = disclose(exact, "exact norms, or exact functions of them, are sent")
            self._released.append(event)
            return Answer(told.value, self.terms.units)
        z_query = z / math.sqrt(share_of(query))
        purpose = f"query-{request.phase}"
        total = self._open(aggregate.answer, Flat(query.norm), z_query, request.round, purpose, mechanisms.gaussian)
        return Answer(total, self.terms.units, query.norm * z_query * self.scheme.noise_surplus(cohort))
