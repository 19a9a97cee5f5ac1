"""Example unit, local: each client runs DP-SGD for itself (Abadi et al. 2016) and trusts nobody with its gradients.

Every step draws a secret Poisson batch of the client's own records, clips each gradient, adds the full noise and moves
on; every step is charged. What the client sends is made of released values only, so it holds towards every observer, and
the client runs the rule of the bound by itself, from the state that the server sent.

Rates and numbers of steps follow from how many records a client holds, which is public. The client that is charged most
over the whole run is the one that is reported: its whole run is composed, round after round, for every size there is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sordino.errors import NotPrivate
from sordino.federation import sampling
from sordino.federation.sizes import PublicSizes
from sordino.privacy import accounting, events, mechanisms, rdp
from sordino.privacy.bounds import Bound
from sordino.privacy.filter import Filter
from sordino.privacy.randomness import source
from sordino.privacy.release import require_released
from sordino.privacy.vocabulary import Noise, Sampling
from sordino.rules.base import RoundOutput, Rule, State, merge
from sordino.rules.query import split
from sordino.schemes import certified, expected
from sordino.schemes.base import Exposure, Scheme
from sordino.schemes.budget_shares import prelude_multipliers
from sordino.schemes.client import own_rounds
from sordino.schemes.pooled import joint, record_rate, refuse_fixed, slots_for
from sordino.schemes.request import CONTRIBUTE, Reply, Request, Work
from sordino.schemes.round import Context, Release, Round, ScheduledRound
from sordino.schemes.step_door import StepDoor
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from sordino.clients.site import Site

GRID = mechanisms.FixedPoint(2.0**32)  # of released moves
_FEW = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0])  # orders at which every size is bounded first


class Local(Scheme):
    """Each client its own DP-SGD."""

    name = "local"
    noise = Noise.LOCAL

    def check(self) -> None:
        super().check()
        self._check_sampling()

    def _check_sampling(self) -> None:
        refuse_fixed(self.plan)

    # ---- what one record is exposed to -------------------------------------------------------------------------------------

    def rate(self, examples: int) -> float:
        """The probability with which each of a client's records takes part in a step: it draws, and it is charged."""
        return record_rate(self.plan, examples)

    def epoch_steps(self, examples: int) -> int:
        """How many batches a client of that many records takes for a local epoch."""
        return math.ceil(examples / min(self.plan.batch_size, examples))

    def local_steps(self, examples: int) -> int:
        """How many noisy steps a client of that many records takes in a round; each is charged."""
        return self.plan.local_epochs * self.epoch_steps(examples)

    @property
    def round_epochs(self) -> int:
        return self.plan.local_epochs

    def client_round(self, z: float, examples: int) -> events.Event:
        """One round of DP-SGD at a client of that many records."""
        q = self.rate(examples)
        step = events.gaussian(z) if q == 1 else events.poisson(q, events.gaussian(z))
        return events.repeated(step, self.local_steps(examples))

    def exposure(self, multipliers: Sequence[float], sizes: PublicSizes) -> Exposure:
        worst = self.most_charged(multipliers, sizes)
        return lambda z: self.client_round(z, worst)

    def most_charged(self, multipliers: Sequence[float], sizes: PublicSizes) -> int:
        """The size of client that is charged most over all these rounds.

        Renyi accounting at a few orders bounds every client from above; the tight account is then taken of one after
        another, until no size that is left can be the largest any more.
        """
        distinct = sizes.distinct()
        if len(distinct) == 1:
            return distinct[0]
        runs = {n: self._whole_run(multipliers, n) for n in distinct}
        delta, relation = self.plan.delta, self.relation
        bounds = {n: rdp.epsilon_of(rdp.curve(run, relation, _FEW), delta, _FEW) for n, run in runs.items()}
        worst, largest = distinct[0], -1.0
        for n in sorted(distinct, key=lambda n: -bounds[n]):
            if bounds[n] <= largest:
                break
            tight = accounting.epsilon_only(runs[n], delta, relation)
            if tight > largest:
                worst, largest = n, tight
        return worst

    def _whole_run(self, multipliers: Sequence[float], examples: int) -> events.Event:
        rounds = ((self.client_round(z, examples), sum(1 for _ in same)) for z, same in groupby(multipliers))
        before = (events.gaussian(z) for z in prelude_multipliers(self.plan, self.relation))
        return events.composed([*before, *(events.repeated(event, count) for event, count in rounds)])

    @property
    def cohort_seen(self) -> bool:
        return True

    def release_rate(self, terms: Terms) -> float:
        return self.rate(self.most_charged(terms.exposed_multipliers, terms.public))

    def exposures(self, rounds: int) -> int:
        return sampling.participations(self.plan, rounds)

    def proof_sampling(self, sizes: PublicSizes) -> tuple[Sampling, float | None]:
        q = max(self.rate(n) for n in sizes.distinct())
        return (Sampling.NONE, None) if q == 1 else (Sampling.POISSON, q)

    def claim_inputs(self, sizes: PublicSizes) -> tuple[float | None, int | None]:
        largest = max(sizes.distinct())
        return self.rate(largest), self.plan.rounds * self.local_steps(largest)

    def steps(self, sizes: PublicSizes) -> int:
        return max(self.local_steps(n) for n in sizes.distinct())

    # ---- public numbers ----------------------------------------------------------------------------------------------------

    def units(self, sizes: PublicSizes) -> float:
        return min(self.plan.batch_size, max(sizes.distinct()))

    def denominator(self, sizes: PublicSizes, cohort: np.ndarray) -> float:
        return self.plan.cohort_size

    # ---- what clients do, and how a round steps ----------------------------------------------------------------------------

    def work(self, site: Site, theta: np.ndarray, rule: Rule, terms: Terms) -> Work[Any]:
        return LocalSteps(site, theta, rule, terms)

    def rounds(self, context: Context) -> Round:
        return LocalRound(context)

    def filter_of(self, terms: Terms, client: int) -> Filter:
        return own_rounds(terms, client)

    def expected(self, terms: Terms, rule: Rule, asked: Request, taken: float) -> Request:
        return expected.same(released_request(terms, asked.round, asked.state), asked)


def released_request(terms: Terms, t: int, state: State) -> Request:
    """What clients that release by themselves are asked in round t; a data holder makes the same one from its own terms."""
    z = terms.multiplier_of(t)
    return Request(round=t, phase=CONTRIBUTE, grid=GRID, bound=None, multiplier=z, state=state, released=True)


class LocalRound(ScheduledRound):
    """Clients that clip and noise each for itself: what they send is released already."""

    def release(self, t: int, cohort: np.ndarray, rule_state: State) -> Release:
        request = released_request(self.terms, t, rule_state)
        aggregate = self.engine.run(request, self.work.items(t, cohort))
        total = require_released(aggregate.total, "what local clients send").decode()
        states = cast(tuple[State, ...], require_released(aggregate.reports, "the state of a local client's rule"))
        mean = total / self.terms.denominator(cohort)
        after = merge(states) if states else self._skip(t, rule_state)
        return Release(mean, self._clipped(rule_state, after), self.noise(t, rule_state), after)

    def _clipped(self, before: State, after: State) -> Bound | None:
        """The bound that the round begins with; where every release asks for norms first, that of the last one.

        None where clients asked in this round and will not again: their answer never came here.
        """
        if self.rule.query(before).pre_clip is None:
            return self.rule.bound(before, None)
        return None if self.rule.query(after).pre_clip is None else self.rule.bound(after, None)

    def noise(self, t: int, rule_state: State) -> float | None:
        """The deviation of the noise in the mean: what becomes of the noise of a step in the steps after it is not known."""
        return None

    def step_bound(self, released: Release) -> float | None:
        """What was released is a move of the model: its own steps followed the bound (`LocalSteps`), this one does not."""
        return None

    def _check_released(self, t: int) -> None:
        """Each step is held against its grant where it is made (`LocalSteps`)."""


class LocalSteps:
    """The work of clients that run DP-SGD each for itself."""

    def __init__(self, site: Site, theta: np.ndarray, rule: Rule, terms: Terms) -> None:
        from sordino.clients.descent import Descent
        from sordino.gradients.per_example import PerExample

        scheme = terms.scheme
        assert isinstance(scheme, Local)
        self.site, self.plan, self.theta, self.rule, self.terms = site, terms.plan, theta, rule, terms
        self.scheme = scheme
        self.per_example = PerExample(site.flat, site.losses, slots=self.slots)
        self.per_example.prepare(*site.blank())  # before workers are forked
        self.descent = Descent(self.plan.optimizer, self.plan.lr, self.plan.momentum)

    @property
    def slots(self) -> int:
        """How many records run at a time: of a draw by coins."""
        return slots_for(self.plan.batch_size)

    def items(self, t: int, cohort: np.ndarray) -> list[int]:
        return [int(k) for k in cohort]

    def weight(self, item: int) -> int:
        return self.site.federation.size(item)

    def assumptions(self) -> tuple[str, ...]:
        return self.per_example.assumptions()

    def query(self, request: Request, item: int) -> Reply:
        raise AssertionError("local clients ask themselves")

    def contribute(self, request: Request, item: int, out: np.ndarray) -> Reply:
        """Run the round's steps; put the released move into `out` and report the released state of the rule."""
        import torch

        flat, state = self.site.flat, dict(request.state)
        assert request.multiplier is not None
        flat.load(self.theta)
        self.site.seed_layers(request.round, item)
        move = self.descent.start(flat.size, flat.theta.device)
        for step in range(self.scheme.local_steps(self.site.federation.size(item))):
            gradient, state = self._step(request.round, item, step, state, request.multiplier)
            flat.theta.sub_(move(torch.from_numpy(gradient.astype(np.float32)).to(flat.theta.device)))
        out += request.grid.round(flat.theta.cpu().numpy().astype(np.float64) - self.theta)
        return Reply(report=state)

    def _step(self, t: int, k: int, step: int, state: State, z: float) -> tuple[np.ndarray, State]:
        """One released gradient, and the rule's next state."""
        import torch

        x, y = self.site.client(k)
        held = len(y)
        self._check_size(k, held)
        rate, capacity = self.scheme.rate(held), max(2, held)
        units, key = rate * held, f"step-{step}"
        rows = self.site.draws.records(t, k, held, rate, f"records-{key}")
        drawn = torch.from_numpy(rows).to(x.device)
        x, y = x.index_select(0, drawn), y.index_select(0, drawn)
        door = StepDoor(source(self.plan.seed, t, k, f"noise-{key}", self.plan.secure), capacity, units)

        seed = self.site.layer_seed(t, k, step)
        queries = self.rule.query(state)
        certified.check_queries(self.terms, queries)
        z_sum, (std_pre, std_with) = split(z, *queries)
        asked = None
        if queries.pre_clip is not None:
            norms = joint(self.per_example.norms(x, y, seed=seed))
            asked = door.answer(queries.pre_clip, norms, self.rule.bound(state, None).size, std_pre)
        bound = self.rule.bound(state, asked)
        certified.check_bound(self.terms, bound)
        total, norms = self.per_example.clipped_sum(x, y, bound, seed=seed)
        mean = bound.decode(door.sum(total, bound, z_sum) / units)
        said = None
        if queries.with_sum is not None:
            said = door.answer(queries.with_sum, joint(norms), bound.size, std_with)
        if self.terms.proven:
            certified.check_released(self.plan.mechanism, door.released, z, f"step {step + 1} of round {t}")
        each, done = self.scheme.epoch_steps(held), step + 1
        output = RoundOutput(
            t, bound, said, mean, bound.std(z_sum) / units, asked,
            epochs=int(done % each == 0), ends_round=done == self.scheme.local_steps(held),
        )  # fmt: skip
        return mean / bound.size if self.plan.steps == "scaled" else mean, self.rule.observe(state, output)

    def _check_size(self, k: int, held: int) -> None:
        """Rates and steps follow from the declared size, so it must be the true one."""
        declared = self.site.federation.size(k)
        if held != declared:
            raise NotPrivate(
                f"client {k} declares {declared} records and holds {held}; the proof rests on the declared number: correct it."
            )
