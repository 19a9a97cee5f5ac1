"""Bugs to be caught: each a small change to one place of the library, of a kind that public code has had.

A bug is planted through the doors that the library offers to everybody: a method of one's own, with a rule, a scheme, a
round or clients' work that derive from the real ones and get one thing wrong (`broken`). Nothing of the library is
changed while it runs. Where the library's own checks stop the bug, `unchecked` makes a round without them, so that the
audit has to find the leak; `armed` is the same with the checks in place.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from sordino.audit.broken import (
    Bare,
    EveryoneDraws,
    ForgottenShare,
    LateBound,
    NoiseWhereShared,
    OnlyGroups,
    OutOfTurn,
    PerTensor,
    Rebound,
    RestartedNoise,
    SameForAll,
    SameNoise,
    ScaledUp,
    SumOnly,
    TooManySurvivors,
    Uncapped,
    Unchecked,
    Unclipped,
    UnclippedAnswers,
    UploadedPersonal,
    UpsideDown,
    ViaL2,
    WholeBits,
    weaker,
)
from sordino.audit.cases import IN_TURNS, TRAINS, Case
from sordino.audit.script import JUST_WITHIN, Script
from sordino.federation.sizes import PublicSizes
from sordino.methods import METHODS, Method, RuleContext
from sordino.privacy import events
from sordino.privacy.bounds import Bound, Flat, Grouped
from sordino.rules import adact
from sordino.rules.base import Rule
from sordino.schemes.base import Exposure, Scheme
from sordino.schemes.client import Client, ClientUpdate
from sordino.schemes.fed_dpa import FedDpa, FedDpaUpdate
from sordino.schemes.local import Local
from sordino.schemes.pooled import Pooled
from sordino.schemes.turns import Turns


@dataclass(frozen=True)
class Mutation:
    """A bug, and the case that shows it."""

    name: str
    method: Method
    settings: Mapping[str, object] = field(default_factory=dict)
    script: Script = Script()
    resumes: bool = False
    dimension: int = 16
    effort: int = 1  # how many times the usual number of runs it takes
    checked: Method | None = None  # the same bug with the library's own checks in place; None: it has them already

    @property
    def case(self) -> Case:
        """The case that shows the bug, without the checks that would stop it."""
        return self._case(self.method)

    @property
    def armed(self) -> Case:
        """The same bug, with the checks of the library in place."""
        return self._case(self.checked or self.method)

    def _case(self, method: Method) -> Case:
        named = dataclasses.replace(method, name=f"{method.name} ({self.name})")
        return Case({**self.settings, "method": named}, self.script, self.resumes, self.dimension)


# ---- ways to plant a bug ---------------------------------------------------------------------------------------------


def broken(base: str, scheme: type[Scheme], rule: Callable[..., Rule] | None = None) -> Method:
    """A method of the table whose scheme, or rule, is a broken one."""
    known = METHODS[base]
    return dataclasses.replace(known, scheme=scheme, rule=rule or known.rule)


def _client(**parts: object) -> type[Scheme]:
    return type("BrokenClient", (Client,), parts)


def _pooled(**parts: object) -> type[Scheme]:
    return type("BrokenPooled", (Pooled,), parts)


class _Methods(TypedDict):
    """The two methods of a `Mutation`."""

    method: Method
    checked: Method


def _rebound(base: str, change: Callable[[Bound], Bound], scheme: Callable[..., type[Scheme]] = _client) -> _Methods:
    """Methods whose rule clips by a broken bound: without the check of bounds, and with it."""
    made = METHODS[base].rule

    def rule(context: RuleContext, **options: float) -> Rule:
        return Rebound(made(context, **options), change)

    # Options are the keywords of a rule; these have none of their own here.
    rule.__signature__ = _signature(made)  # type: ignore[attr-defined]
    return {
        "method": broken(base, scheme(round_class=Unchecked), rule),
        "checked": broken(base, scheme(), rule),
    }


def _signature(made: Callable[..., Rule]) -> inspect.Signature:
    return inspect.signature(made)


# ---- schemes that say the wrong thing --------------------------------------------------------------------------------


class SumAccounted(Client):
    """The event of the sum, where that of the round is due."""

    def exposure(self, multipliers: Sequence[float], sizes: PublicSizes) -> Exposure:
        true, share = super().exposure(multipliers, sizes), self.plan.options["share"]
        return lambda z: true(z / math.sqrt(1 - share))


class StepsUncharged(Local):
    """One step of a round is charged, whatever the number of steps."""

    def client_round(self, z: float, examples: int) -> events.Event:
        q = self.rate(examples)
        return events.gaussian(z) if q == 1 else events.poisson(q, events.gaussian(z))


class ChargedAsSampled(Pooled):
    """All records are drawn every time, and a third of that is charged."""

    def exposure(self, multipliers: Sequence[float], sizes: PublicSizes) -> Exposure:
        return lambda z: events.poisson(self.rate(sizes) / 3, events.gaussian(z))


def _fed_dpa(work: type[FedDpaUpdate]) -> Method:
    return broken("fed-dpa", type("BrokenFedDpa", (FedDpa,), {"work_class": work}))


BITS = {"options": {"share": 0.9}}

MUTATIONS = (
    Mutation("noise scaled by 2/3", broken("dp-fedavg", _client(round_class=weaker(2 / 3)))),
    Mutation("noise for the next round's bound", **_rebound("dp-fedamvc", LateBound.of)),
    Mutation(
        "noise on the mean over all clients, not the cohort",
        broken("dp-fedavg", _client(round_class=weaker(0.25))),
        {"sampling": "poisson", "clients": 4, "cohort": 1},
        effort=3,  # the target takes part in one round of four
    ),
    Mutation("clipping per tensor, noise for one", **_rebound("dp-fedavg", lambda b: PerTensor(_flat(b)))),
    Mutation("noise of each group for its own bound", **_rebound("dp-fedggc", lambda b: OnlyGroups(*_groups(b)))),
    Mutation("no clipping", **_rebound("dp-fedavg", lambda b: Unclipped(_flat(b)))),
    Mutation(
        "clip factor upside down",
        settings={"unit": "example"},
        script=Script(length=30.0),
        **_rebound("dp-fedavg", lambda b: UpsideDown(_flat(b)), _pooled),
    ),
    Mutation("bits without noise", broken("quantile", _client(round_class=Bare)), BITS),
    Mutation(
        "bits of 0 and 1, accounted as centred",
        broken("quantile", _client(work_class=WholeBits)),
        BITS,
        Script(length=JUST_WITHIN),
    ),
    Mutation("bounded value without its cap", broken("dp-fedagnc", _client(work_class=Uncapped))),
    Mutation(
        "answers not clipped to the norm that they declare", broken("dp-fedagnc", _client(work_class=UnclippedAnswers))
    ),
    Mutation(
        "histogram not charged",
        broken("adact", type("SumOnlyUnchecked", (Client,), {"round_class": type("_", (SumOnly, Unchecked), {})})),
        {"options": {"share": 0.97, "opening": 0.97}},
        effort=3,  # at worst it costs a factor of sqrt(2)
        checked=broken("adact", _client(round_class=SumOnly)),
    ),
    Mutation(
        "multiplier of the sum accounted, not of the round",
        broken("quantile", SumAccounted),
        {"options": {"share": 0.75}},
    ),
    Mutation("the same noise every round", broken("dp-fedavg", _client(round_class=SameNoise))),
    Mutation(
        "the same noise from every client",
        broken("dp-fedavg", _client(work_class=SameForAll)),
        {"observer": "server", "sampling": "fixed"},
    ),
    Mutation(
        "the same noise again after a resume", broken("dp-fedavg", _client(round_class=RestartedNoise)), resumes=True
    ),
    Mutation(
        "shares of the noise for too many survivors",
        broken("dp-fedavg", _client(work_class=TooManySurvivors)),
        {"observer": "secagg-server", "sampling": "fixed"},
    ),
    Mutation(
        "a share of the noise that was forgotten and claimed",
        broken("dp-fedavg", _client(work_class=ForgottenShare)),
        {"observer": "secagg-server", "sampling": "fixed"},
    ),
    Mutation(
        "local steps not charged",
        broken("dp-fedavg", StepsUncharged),
        {"unit": "example", "observer": "server", "clients": 1, "rounds": 1, "local_epochs": 4},
    ),
    Mutation(
        "everyone takes part, accounted as sampled",
        broken("dp-fedavg", _client(round_class=EveryoneDraws)),
        {"sampling": "poisson", "clients": 4, "cohort": 1},
    ),
    Mutation(
        "clients that do not wait for their turn",
        broken("dp-bandmf", type("Crowded", (Turns,), {"round_class": OutOfTurn, "work_class": ClientUpdate})),
        IN_TURNS,
        Script(turns=False),
        checked=broken("dp-bandmf", type("CrowdedChecked", (Turns,), {"round_class": OutOfTurn})),
    ),
    Mutation(
        "records drawn every time, charged as sampled",
        broken("dp-fedavg", ChargedAsSampled),
        {"unit": "example", "sampling": "poisson", "batch_size": 3},
    ),
    Mutation("personal coordinates sent, and left out of the norm", _fed_dpa(UploadedPersonal), {"rounds": 1}, TRAINS),
    Mutation("scaled up for personal coordinates after clipping", _fed_dpa(ScaledUp), {"rounds": 1}, TRAINS),
    Mutation(
        "noise on shared coordinates only",
        _fed_dpa(NoiseWhereShared),
        {"observer": "server", "sampling": "fixed", "rounds": 1},
        TRAINS,
        dimension=64,
    ),
    Mutation(
        "the raw norm as bound",
        broken("adact", _client(round_class=Unchecked), adact.published),
        checked=broken("adact", _client(), adact.published),
    ),
    Mutation(
        "Laplace noise after L2 clipping",
        settings={"mechanism": "laplace", "epsilon": 3.0, "delta": 0.01, "rounds": 1},
        dimension=64,
        effort=3,  # its epsilon is large where delta is small, and that takes many runs to see
        **_rebound("dp-fedavg", lambda b: ViaL2(b.size)),
    ),
)


def _flat(bound: Bound) -> float:
    assert isinstance(bound, Flat)
    return bound.bound


def _groups(bound: Bound) -> tuple[tuple[int, ...], tuple[float, ...]]:
    assert isinstance(bound, Grouped)
    return bound.sizes, bound.bounds
