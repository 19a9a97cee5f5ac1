"""Before a run: what a budget means for learning, without any data.

Noise is held against signal (`scenario`): what is left of it when all rounds are averaged. Below half the signal training gets through
it; above twice the signal it does not. That is a rule of thumb from our own runs (docs/regret.md), not a theorem; McMahan et al. 2018 show
what large cohorts buy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from sordino.planning.remedies import PLAUSIBLE, REMEDIES, Remedy
from sordino.planning.scenario import Scenario, contributions, left_of, noise, ratio_of, releases
from sordino.privacy.vocabulary import Relation

__all__ = ["Forecast", "Remedy", "Scenario", "Verdict", "plan"]

Verdict = Literal["plausible", "hard", "implausible"]

IMPLAUSIBLE = 2.0


@dataclass(frozen=True)
class Forecast:
    """What a setting means."""

    setting: Scenario
    multiplier: float
    epsilon: float
    accountant: str
    relation: Relation
    releases: int  # that the most exposed unit takes part in
    contributions: float  # that a mean is taken over
    noise_to_bound: float
    left: float  # of the noise, when all rounds are averaged
    verdict: Verdict
    summary: str
    remedies: tuple[Remedy, ...]


def plan(setting: Scenario) -> Forecast:
    """Multiplier, noise against signal, whether learning is plausible, and what would make it so, best first."""
    multiplier, spent = noise(setting)
    ratio = ratio_of(setting, multiplier)
    remains = left_of(setting, multiplier)
    verdict: Verdict = "plausible" if remains < PLAUSIBLE else "hard" if remains <= IMPLAUSIBLE else "implausible"
    # Remedies keep the budget, also where the noise was given; one remedy changes it and says so.
    budget = replace(setting, epsilon=setting.epsilon or spent.epsilon, multiplier=None)
    found = [] if verdict == "plausible" else [make(budget, multiplier, remains) for make in REMEDIES]
    remedies = tuple(sorted(filter(None, found), key=lambda r: (not r.reaches, r.doubtful)))
    return Forecast(
        setting,
        multiplier,
        spent.epsilon,
        spent.accountant,
        spent.relation,
        releases(setting),
        contributions(setting),
        ratio,
        remains,
        verdict,
        _summary(ratio, remains, verdict, remedies),
        remedies,
    )


def _summary(ratio: float, remains: float, verdict: Verdict, remedies: tuple[Remedy, ...]) -> str:
    times, rest = (f"{n:.2g}" if n < 10 else f"{n:,.0f}" for n in (ratio, remains))
    if verdict == "plausible":
        return f"Learning is plausible: the noise on a mean is {times} times the bound; averaged over all rounds, {rest} times the signal."
    text = f"Learning is {verdict}: a signal is at most the bound, and the noise on a mean is {times} times that"
    if ratio >= 100:
        text += f", {'hundreds' if ratio < 2000 else 'thousands'} of times the signal"
    text += f"; averaged over all rounds, {rest} times the signal."
    if remedies and remedies[0].reaches:
        text += f" The way out is {remedies[0].change}."
    return text
