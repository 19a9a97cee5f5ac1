"""Two worlds that differ in one unit, run many times through the real code.

A `Stage` is a federation of one or two clients in which one unit, the *target*, does the worst that a unit can: its
contribution is as long as the bound lets it be, in a direction that the observer knows. `Stage.play` runs the plan's
rounds, by `sordino.schemes.round.Round` and all that stands behind it, in the world with the target or in the one
without, and returns everything that the plan's observer sees, as releases.

Only what clients compute is scripted: in the client unit an update is a given vector, in the example unit the gradient of a
record is the record itself (a linear model under a linear loss). With `Script.trains` the target computes its own update too.
Clipping, noise, queries, rules, sampling, denominators and events are the library's own. What a missing unit means follows the plan's relation: it is
there and gives nothing but its share of the noise (zero-out), or it is its own opposite (replace-one).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from sordino.audit.rule_observer import RuleObserver
from sordino.audit.script import TARGET, Parts, Script, linear_loss, tiny
from sordino.audit.scripted import NoLedger, QuietSite, Without, by_epoch, scripted
from sordino.engines.inprocess import InProcess
from sordino.federation.sampling import Draws
from sordino.federation.sizes import PublicSizes
from sordino.methods import RuleContext
from sordino.plan import Plan
from sordino.privacy.bounds import Bound, Coordinates
from sordino.privacy.ledger import Ledger
from sordino.privacy.vocabulary import Noise, Relation, Unit
from sordino.rules.base import RoundOutput, Rule, State
from sordino.rules.query import Query, is_raw, split
from sordino.schemes import settle
from sordino.schemes.client import Client
from sordino.schemes.epochs import EpochRelease
from sordino.schemes.round import Context, Round
from sordino.schemes.turns import Turns


@dataclass(frozen=True)
class Release:
    """One noisy sum and what came with it, as the observer has them.

    `shift` is what the target adds to it, `std` the noise that the plan speaks of; `answers` holds the same three for
    each query. `others` are messages of other clients, where the observer sees them.
    """

    value: np.ndarray
    shift: np.ndarray
    std: float | np.ndarray
    bound: float
    answers: tuple[tuple[np.ndarray, np.ndarray, float | None], ...] = ()
    others: tuple[np.ndarray, ...] = ()


@dataclass
class Stage:
    """One plan on the tiny federation. Make it once, play it often."""

    plan: Plan
    script: Script = field(default_factory=Script)
    dimension: int = 16
    resumes: bool = False  # every round is run by a new process, as far as the round can tell

    def __post_init__(self) -> None:
        self.federation = tiny(self.plan, self.script, self.dimension)
        self.public = PublicSizes.of(self.federation)
        self.terms = settle(self.plan, self.public)
        model = Parts(self.dimension)
        self.sizes = tuple(p.numel() for p in model.parameters())
        context = RuleContext(self.plan, self.sizes, self.terms.units, self.terms.multiplier)
        self.rule = _Recorder(self.plan.method_spec.build(context), self)
        self.site = site = QuietSite(model, self.federation, self.plan, linear_loss)
        theta = np.zeros(self.dimension, np.float32)
        scheme = self.terms.scheme
        if isinstance(scheme, EpochRelease):
            self.work: Any = by_epoch(site, theta, self)
        elif isinstance(scheme, Client):
            self.work = scripted(scheme.work_class)(site, theta, self)
        else:
            self.work = scheme.work(site, theta, self.rule, self.terms)
            self.work.per_example = Without(self.work.per_example, self)
        self.engine = InProcess(self.work, None, theta)
        self.present = True
        self.releases: list[Release] = []

    @property
    def replaces(self) -> bool:
        """Whether the neighbouring world holds another unit in the place of the target."""
        return self.terms.relation == Relation.REPLACE_ONE

    @property
    def rate(self) -> float:
        """The probability with which the target takes part in a release."""
        return self.terms.scheme.release_rate(self.terms)

    def play(self, present: bool, seed: int) -> list[Release]:
        """One run of all rounds, with or without the target; what the observer saw."""
        self.present, self.releases = present, []
        self.site.forget()
        plan = self.plan.replace(seed=seed)
        terms = dataclasses.replace(self.terms, plan=plan)
        draws = Draws(plan)
        self.work.plan, self.work.terms, self.work.site.plan, self.work.site.draws = plan, terms, plan, draws
        ledger = cast(Ledger, NoLedger(terms.client_budgets()))
        context = Context(terms, self.rule, self.engine, self.work, ledger, draws)
        rounds = self._rounds(context)
        model = rounds.start(np.zeros(self.dimension, np.float32))
        for _ in range(self.terms.rounds):
            if self.resumes:
                rounds = self._rounds(context)
            model = rounds.run(model).state
        return (
            self._multiplied(plan) if isinstance(plan.scheme, Turns) and plan.scheme.separation > 1 else self.releases
        )

    def _multiplied(self, plan: Plan) -> list[Release]:
        """What left in rounds of correlated noise, times C: noise is then independent, and one turn shows in b of these."""
        scheme, releases, out = plan.scheme, self.releases, []
        assert isinstance(scheme, Turns)
        turns = [TARGET in group for t in range(len(releases)) if (group := scheme.turn(t + 1)) is not None]
        for t, last in enumerate(releases):
            parts = list(zip(scheme.bands.coefficients, range(t, -1, -1)))
            value = sum((c * releases[s].value for c, s in parts), np.zeros(self.dimension))
            shift = sum((c * turns[s] * releases[s].shift for c, s in parts), np.zeros(self.dimension))
            std = last.bound * self.terms.multiplier * scheme.bands.norm
            out.append(Release(value, shift, std, last.bound))
        return out

    def _rounds(self, context: Context) -> Round:
        return context.terms.scheme.rounds(context)

    # ---- what the target is ------------------------------------------------------------------------------------------

    def vector(self, t: int, bound: Bound, present: bool = True) -> np.ndarray:
        """The target's update or gradient; its opposite, with the other answer to every query, if it was replaced."""
        if self.plan.unit == Unit.EXAMPLE:
            size, toward = self.plan.bound, 1.0
        else:
            size, toward = bound.size, self.script.sign(t)
        if not present:
            return -toward * self.script.other_length * size * self.script.direction(self.dimension)
        return toward * self.script.length * size * self.script.direction(self.dimension)

    def shift(self, t: int, bound: Bound) -> np.ndarray:
        """What the target adds to the sum. The observer knows the target, as the definition of privacy has it."""
        if self.script.trains:
            added: np.ndarray = self.work.added
            return added
        return bound.clip(self.vector(t, bound) * self.terms.scheme.gradient_sign)  # gradients leave as the way down

    @property
    def scale(self) -> float:
        """From a mean to a sum."""
        return self.terms.units

    def summed(self, mean: np.ndarray, bound: Bound) -> np.ndarray:
        """A released mean as a noisy sum, in the space where contributions were clipped."""
        if isinstance(bound, Coordinates):
            mean = (mean - bound.mean) / bound.scale
        return mean * self.scale

    def told(self, query: Query, t: int, bound: Bound) -> np.ndarray:
        """What the target adds to an answer."""
        norm = np.linalg.norm(self.vector(t, bound), 1 if bound.norm_kind == "l1" else 2)
        return np.zeros(0) if is_raw(query) else query.encode(np.array([norm]), bound.size)


class _Recorder(RuleObserver):
    """The plan's rule, with a note of everything that is released."""

    def __init__(self, rule: Rule, stage: Stage) -> None:
        super().__init__(rule)
        self.stage = stage

    def note(self, state: State, seen: RoundOutput) -> None:
        stage = self.stage
        if isinstance(stage.terms.scheme, EpochRelease):
            if stage.work.acting == TARGET:  # what the server sees of it is the sum of these, and no more
                shift = stage.shift(seen.round, seen.bound)
                stage.releases.append(Release(seen.mean, shift, np.asarray(seen.noise), seen.bound.size))
            return
        messages = stage.work.messages if isinstance(stage.terms.scheme, Client) else []  # only clients send some
        pre_clip, with_sum = self.rule.query(state)
        asked = [q for q in (pre_clip, with_sum) if q is not None]
        if isinstance(stage.terms.scheme, Client) and stage.terms.scheme.noise == Noise.LOCAL:
            own = [m for m in messages if m.item == TARGET]
            others = tuple(m.value for m in messages if m.item != TARGET and not m.answer_only)
            z_sum, stds = split(stage.terms.multiplier_of(seen.round), pre_clip, with_sum)
            value, std = own[-1].value, seen.bound.std(z_sum)
            told = [m.answer for m in own if m.answer is not None]
            spread = [s for q, s in zip((pre_clip, with_sum), stds) if q is not None]
        else:
            value, others, std = stage.summed(seen.mean, seen.bound), (), np.asarray(seen.noise) * stage.scale
            said = [a for a in (seen.pre_clip, seen.answer) if a is not None]
            told, spread = [a.total for a in said], [a.std or None for a in said]
        last = self.rule.bound(state, None)  # what is asked before the sum is asked under the bound last known
        under = [last if q is pre_clip else seen.bound for q in asked]
        queries = tuple((a, stage.told(q, seen.round, b), s) for a, q, s, b in zip(told, asked, spread, under))
        shift = stage.shift(seen.round, seen.bound)
        stage.releases.append(Release(value, shift, std, seen.bound.size, queries, others))
        messages.clear()
