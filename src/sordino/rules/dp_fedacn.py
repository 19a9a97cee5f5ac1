"""DP-FedACN (Zhang et al., Exploring the privacy-accuracy trade-off using adaptive gradient clipping in federated
learning): the bound follows the median of the norms and decays with 1/sqrt(t).

Published (algorithm 1, equations 9 and 13 to 15), with the fraction of clients below the bound less one half as L_t:

    C_0 = mean raw norm of round 1,   C_{t+1} = exp(+L_t) rho_t C_t,   rho_1 = 1, rho_t = sqrt(1 - 1/t)

The bits are exact, the noise N(0, sigma^2) does not follow C_t, and the sign is wrong: to minimise the loss of
equation 11 the bound must shrink when most norms lie below it. As printed it runs away from the median, to zero or
without end.

Certified: a public C_0, noisy centred bits, the minus sign, noise in proportion to the bound; the decay is kept. This
is the tracker of Andrew et al. 2021 for gamma = 1/2 and eta = 1, times a public factor that tends to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sordino.errors import between, positive
from sordino.privacy.bounds import Bound, Flat
from sordino.rules.base import Asked, Seen, State, trust
from sordino.rules.exact import finite
from sordino.rules.quantile import bit_share, clamp
from sordino.rules.query import Answer, CentredBit, RawBit, RawNorm

if TYPE_CHECKING:
    from sordino.methods import Setting

REASONS = (
    "No formula ties the noise to epsilon: it is a label on the experiments, with neither theorem nor calibration.",
    "Each client sends an exact bit on its norm every round, against a moving threshold: a noiseless bisection of the norm.",
    "The first bound is the mean of the raw norms, which is neither bounded nor noised.",
    "The noise does not follow the bound, so that the true multiplier sigma/C_t drifts with the data, towards zero.",
    "The sign in equation 14 makes the bound run away from the median instead of towards it.",
    "Delta counts the records of a client, while whole client updates are clipped.",
)


def rho(t: float) -> float:
    """The decay of round t (equation 9)."""
    return math.sqrt(1 - 1 / t) if t > 1 else 1.0


@dataclass(frozen=True)
class Decaying:
    """As repaired."""

    start: float = 1.0
    eta: float = 1.0
    share: float = 0.05

    def __post_init__(self) -> None:
        positive(bound=self.start, eta=self.eta)
        between(0, 1, share=self.share)

    def init(self) -> State:
        return {"bound": self.start, "round": 1}

    def query(self, state: State) -> Asked:
        return Asked(beside=CentredBit(self.share))

    def bound(self, state: State, answer: Answer | None) -> Bound:
        return Flat(state["bound"])

    def observe(self, state: State, seen: Seen) -> State:
        assert seen.answer is not None
        lean = float(np.clip(seen.answer.mean[0], -0.5, 0.5))  # L_t
        gain = self.eta * trust(seen.answer.noise)
        # The decay is followed as far as the bits are: alone, it would carry the bound off.
        decay = rho(state["round"]) ** trust(seen.answer.noise)
        return {"bound": clamp(state["bound"] * decay * math.exp(-gain * lean)), "round": state["round"] + 1}


@dataclass(frozen=True)
class AsPrinted:
    """Algorithm 1 to the letter."""

    start: float = 1.0  # only sets sigma, and the bound while nobody has answered

    def __post_init__(self) -> None:
        positive(bound=self.start)

    def init(self) -> State:
        return {"bound": self.start, "round": 1}

    def query(self, state: State) -> Asked:
        return Asked(RawNorm() if state["round"] == 1 else None, RawBit())

    def bound(self, state: State, answer: Answer | None) -> Bound:
        norms = finite(answer)
        return Unscaled(clamp(float(np.mean(norms))) if norms.size else state["bound"], self.start)

    def observe(self, state: State, seen: Seen) -> State:
        bits = finite(seen.answer)
        lean = float(np.mean(bits)) - 0.5 if bits.size else 0.0
        return {"bound": clamp(seen.bound.size * rho(state["round"]) * math.exp(lean)), "round": state["round"] + 1}


@dataclass(frozen=True)
class Unscaled(Flat):
    """Clips to `bound`, but takes noise of multiplier x `reference`, whatever the bound: no multiplier describes it."""

    reference: float = 1.0
    kind: ClassVar[str] = "unscaled"
    honest: ClassVar[bool] = False

    def std(self, multiplier: float) -> float:
        return multiplier * self.reference

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "bound": self.bound, "reference": self.reference}


def certified(setting: Setting, *, eta: float = 1.0, share: float | None = None) -> Decaying:
    return Decaying(setting.plan.bound, eta, bit_share(setting) if share is None else share)


def published(setting: Setting) -> AsPrinted:
    return AsPrinted(setting.plan.bound)
