"""DP-FedACN (Zhang et al., Exploring the privacy-accuracy trade-off using adaptive gradient clipping in federated
learning): the bound follows the median of the norms and decays with 1/sqrt(t).

Published (algorithm 1, equations 9 and 13 to 15), with the fraction of clients below the bound less one half as L_t:

    C_0 = mean raw norm of round 1,   C_{t+1} = exp(+L_t) rho_t C_t,   rho_1 = 1, rho_t = sqrt(1 - 1/t)

A client's contribution is g, the sum of its gradients; the server multiplies by the learning rate (`schemes.gradient_sum`). Nothing
in the paper links sigma to its epsilons. Here sigma is z C: C is the plan's bound, and z the multiplier that was given, or the one
that the certified variant needs for the epsilon that was asked for. The statement says which.

The bits are exact, the noise N(0, sigma^2) does not follow C_t, and the sign is wrong: to minimise the loss of
equation 11 the bound must shrink when most norms lie below it. As printed it runs away from the median, to zero or
without end.

Certified: a public C_0, noisy centred bits, the minus sign, noise in proportion to the bound; the decay is kept. This
is the tracker of Andrew et al. 2021 for gamma = 1/2, times a public factor that tends to 1. Its steps begin as large as
those of equation 14 (eta = 1) and are halved at each overshoot, down to 0.2: with eta = 1 it swings about the median.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sordino.errors import positive
from sordino.privacy.bounds import Bound, Flat
from sordino.privacy.vocabulary import Unit
from sordino.rules import quantile
from sordino.rules.base import Queries, RoundOutput, State, trust
from sordino.rules.exact import finite
from sordino.rules.quantile import Quantile, clamp
from sordino.rules.query import Answer, RawBit, RawNorm

if TYPE_CHECKING:
    from sordino.methods import RuleContext
    from sordino.plan import Plan

REASONS = (
    "No formula ties the noise to epsilon: it is a label on the experiments, with neither theorem nor calibration.",
    "Each client sends an exact bit on its norm every round, against a moving threshold: the norm is bisected.",
    "The first bound is the mean of the raw norms, which is neither bounded nor noised.",
    "The noise does not follow the bound, so that the true multiplier sigma/C_t drifts with the data.",
    "The sign in equation 14 makes the bound run away from the median instead of towards it.",
    "Delta, 0.001, is that of the records of a client, while all of a client's gradients are clipped as one.",
)
PAPER_DELTA = 0.001


def reasons_of(plan: Plan) -> tuple[str, ...]:
    """True of this run: where its sigma comes from, and of which unit the bits are."""
    label, bits, first, noise, sign, delta = REASONS
    how = (
        f"{label} Here sigma is the multiplier {plan.multiplier:g} that was given, times the plan's bound of {plan.bound:g}."
        if plan.multiplier is not None
        else f"{label} Here sigma is what the certified variant needs for epsilon {plan.epsilon:g} at the plan's bound of {plan.bound:g}."
    )
    if plan.unit == Unit.CLIENT:
        return (how, bits, first, noise, sign, *((delta,) if plan.delta == PAPER_DELTA else ()))
    of_records = (
        "Every release uses an exact bit on each record's norm, against a moving threshold: the norm is bisected."
    )
    return (how, of_records, first, noise, sign)


def sigma(plan: Plan, multiplier: float) -> float:
    """The standard deviation that is drawn, whatever C_t is."""
    return multiplier * plan.bound


def rho(t: float) -> float:
    """The decay of round t (equation 9)."""
    return math.sqrt(1 - 1 / t) if t > 1 else 1.0


@dataclass(frozen=True)
class Decaying:
    """As repaired."""

    tracker: Quantile

    def init(self) -> State:
        return self.tracker.init()

    def query(self, state: State) -> Queries:
        return self.tracker.query(state)

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return self.tracker.bound(state, answer)

    def observe(self, state: State, seen: RoundOutput) -> State:
        assert seen.answer is not None
        after = self.tracker.observe(state, seen)
        if not seen.ends_round:
            return after  # bits move the bound whenever they are released, the decay once a round
        # The decay is followed as far as the bits are: alone, it would carry the bound off.
        decay = rho(seen.round) ** trust(seen.answer.noise)
        return {**after, "bound": clamp(after["bound"] * decay)}


@dataclass(frozen=True)
class AsPrinted:
    """Algorithm 1 to the letter."""

    start: float = 1.0  # only sets sigma, and the bound while nobody has answered

    def __post_init__(self) -> None:
        positive(bound=self.start)

    def init(self) -> State:
        return {"bound": self.start, "begun": 0}

    def query(self, state: State) -> Queries:
        return Queries(None if state["begun"] else RawNorm(), RawBit())

    def bound(self, state: State, answer: Answer | None) -> Bound:
        norms = finite(answer)
        return Unscaled(clamp(float(np.mean(norms))) if norms.size else state["bound"], self.start)

    def observe(self, state: State, seen: RoundOutput) -> State:
        bound, bits = seen.bound.size, finite(seen.answer)
        if seen.ends_round:
            lean = float(np.mean(bits)) - 0.5 if bits.size else 0.0
            bound = clamp(bound * rho(seen.round) * math.exp(lean))
        return {"bound": bound, "begun": 1}


@dataclass(frozen=True)
class Unscaled(Flat):
    """Clips to `bound`, but takes noise of multiplier x `reference`, whatever the bound: no multiplier describes it."""

    reference: float = 1.0
    kind: ClassVar[str] = "unscaled"
    honest: ClassVar[bool] = False

    def std(self, multiplier: float) -> float:
        return multiplier * self.reference

    def to_json(self) -> dict[str, object]:
        return {"kind": self.kind, "bound": self.bound, "reference": self.reference}


def certified(setting: RuleContext, *, eta: float = 0.2, share: float | None = None, warm: float = 1.0) -> Decaying:
    tracker = quantile.certified(setting, target=0.5, eta=eta, share=share, warm=warm)
    return Decaying(replace(tracker, searches=False))  # the paper's step, from the first round on


def published(setting: RuleContext) -> AsPrinted:
    return AsPrinted(setting.plan.bound)
