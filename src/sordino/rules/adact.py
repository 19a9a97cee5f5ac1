"""AdaCT-DPFL (Future Internet 18(3), 148, 2026): the clipping bound of a round is the quantile tau of its update norms.

Published (algorithm 1, equations 8 to 11): every client sends its raw norm, the server takes the exact quantile and
sends it back, clients clip to it and add noise in proportion. The paper gives tau no value; 0.5 stands here.

Certified: the threshold comes from a noisy histogram of norms, one joint Gaussian event with the clipped sum. By default it
minimises the expected error of the mean (`expected_error`), the threshold "beyond quantiles" that the paper names as future work:
a quantile collapses when most units are learnt. With the option ``tau`` it is the paper's quantile of the same round
(`histogram`); with ``previous=1`` that quantile from the noisy centred bits of the rounds before (`quantile`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sordino.errors import between
from sordino.privacy.vocabulary import Unit
from sordino.rules import expected_error, histogram, quantile
from sordino.rules.base import Rule
from sordino.rules.exact import ExactQuantile

if TYPE_CHECKING:
    from sordino.methods import RuleContext
    from sordino.plan import Plan

REASONS = (
    "Each client sends the exact norm of its update: a noiseless real number, which no finite epsilon covers.",
    "The bound is an exact quantile of the cohort's norms and is sent to everyone: one client more or less moves it.",
    "The noise is scaled by that data-dependent bound, so that the size of the noise itself tells the bound.",
    "It is not said whether the accountant saw one client's noise or that of the sum, nor the sampling rate or delta.",
    "Privacy is defined for one record, while whole client updates are clipped and noised.",
)
SIMULATED = "rail-simulated"  # the data set that stands in for the paper's own


def reasons_of(plan: Plan) -> tuple[str, ...]:
    """True of this run: where records are clipped, nothing is said of whole updates."""
    if plan.unit == Unit.CLIENT:
        return REASONS
    return (
        "The exact norm of each record's gradient is used: a noiseless real number, which no finite epsilon covers.",
        "The bound is an exact quantile of these norms and decides what is released: one record more or less moves it.",
        *REASONS[2:4],
    )


def differs(plan: Plan) -> tuple[str, ...]:
    """Of a run on track vibration."""
    if plan.data != SIMULATED:
        return ()
    return ("The vibration of the track is simulated; the paper measured it, and its recordings are not public.",)


def certified(
    setting: RuleContext,
    *,
    tau: float | None = None,
    previous: float = 0,
    low: float | None = None,
    high: float | None = None,
    bins: float = 16,
    share: float | None = None,
    opening: float | None = None,
    floor: float = 0.1,
    alignment: float = 0.3,
    eta: float = 0.2,
    warm: float = 2.0,
) -> Rule:
    if tau is None and not previous:
        share, opening = 0.05 if share is None else share, 0.3 if opening is None else opening
        grid = {"low": low, "high": high, "bins": bins, "share": share, "opening": opening}
        return expected_error.certified(setting, **grid, floor=floor, alignment=alignment)  # type: ignore[arg-type]
    tau = 0.5 if tau is None else tau
    between(0, 1, tau=tau)
    if previous:
        return quantile.certified(setting, target=tau, eta=eta, share=share, warm=warm)
    share, opening = 0.1 if share is None else share, 0.5 if opening is None else opening
    return histogram.certified(setting, target=tau, low=low, high=high, bins=bins, share=share, opening=opening)


def published(setting: RuleContext, *, tau: float = 0.5) -> Rule:
    between(0, 1, tau=tau)
    return ExactQuantile(setting.plan.bound, tau)
