"""DP-FedAGNC: the bound is the mean norm of the round before (after van der Veen et al. 2018, arXiv 1812.02890, as
DP-FedACN describes it).

Of van der Veen et al. only the abstract was read. DP-FedACN, the only source here, says that the mean "requires an additional privacy
budget", and not how much or how it is spent. Published: the mean of the raw norms, which is our guess and pays nothing. Certified: each unit sends min(norm, kappa C_t), a bounded number; the noisy
mean of these, nu, moves the bound by

    C <- C (nu / C)^gain,   nu held within [C / kappa, kappa C]

so that one round moves it by kappa^gain at most. The mean is that of norms cut off at kappa times the bound, which is
lower than the mean of the norms themselves if their tail is heavy. A quantile (see `quantile`) has no such bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import BadInput, between, positive, rate
from sordino.privacy.bounds import Bound, Flat
from sordino.privacy.vocabulary import Unit
from sordino.rules.base import Queries, RoundOutput, State, trust
from sordino.rules.exact import finite
from sordino.rules.quantile import clamp
from sordino.rules.query import Answer, BoundedValue, RawNorm

if TYPE_CHECKING:
    from sordino.methods import RuleContext
    from sordino.plan import Plan

GUESS = (
    "Of van der Veen et al. 2018 only the abstract was read; DP-FedACN has the mean norm of the last round in one place and of the last "
    "batch in another, and says that the mean requires an additional privacy budget, not how it is paid: the exact mean of a round, "
    "for which nothing is paid, is our guess."
)
REASONS = (
    "The original was not read, and our guess at it pays nothing for the mean: DP-FedACN says that the mean requires an additional "
    "privacy budget, not how much.",
    "The bound is the mean of the last round's raw norms: one client moves it without limit, and no noise hides it.",
    "The noise is scaled by that data-dependent bound, so that the size of the noise itself tells the bound.",
)


def reasons_of(plan: Plan) -> tuple[str, ...]:
    """True of this run, whose unit may be the record."""
    if plan.unit == Unit.CLIENT:
        return REASONS
    of_records = "The bound is the mean of the last raw gradient norms: one record moves it without limit, and no noise hides it."
    return (REASONS[0], of_records, REASONS[2])


@dataclass(frozen=True)
class NoisyMean:
    """The mean of bounded norms, with noise."""

    start: float = 1.0
    kappa: float = 3.0
    gain: float = 0.5
    share: float = 0.05

    def __post_init__(self) -> None:
        positive(bound=self.start)
        between(0, 1, share=self.share)
        rate(gain=self.gain)
        if not self.kappa > 1:
            raise BadInput(f"kappa must be above 1, or the bound could never grow, not {self.kappa!r}.")

    def init(self) -> State:
        return {"bound": self.start}

    def query(self, state: State) -> Queries:
        return Queries(with_sum=BoundedValue(self.kappa, self.share))

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return Flat(state["bound"])

    def observe(self, state: State, seen: RoundOutput) -> State:
        assert seen.answer is not None
        ratio = float(np.clip(self.kappa * seen.answer.mean[0], 1 / self.kappa, self.kappa))  # nu / C
        gain = self.gain * trust(self.kappa * seen.answer.noise, 0.5)
        return {"bound": clamp(state["bound"] * ratio**gain)}


@dataclass(frozen=True)
class ExactMean:
    """The mean of the raw norms."""

    start: float = 1.0

    def __post_init__(self) -> None:
        positive(bound=self.start)

    def init(self) -> State:
        return {"bound": self.start}

    def query(self, state: State) -> Queries:
        return Queries(with_sum=RawNorm())

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return Flat(state["bound"])

    def observe(self, state: State, seen: RoundOutput) -> State:
        norms = finite(seen.answer)
        return {"bound": clamp(float(np.mean(norms)))} if norms.size else state


def certified(setting: RuleContext, *, kappa: float = 3.0, gain: float = 0.5, share: float | None = None) -> NoisyMean:
    """Unless told otherwise it takes the share that makes the noise a tenth of the bound, at most a tenth of all."""
    z = setting.multiplier or setting.plan.multiplier
    enough = 0.05 if z is None else min(0.1, (10 * kappa * z / setting.units) ** 2)
    return NoisyMean(setting.plan.bound, kappa, gain, enough if share is None else share)


def published(setting: RuleContext) -> ExactMean:
    return ExactMean(setting.plan.bound)
