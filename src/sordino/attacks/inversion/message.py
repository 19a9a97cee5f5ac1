"""The message that an attacker sees: one real round with the attacked records, after clipping, noise and defence.

The client's own code makes the message, under the bound and the multiplier that the whole run has in that round. The client holds just the
attacked records, which is the worst case for them. Where only sums are seen (secure aggregation, pooled records, a released model)
the attacker is taken to know what the others sent and to subtract it, as the definition of differential privacy grants; with
`others` it sees the sum over all clients and knows nothing about them.

Nothing is charged: this is a simulation on the owner's own machine. Everything that knows how a round is run is in this file.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np

from sordino.attacks.inversion.observed import Clipped, Kind, Make, ObservedMessage
from sordino.attacks.replay import Uncharged
from sordino.clients.site import Site
from sordino.defences import Change
from sordino.engines.inprocess import InProcess
from sordino.engines.scoring import Scoring
from sordino.errors import BadInput
from sordino.federation.population import Federation
from sordino.federation.sampling import Draws
from sordino.federation.server import Arrays, ServerOptimizer
from sordino.federation.sizes import PublicSizes
from sordino.methods import RuleContext
from sordino.plain import Json
from sordino.plan import Plan
from sordino.privacy import events
from sordino.privacy.ledger import Ledger
from sordino.privacy.vocabulary import Observer, Relation
from sordino.rules.base import Rule
from sordino.schemes import settle
from sordino.schemes.client import ClientUpdate
from sordino.schemes.epochs import EpochRelease
from sordino.schemes.local import Local
from sordino.schemes.pooled import Pooled
from sordino.schemes.round import Context
from sordino.schemes.terms import Terms

OPEN = "the client's own message; nothing protects it"  # in words; a run like this is its own control


def observe(
    plan: Plan,
    make: Make,
    federation: Federation,
    client: int,
    records: np.ndarray,
    theta: np.ndarray | None = None,
    t: int = 1,
    defence: Change | None = None,
    others: bool = False,
) -> ObservedMessage:
    """What the observer of `plan` sees of `records` (their places at `client`) in round `t`, on the model `theta`.

    Without `theta` the clients start from the model before round one. The bound is the one that the rule begins with.
    `defence` is one of your own, in place of the plan's.
    """
    why = refusal(plan, t)
    if why is not None:
        raise BadInput(why)
    if not len(records):
        raise BadInput("no records were given to attack; name at least one place at the client.")
    group = _population(federation, client, records, others)
    alone = _plan(plan, group.clients)
    terms = _terms(plan, alone, federation, group, t)
    module = make(plan.seed)
    site = Site(module, group, alone)
    start = site.flat.vector().cpu().numpy() if theta is None else np.asarray(theta, np.float32)
    sizes = tuple(p.numel() for p in module.parameters() if p.requires_grad)
    rule = alone.method_spec.build(RuleContext(alone, sizes, terms.units, terms.multiplier or None))
    shared = start.copy()
    work: Any = terms.scheme.work(site, shared, rule, terms)
    if defence is not None:
        if not isinstance(work, ClientUpdate):
            raise BadInput(
                f"a defence changes whole gradients, and the clients of method {plan.method} in the {plan.unit} unit clip each record's: "
                "use the client unit, or method fedavg."
            )
        work.defence = defence
    mean, bound, multiplier = _one_round(terms, rule, InProcess(work, Scoring(site, shared), shared), work, start, t)
    return _as_seen(plan, alone, group, terms, mean, start, bound, multiplier, others, len(records))


def refusal(plan: Plan, t: int = 1) -> str | None:
    """Why the messages of this plan cannot be had, and what to do; None if they can."""
    if plan.secure:
        return (
            "the noise of this run came from the secure source, so its messages cannot be made again; "
            "train the same plan without --secure and attack that run."
        )
    if plan.optimizer == "adam" and not isinstance(plan.scheme, Pooled):
        return (
            "the clients of this run step with adam, and inversion unrolls SGD only; "
            "train the same plan with --optimizer sgd and attack that run."
        )
    if plan.scheme.min_cohort > 1:
        return f"messages of method {plan.method} under secure aggregation need two clients at least; use --observer server."
    if (plan.method_spec.scheme is not None or plan.scheme.keeps_personal) and t > 1:
        return f"clients of method {plan.method} keep a state of their own over the rounds; attack its first round."
    return None


# ---- the small population ----------------------------------------------------------------------------------------------


def _population(federation: Federation, client: int, records: np.ndarray, others: bool) -> Federation:
    """The attacked client with just these records, alone or among the others."""
    x, y = federation.raw(client)
    if len(records) and (np.min(records) < 0 or np.max(records) >= len(y)):
        raise BadInput(f"client {client} holds {len(y)} records; {np.max(records)} is not among their places.")
    rows = np.asarray(records, np.int64)
    mine = (np.array(x[rows]), np.array(y[rows]))
    clients = [mine]
    if others:
        clients = [mine if k == client else federation.raw(k) for k in range(federation.clients)]
    # Not `from_arrays`: one record has one label, which a population to train on may not have.
    return Federation(
        name=federation.name,
        clients=len(clients),
        classes=federation.classes,
        x=np.concatenate([x for x, _ in clients]),
        y=np.concatenate([np.asarray(y, np.int64) for _, y in clients]),
        offsets=np.concatenate([[0], np.cumsum([len(y) for _, y in clients])]).astype(np.int64),
        normalise=federation.normalise,
    )


def _plan(plan: Plan, clients: int) -> Plan:
    """The plan for one round in which all of them take part."""
    changes: Json = {"clients": clients, "cohort": None, "sampling": "none", "survivors": None, "canaries": 0}
    if plan.method_spec.scheme is not None:  # budgets are the client's own: as many rounds as it is drawn for
        changes["rounds"] = max(1, math.ceil(plan.rounds * plan.cohort_size / plan.clients))
    return plan.replace(**changes, relation=None)


def _terms(plan: Plan, alone: Plan, federation: Federation, group: Federation, t: int) -> Terms:
    """The noise of the whole run, on the small population."""
    if plan.method_spec.scheme is not None:
        return settle(alone, PublicSizes.of(group))
    return Terms(alone, PublicSizes.of(group), settle(plan, PublicSizes.of(federation)).multiplier, plan.rounds)


# ---- the round ---------------------------------------------------------------------------------------------------------


class _Charged(Uncharged):
    def granted(self, *_: object) -> None:
        return None


class _Spy:
    """A server step that keeps the mean it was given."""

    def __init__(self, inner: ServerOptimizer) -> None:
        self.inner, self.mean = inner, np.zeros(0)

    def init(self, size: int) -> Arrays:
        return self.inner.init(size)

    def direction(self, mean: np.ndarray, bound: float | None) -> np.ndarray:
        return self.inner.direction(mean, bound)

    def step(
        self, theta: np.ndarray, mean: np.ndarray, state: Arrays, bound: float | None = None, factor: float = 1.0
    ) -> tuple[np.ndarray, Arrays]:
        self.mean = np.asarray(mean, np.float64)
        return self.inner.step(theta, mean, state, bound, factor)


def _one_round(
    terms: Terms, rule: Rule, engine: InProcess, work: Any, theta: np.ndarray, t: int
) -> tuple[np.ndarray, float | None, float]:
    """The mean that the server receives, the bound and the multiplier."""
    ledger = cast(Ledger, _Charged())
    rounds: Any = terms.scheme.rounds(Context(terms, rule, engine, work, ledger, Draws(terms.plan)))
    spy = _Spy(rounds.optimizer)
    rounds.optimizer = spy
    before = replace(rounds.start(theta.copy()), round=t - 1)
    _, facts = rounds.run(before)
    return spy.mean, facts.bound, float(facts.multiplier)


def _as_seen(
    plan: Plan,
    alone: Plan,
    group: Federation,
    terms: Terms,
    mean: np.ndarray,
    theta: np.ndarray,
    bound: float | None,
    multiplier: float,
    others: bool,
    records: int,
) -> ObservedMessage:
    common: Json = {
        "theta": theta, "batch": group.examples if others else records, "bound": bound, "multiplier": multiplier or None,
        "defence": plan.defence or "",
    }  # fmt: skip
    if isinstance(plan.scheme, Pooled):  # what is sent is the way down
        return ObservedMessage((-mean).astype(np.float32), "gradient", clipped="record", **common)
    steps = Local(alone).local_steps(records)
    clipped: Clipped = "" if bound is None else "record" if isinstance(plan.scheme, Local) else "update"
    if plan.method_spec.scheme is not None:  # steps are measured in bounds: the plan's
        common["bound"] = plan.bound
    # Where clients send a sum of gradients, the server's step makes an update of it, and of its bound.
    reach = plan.scheme.server_lr / plan.server_lr
    if bound is not None:
        mean, common["bound"] = mean * reach, common["bound"] * reach
    kind: Kind = "model-update" if not others else "sum"
    total = mean * (terms.denominator(np.arange(group.clients)) if others else 1.0)
    size = 0 if isinstance(plan.scheme, Local) else min(plan.batch_size, records)
    return ObservedMessage(
        total.astype(np.float32), kind, local_steps=steps, lr=plan.lr, clients=group.clients, clipped=clipped, step_batch=size,
        momentum=plan.momentum if plan.optimizer == "momentum" else 0.0, **common,
    )  # fmt: skip


def defended(plan: Plan) -> bool:
    """Whether noise, or a heuristic, stands between the attacker and a client's update."""
    return plan.private or plan.defence is not None


def view_of(plan: Plan) -> str:
    """What the attacker is taken to see, in words."""
    if not defended(plan):
        return OPEN
    if not plan.private:
        return f"the client's own message behind {plan.defence}, a heuristic without a guarantee"
    if plan.observer == Observer.SERVER:
        return "the client's own message with its full noise"
    if plan.observer == Observer.SECAGG_SERVER:
        return "the sum under secure aggregation, with all that the other clients sent subtracted"
    return "the released model, with all that the other clients sent subtracted"


def undefended(plan: Plan) -> Plan:
    """The same clients without clipping and noise: what the attack must succeed on to tell anything."""
    return plan.replace(
        method="fedavg", variant="published", mechanism="gaussian", options={}, unit="client", observer="public", relation=None,
        epsilon=None, multiplier=None, weights="uniform", weight_cap=None, canaries=0, survivors=None, sampling="none",
        cohort=None, optimizer="sgd", steps="mean", lr_schedule="constant", average="none", metanet=None, defence=None, personal=None,
    )  # fmt: skip


def released(plan: Plan, federation: Federation) -> tuple[events.Event, Relation] | None:
    """The event of the whole run and its relation, for the reconstruction bound; None where nothing is proven as one event."""
    if plan.method_spec.scheme is not None:
        return None
    terms = settle(plan, PublicSizes.of(federation))
    return (terms.total, terms.relation) if terms.proven else None


def one_message(plan: Plan, seen: ObservedMessage, proven: bool) -> events.Event | None:
    """The event of this one message for a record that is known to be in it; None where it carries no noise or the run is not `proven`.

    A run's event counts on records (or clients) being drawn in secret. The attacked message is of a round in which they were drawn.
    """
    if seen.multiplier is None or not proven:
        return None
    noise = events.laplace(seen.multiplier) if plan.mechanism == "laplace" else events.gaussian(seen.multiplier)
    if isinstance(plan.scheme, EpochRelease):
        return events.repeated(noise, plan.local_epochs)
    return events.repeated(noise, seen.local_steps) if isinstance(plan.scheme, Local) else noise
