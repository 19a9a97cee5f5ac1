"""Client unit: each client trains, and its whole update is one contribution.

    update_k = clip(weight_k * defence(theta_k - theta), bound) [+ its share of the noise]

    observer public           the server adds the noise; a secret cohort amplifies
    observer secagg-server    clients add shares; the server knows who takes part, so a client is charged for its own rounds
    observer server           likewise, and each message carries its full noise

The weight is 1, or min(n_k / cap, 1) with a public cap, and is applied before clipping so that the bound holds for what
is sent. Where the rule asks for this round's norms first, updates wait here between the two phases, up to `KEEP` bytes;
beyond that they are trained again, to the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino import defences
from sordino.errors import BadInput
from sordino.federation import sampling
from sordino.federation.sizes import PublicSizes
from sordino.privacy import events, mechanisms
from sordino.privacy.bounds import Bound, Flat
from sordino.privacy.filter import Filter
from sordino.privacy.randomness import Source, source, stream
from sordino.privacy.vocabulary import Noise, Observer, Relation, Sampling, noise_for
from sordino.rules.base import Rule
from sordino.rules.query import answer_codes, is_raw
from sordino.schemes import expected
from sordino.schemes.base import Exposure, Scheme
from sordino.schemes.clipped import ClippedRound
from sordino.schemes.request import Reply, Request, Work
from sordino.schemes.round import Context, Round
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from torch import Tensor

    from sordino.clients.personal import PersonalLayers
    from sordino.clients.site import Site
    from sordino.plan import Plan

KEEP = 256 << 20


class WholeClients:
    """What the work of whole clients has in common: an item is a client, which trains on all it holds."""

    def __init__(self, site: Site, theta: np.ndarray, terms: Terms) -> None:
        from sordino.clients.descent import Descent

        self.site, self.plan, self.theta, self.terms = site, terms.plan, theta, terms
        self.descent = Descent(self.plan.optimizer, self.plan.lr, self.plan.momentum)

    def items(self, t: int, cohort: np.ndarray) -> list[int]:
        return [int(k) for k in cohort]

    def weight(self, item: int) -> int:
        return self.site.federation.size(item)

    def assumptions(self) -> tuple[str, ...]:
        return ()  # a whole update is clipped as one vector, in double precision


class ClientUpdate(WholeClients):
    """The work of clients whose whole update is protected (or, without a bound, of plain FedAvg)."""

    def __init__(self, site: Site, theta: np.ndarray, terms: Terms) -> None:
        super().__init__(site, theta, terms)
        self._waiting: dict[tuple[int, int], np.ndarray] = {}  # by round and client
        self._room = KEEP // (4 * site.flat.size)
        self.layers: PersonalLayers | None = None
        if self.plan.personal is not None:
            from sordino.clients.personal import PersonalLayers

            self.layers = PersonalLayers(site.flat, self.plan.personal, site.personal)
        named = defences.build(self.plan)
        self.defence: defences.Change | None = named
        defences.check_model(named, site.flat.model, site.federation.input_shape, site.blank()[0].dtype)

    def query(self, request: Request, item: int) -> Reply:
        """The client's answer about the norm of its update. The update waits for the sum."""
        update = self.update(request.round, item)
        self._waiting = {key: kept for key, kept in self._waiting.items() if key[0] == request.round}
        if len(self._waiting) < self._room:
            self._waiting[request.round, item] = update
        assert request.bound is not None
        return self._answer(request, item, request.bound, update)

    def contribute(self, request: Request, item: int, out: np.ndarray) -> Reply:
        """Add the clipped update, and the client's share of the noise, to `out`."""
        update = self._waiting.pop((request.round, item), None)
        if update is None:
            update = self.update(request.round, item)
        bound = request.bound
        if bound is None:
            out += request.grid.encode(np.nan_to_num(update.astype(np.float64), posinf=0, neginf=0))
            return Reply()
        out += request.grid.encode(bound.clip(update))
        noise = 0.0
        if request.multiplier is not None:
            drawn = self.noise_source(request.round, item, "noise")
            noise = mechanisms.add_share(out, request.grid, bound, request.multiplier, request.survivors, drawn)
        said = Reply() if request.query is None else self._answer(request, item, bound, update)
        return Reply(said.answer, noise, said.answer_noise)

    def noise_source(self, t: int, item: int, purpose: str) -> Source:
        """A stream of this client's own for each round and purpose."""
        return source(self.plan.seed, t, item, purpose, self.plan.secure)

    def update(self, t: int, item: int) -> np.ndarray:
        """theta_k - theta, passed through the plan's defence, weighted."""
        x, y = self.site.client(item)
        moved = self.trained(t, item, x, y) - self.theta
        if self.defence is not None:
            moved = self._defended(self.defence, moved, t, item, x, y)
        return moved * np.float32(own_weight(self.plan, len(y)))

    def trained(self, t: int, item: int, x: Tensor, y: Tensor) -> np.ndarray:
        """theta_k: the client's model after its local training; the shared values where it keeps its own."""
        from sordino.clients.descent import train

        flat = self.site.flat
        flat.load(self.own_model(item, t, self.theta))
        self.site.seed_layers(t, item)
        batches = stream(self.plan.seed, t, item, "batches")
        epochs, batch = self.plan.local_epochs, self.plan.batch_size
        train(flat, self.site.forward, x, y, self.site.loss, self.descent, epochs, batch, batches)
        flat.guard()
        trained = flat.theta.detach().cpu().numpy()
        return trained if self.layers is None else self.layers.leave(trained, self.theta, item, t)

    def own_model(self, item: int, t: int, theta: np.ndarray) -> np.ndarray:
        """What client `item` would use before round t, given the shared model: that, or that with its own layers."""
        return theta if self.layers is None else self.layers.enter(theta, item, t)

    def _defended(
        self, defence: defences.Change, moved: np.ndarray, t: int, item: int, x: Tensor, y: Tensor
    ) -> np.ndarray:
        self.site.flat.load(self.theta)
        rng = self.site.draws.secret(t, item, "defence")
        own = defences.OwnView(self.site.flat, x, y, self.site.loss, self.plan.lr, rng)
        return defence(moved, own)

    def _answer(self, request: Request, item: int, bound: Bound, update: np.ndarray) -> Reply:
        query = request.query
        assert query is not None
        wide = update.astype(np.float64)
        norms = np.array([np.abs(wide).sum() if bound.norm_kind == "l1" else np.sqrt(np.square(wide).sum())])
        if is_raw(query):
            return Reply(query.encode(norms, bound.size))
        assert request.query_grid is not None
        codes, noise = answer_codes(query, norms, bound.size, request.query_grid), 0.0
        if request.query_multiplier is not None:
            noise = add_answer_share(codes, request, self.plan, item)
        return Reply(codes, answer_noise=noise)


def add_answer_share(codes: np.ndarray, request: Request, plan: Plan, client: int) -> float:
    """A client's share of the noise on an answer, in place; the evidence."""
    assert request.query is not None and request.query_grid is not None and request.query_multiplier is not None
    drawn = source(plan.seed, request.round, client, f"query-{request.phase}", plan.secure)
    limit = Flat(request.query.norm)
    return mechanisms.add_share(codes, request.query_grid, limit, request.query_multiplier, request.survivors, drawn)


class Client(Scheme):
    """Whole clients."""

    name = "client"
    whole_updates = True
    work_class = ClientUpdate
    round_class: type[ClippedRound] = ClippedRound

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.noise = noise_for(plan.observer)
        # Who sees the messages sees who takes part: only towards the public is a cohort a secret.
        self.secret_cohort = plan.observer == Observer.PUBLIC
        self.uses_sizes = plan.weights == "size"
        self.keeps_personal = self.keeps_personal or plan.personal is not None

    def check(self) -> None:
        super().check()
        plan = self.plan
        shares = plan.observer == Observer.SECAGG_SERVER
        if shares and plan.sampling == Sampling.POISSON and plan.cohort_size != plan.clients:
            raise BadInput(
                "under secure aggregation the noise is divided among a known number of clients, which poisson does not give; "
                "use sampling fixed."
            )
        if plan.weights == "size" and plan.weight_cap is None:
            raise BadInput("weights size needs a public weight_cap (examples from which on a client weighs in full).")

    # ---- what one client is exposed to -------------------------------------------------------------------------------------

    @property
    def relation(self) -> Relation:
        """Amplification by samples of a fixed size is proven for replace-one only."""
        fixed = self.plan.sampling == Sampling.FIXED and self.secret_cohort
        return Relation.REPLACE_ONE if fixed and self.plan.relation is None else super().relation

    def _check_relation(self) -> None:
        super()._check_relation()
        plan = self.plan
        if plan.sampling == Sampling.FIXED and self.secret_cohort and plan.relation == Relation.ZERO_OUT:
            raise BadInput(
                "fixed-size sampling is proven for relation replace-one only; leave relation out, or use poisson."
            )

    def exposure(self, multipliers: Sequence[float], sizes: PublicSizes) -> Exposure:
        plan = self.plan
        noise = events.laplace if plan.mechanism == "laplace" else events.gaussian
        if not self._amplified:
            return noise
        if plan.sampling == Sampling.FIXED:
            return lambda z: events.without_replacement(plan.clients, plan.cohort_size, noise(z))
        return lambda z: events.poisson(sampling.rate(plan), noise(z))

    @property
    def _amplified(self) -> bool:
        return self.secret_cohort and self.plan.cohort_size < self.plan.clients

    @property
    def cohort_seen(self) -> bool:
        return not self.secret_cohort

    @property
    def round_epochs(self) -> int:
        return self.plan.local_epochs

    def exposures(self, rounds: int) -> int:
        return rounds if self.secret_cohort else sampling.participations(self.plan, rounds)

    def filter_of(self, terms: Terms, client: int) -> Filter:
        """Towards the public a client is charged its sampled share in every round; else it is charged for its own rounds."""
        return super().filter_of(terms, client) if self.secret_cohort else own_rounds(terms, client)

    def proof_sampling(self, sizes: PublicSizes) -> tuple[Sampling, float | None]:
        if not self.secret_cohort or self.plan.sampling == Sampling.NONE:
            return Sampling.NONE, None
        return self.plan.sampling, sampling.rate(self.plan)

    # ---- public numbers ----------------------------------------------------------------------------------------------------

    def units(self, sizes: PublicSizes) -> float:
        return self.plan.cohort_size

    def contributions(self, sizes: PublicSizes) -> float:
        """Where each client adds its own noise in full, noises average out slowly."""
        return self.plan.cohort_size / (math.sqrt(self.plan.cohort_size) if self.noise == Noise.LOCAL else 1.0)

    def denominator(self, sizes: PublicSizes, cohort: np.ndarray) -> float:
        if self.plan.weights == "size":
            return sampling.rate(self.plan) * weight_of(self.plan, sizes, np.arange(self.plan.clients))
        return self.plan.cohort_size

    @property
    def survivors(self) -> int:
        if self.noise != Noise.SHARES:
            return 1
        return self.plan.survivors or self.plan.cohort_size

    # ---- what clients do, and how a round steps ----------------------------------------------------------------------------

    def work(self, site: Site, theta: np.ndarray, rule: Rule, terms: Terms) -> Work[Any]:
        return self.work_class(site, theta, terms)

    def rounds(self, context: Context) -> Round:
        return self.round_class(context)

    def expected(self, terms: Terms, rule: Rule, asked: Request, taken: float) -> Request:
        return expected.clipped(terms, rule, asked, taken)


def own_rounds(terms: Terms, client: int) -> Filter:
    """The rounds that one client is drawn for, where cohorts are public; of equal rounds as many as the busiest has."""
    if not terms.proven or len(terms.schedule) == 1:
        return terms.counted_off([(terms.schedule[0][0], terms.exposures)]) if terms.proven else terms.budget_filter()
    mine = [t for t in range(1, terms.rounds + 1) if client in sampling.public_cohort(terms.plan, t)]
    return terms.counted_off([(terms.round_event(t), 1) for t in mine])


def weight_of(plan: Plan, sizes: PublicSizes, clients: np.ndarray) -> float:
    """The public weights of these clients, added up."""
    if plan.weights == "uniform":
        return float(len(clients))
    sums = sizes.each[clients].astype(np.float64)
    return float(sums.sum() if plan.weight_cap is None else np.minimum(sums / plan.weight_cap, 1.0).sum())


def own_weight(plan: Plan, examples: int) -> float:
    """How much a client of that many examples counts in the mean."""
    if plan.weights == "uniform":
        return 1.0
    return float(examples) if plan.weight_cap is None else min(examples / plan.weight_cap, 1.0)
