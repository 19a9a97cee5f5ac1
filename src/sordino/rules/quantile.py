"""The bound follows a quantile of the norms, from noisy bits (Andrew et al. 2021, Differentially private learning with
adaptive clipping, algorithm 1).

Every unit says whether its norm lay within the bound, as +1/2 or -1/2. The noisy mean of these bits gives the
fraction b of units that were not clipped, and the bound moves by a geometric step towards the quantile gamma (section
3.1):

    C <- C exp(-eta (b - gamma))

Since the bits ride with the clipped sum, the round is one Gaussian event of multiplier z; the sum is noised with
z_sum = (z^-2 - (2 sigma_b)^-2)^(-1/2) (theorem 1), where sigma_b, the noise on the bits, is m/20 if the budget
allows.

With eta = 0.2 the bound moves by a tenth a round at most. The certified variant adds three things, all computed from
released values and thus free: it searches first, and again whenever nearly all units lie on one side (`search`); then it starts with larger
steps, which are halved each time the bound is overshot, until they are down to eta; and it follows the bits only as far as their
noise lets them be believed (`trust`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import at_least, between, positive
from sordino.privacy.bounds import Bound, Flat
from sordino.rules import search
from sordino.rules.base import Queries, RoundOutput, State, trust
from sordino.rules.query import Answer, CentredBit
from sordino.rules.search import HIGHEST, LOWEST

if TYPE_CHECKING:
    from sordino.methods import RuleContext
    from sordino.plan import Plan

PINNED = 0.8  # part of the largest possible miss, from which on a bound is far off
SURE = 3.0  # standard deviations of the noise that such a miss must have


@dataclass(frozen=True)
class Quantile:
    """Track the `target` quantile, asking for one centred bit."""

    start: float = 0.1
    target: float = 0.5
    eta: float = 0.2
    share: float = 0.05
    warm: float = 0.0  # the first step; 0: no warm-up
    steady: bool = True  # follow noisy bits less
    searches: bool = False  # at first, and while the bound is far off

    def __post_init__(self) -> None:
        positive(bound=self.start, eta=self.eta)
        between(0, 1, target=self.target, share=self.share)
        at_least(0, warm=self.warm)

    def init(self) -> State:
        state = {"bound": self.start, "step": max(self.warm, self.eta), "side": 0.0, "far": 0.0}
        return {**state, **_search(search.around(self.start), goes_on=True)} if self.searches else state

    def query(self, state: State) -> Queries:
        return Queries(with_sum=CentredBit(self.share))

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return Flat(state["bound"])

    def observe(self, state: State, seen: RoundOutput) -> State:
        assert seen.answer is not None
        within = 0.5 + float(seen.answer.mean[0])
        if self.searches and state["searching"]:
            return self._sought(state, np.asarray(state["belief"]), within, seen.answer.noise)
        miss = float(np.clip(within, 0, 1)) - self.target
        side, far = float(np.sign(miss)), self._far(miss, seen.answer.noise)
        if self.searches and far and side == state["far"]:  # twice: once may be chance
            return self._sought(state, search.around(state["bound"]), within, seen.answer.noise)
        step = state["step"]
        if miss * state["side"] < 0:  # overshot
            step = max(self.eta, step / 2)
        gain = step * (trust(seen.answer.noise) if self.steady else 1.0)
        bound = clamp(state["bound"] * math.exp(-gain * miss))
        return {**state, "bound": bound, "step": step, "side": side, "far": side if far else 0.0}

    def _sought(self, state: State, belief: np.ndarray, within: float, noise: float) -> State:
        """One round of the search; steps after it are as long as it is unsure."""
        belief = search.heard(belief, within, state["bound"], self.target, noise)
        bound, unsure = search.place(belief)
        step = max(self.eta, min(self.warm, 2 * unsure))
        found = {"bound": clamp(bound), "step": step, "side": 0.0, "far": 0.0}
        return {**found, **_search(belief, goes_on=unsure > search.FOUND)}

    def _far(self, miss: float, noise: float) -> bool:
        """Whether nearly all units lie on one side, which noise does not explain."""
        most = 1 - self.target if miss > 0 else self.target
        return abs(miss) >= max(PINNED * most, SURE * noise)


def _search(belief: np.ndarray, goes_on: bool) -> State:
    """The state of a search; numbers only, since clients that run the rule each for itself take the mean of theirs."""
    return {"belief": belief.tolist(), "searching": float(goes_on)}


def clamp(bound: float) -> float:
    return min(max(bound, LOWEST), HIGHEST)


def bit_share(setting: RuleContext, most: float = 0.1) -> float:
    """The share of the privacy that puts noise of m/20 on the sum of bits (section 3.2), at most `most`.

    From sigma_b = (1/2) z / sqrt(share). In small cohorts m/20 would take all there is, and more.
    """
    z = setting.multiplier or setting.plan.multiplier
    return min(most, 0.05) if z is None else min(most, (10 * z / setting.units) ** 2)


def differs(plan: Plan) -> tuple[str, ...]:
    """From Andrew et al. 2021, section 3.2."""
    if "share" in plan.options:
        return (
            f"The bits take a share of {plan.options['share']:g} of the privacy; the paper puts noise of m/20 on them.",
        )
    return (
        "The bits take at most a tenth of the privacy; the paper's noise of m/20 on them takes more in a small cohort.",
    )


def certified(
    setting: RuleContext, *, target: float = 0.5, eta: float = 0.2, share: float | None = None, warm: float = 2.0
) -> Quantile:
    return Quantile(
        setting.plan.bound,
        target,
        eta,
        bit_share(setting) if share is None else share,
        warm,
        searches=warm > 0,
    )


def published(setting: RuleContext, *, target: float = 0.5, eta: float = 0.2, share: float | None = None) -> Quantile:
    share = bit_share(setting) if share is None else share
    return Quantile(setting.plan.bound, target, eta, share, steady=False)
