"""Bugs to be caught: each a small change to one place of the library, of a kind that public code has had.

A mutation is planted while a case is settled and played, and taken out again. It names the case in which it does most
harm. Where the library's own checks would stop the run, `disarmed` takes them away too, so that the audit has to find
the leak.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sordino import plan as plans
from sordino.audit.cases import Case
from sordino.audit.scripted import JUST_WITHIN, TENSORS, Script
from sordino.federation import sampling
from sordino.privacy import bounds, mechanisms
from sordino.privacy.release import Released, _open
from sordino.rules import adact, query
from sordino.rules.schedule import Scheduled
from sordino.schemes import base as rounds
from sordino.schemes import client as whole
from sordino.schemes import local as dpsgd
from sordino.schemes import pooled, terms

# Modules that take names from a place of a patch must have done so before it is made, or they would keep it.
TAKEN = (dpsgd, pooled)
Patch = tuple[Any, str, Any]  # where, which name, what instead


@dataclass(frozen=True)
class Mutation:
    """A bug, and the case that shows it."""

    name: str
    patches: Callable[[], list[Patch]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    script: Script = Script()
    resumes: bool = False
    dimension: int = 16
    disarmed: Callable[[], list[Patch]] = list  # the library's own checks that stand in the way
    effort: int = 1  # how many times the usual number of runs it takes

    @property
    def case(self) -> Case:
        return Case(self.settings, self.script, self.resumes, self.dimension)

    @contextmanager
    def planted(self, armed: bool = False) -> Iterator[None]:
        with ExitStack() as stack:
            for patch in self.patches() + ([] if armed else self.disarmed()):
                stack.enter_context(patched(*patch))
            yield


@contextmanager
def patched(place: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(place, name)
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)


# ---- noise -----------------------------------------------------------------------------------------------------------


def _weaker(factor: float) -> list[Patch]:
    spread = mechanisms._spread
    return [(mechanisms, "_spread", lambda bound, z, length: factor * spread(bound, z, length))]


@dataclass(frozen=True)
class _Late(bounds.Flat):
    """Clips to one bound and takes noise for the next."""

    following: float = 1.0

    def std(self, multiplier: float) -> float:
        return multiplier * self.following


def _next_bound() -> list[Patch]:
    def late(rule: Any, state: Any, answer: Any) -> bounds.Bound:
        return _Late(rule.at(state["round"]).size, rule.at(state["round"] + 1).size)

    return [(Scheduled, "bound", late)]


def _same_every_round() -> list[Patch]:
    source = rounds.source
    return [(rounds, "source", lambda seed, t, *rest: source(seed, 0, *rest))]


def _same_for_all() -> list[Patch]:
    source = whole.source
    return [(whole, "source", lambda seed, t, client, *rest: source(seed, t, 0, *rest))]


def _restarted() -> list[Patch]:
    """One generator for all rounds of a process, which begins anew when the run is resumed."""
    source, start = rounds.source, rounds.Round.__init__
    state: dict[str, Any] = {}

    def begin(self: Any, *args: Any) -> None:
        start(self, *args)
        state["source"] = source(self.plan.seed, 0, -1, "noise", False)

    return [(rounds.Round, "__init__", begin), (rounds, "source", lambda *key: state["source"])]


def _too_many_survivors() -> list[Patch]:
    share = whole.noise_share
    return [(whole, "noise_share", lambda bound, z, h, source, length: share(bound, z, 4 * h, source, length))]


def _no_noise_for_nobody() -> list[Patch]:
    release = rounds.Round._release

    def lazy(self: Any, harvest: Any, bound: Any, z: float, t: int) -> Any:
        noisy = release(self, harvest, bound, z, t)
        return noisy if len(sampling.draw(self.plan, t)) else Released(np.zeros_like(noisy.value), "nobody came")

    return [(rounds.Round, "_release", lazy)]


# ---- clipping --------------------------------------------------------------------------------------------------------


def _per_tensor() -> list[Patch]:
    clip = bounds.Flat.clip
    return [(bounds.Flat, "clip", lambda self, v: np.concatenate([clip(self, part) for part in np.split(v, TENSORS)]))]


def _group_by_group() -> list[Patch]:
    return [(bounds.Grouped, "std", lambda self, z: np.repeat(z * np.array(self.bounds), self.sizes))]


def _raw_norm() -> list[Patch]:
    method = plans.method
    return [(plans, "method", lambda name: dataclasses.replace(method(name), rule=adact.published))]


# ---- queries and accounts --------------------------------------------------------------------------------------------


def _without_query_noise() -> list[Patch]:
    release = mechanisms.release_query

    def bare(total: Any, *rest: Any) -> Any:
        return Released(_open(total), "forgotten"), release(total, *rest)[1]

    return [(mechanisms, "release_query", bare)]


def _uncharged() -> list[Patch]:
    split = rounds.split
    return [(rounds, "split", lambda z, *queries: (z, split(z, *queries)[1]))]


def _charged_for_the_sum_only() -> list[Patch]:
    slot = terms.Terms._slot
    return [(terms.Terms, "_slot", lambda self, z: slot(self, z / math.sqrt(1 - self.plan.options["share"])))]


def _unchecked() -> list[Patch]:
    return [(rounds.Round, "_check_released", lambda self, t: None)]


BITS = {"method": "quantile", "options": {"share": 0.9}}

MUTATIONS = (
    Mutation("noise scaled by 2/3", lambda: _weaker(2 / 3)),
    Mutation("noise for the next round's bound", _next_bound, {"method": "dp-fedamvc"}),
    Mutation(
        "noise on the mean over all clients, not the cohort",
        lambda: _weaker(0.25),
        {"sampling": "poisson", "clients": 4, "cohort": 1},
    ),
    Mutation("clipping per tensor, noise for one", _per_tensor),
    Mutation("noise of each group for its own bound", _group_by_group, {"method": "dp-fedggc"}),
    Mutation("no clipping", lambda: [(bounds.Flat, "clip", lambda self, v: np.asarray(v, float))]),
    Mutation(
        "clip factor upside down",
        lambda: [(bounds, "_flat_factors", lambda norms, bound: np.maximum(1.0, np.asarray(norms, float) / bound))],
        {"unit": "example"},
        Script(length=30.0),
    ),
    Mutation("bits without noise", _without_query_noise, BITS),
    Mutation(
        "bits of 0 and 1, accounted as centred",
        lambda: [(query.CentredBit, "encode", lambda self, n, b: np.array([np.sum(np.asarray(n) <= b)], float))],
        BITS,
        Script(length=JUST_WITHIN),
    ),
    Mutation(
        "bounded value without its cap",
        lambda: [
            (query.BoundedValue, "encode", lambda self, n, b: np.array([np.sum(np.asarray(n, float) / (self.cap * b))]))
        ],
        {"method": "dp-fedagnc"},
    ),
    Mutation(
        "histogram not charged",
        _uncharged,
        {"method": "adact", "options": {"share": 0.97, "opening": 0.97}},
        disarmed=_unchecked,
        effort=3,  # at worst it costs a factor of sqrt(2)
    ),
    Mutation(
        "multiplier of the sum accounted, not of the round",
        _charged_for_the_sum_only,
        {"method": "quantile", "options": {"share": 0.75}},
    ),
    Mutation("the same noise every round", _same_every_round),
    Mutation("the same noise from every client", _same_for_all, {"observer": "server", "sampling": "fixed"}),
    Mutation("the same noise again after a resume", _restarted, resumes=True),
    Mutation(
        "shares of the noise for too many survivors",
        _too_many_survivors,
        {"observer": "secagg-server", "sampling": "fixed"},
    ),
    Mutation(
        "the realised cohort as denominator",
        lambda: [(terms.Terms, "denominator", lambda self, cohort: max(1, len(cohort)))],
    ),
    Mutation("no noise for an empty cohort", _no_noise_for_nobody, {"clients": 1, "sampling": "poisson", "cohort": 1}),
    Mutation(
        "local steps not charged",
        lambda: [(terms, "local_steps", lambda plan, examples: 1)],
        {"unit": "example", "observer": "server", "clients": 1, "rounds": 1, "local_epochs": 4},
    ),
    Mutation(
        "everyone takes part, accounted as sampled",
        lambda: [(sampling, "draw", lambda plan, t: np.arange(plan.clients))],
        {"sampling": "poisson", "clients": 4, "cohort": 1},
    ),
    Mutation("the raw norm as bound", _raw_norm, {"method": "adact"}),
    Mutation(
        "Laplace noise after L2 clipping",
        lambda: [(bounds.L1, "clip", lambda self, v: bounds.Flat(self.bound).clip(v))],
        {"mechanism": "laplace", "epsilon": 3.0, "delta": 0.01, "rounds": 1},
        dimension=64,
        effort=3,  # its epsilon is large where delta is small, and that takes many runs to see
    ),
)
