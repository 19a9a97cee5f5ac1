"""What was proven, under which assumptions, and what leaked: one page for the person who signs, and the same as JSON.

There are two kinds of result and no third. Either an epsilon is proven for the stated unit, relation and observer, or
the run is not private and the reasons are listed; a `Statement` that is neither cannot be built. What a paper's own
accounting would print stands beside it as `epsilon_claimed`, and never in its place. The sentences are in `phrases`.
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass, fields
from enum import StrEnum

from sordino.errors import BadInput, at_least, rate, whole
from sordino.privacy import phrases
from sordino.privacy.in_numbers import in_numbers, rounded_up
from sordino.privacy.vocabulary import Noise, Observer, Relation, Sampling, Unit, Variant

WIDTH = 100


@dataclass(frozen=True)
class Statement:
    """All that is known about the privacy of one run. `epsilon` is proven, or infinite with `reasons`."""

    method: str
    variant: Variant
    unit: Unit
    relation: Relation
    observer: Observer
    epsilon: float
    delta: float
    accountant: str
    sampling: Sampling
    rounds: int
    noise: Noise
    simulated: bool
    secure: bool = False  # noise from a source that cannot be repeated
    rate: float | None = None
    multiplier: float | tuple[float, ...] | None = None
    sigma: float | None = None  # standard deviation of noise that does not follow the bound: no multiplier describes it
    rule: str = ""  # how the bound was set, in words
    steps: int = 1  # releases charged in each round
    epsilon_claimed: float | None = None
    claim: str = ""  # how the paper arrives at it
    reasons: tuple[str, ...] = ()  # why it is not private
    departures: tuple[str, ...] = ()  # where a published run is set otherwise than its paper
    guess: str = ""  # what of the paper was not read, where a published run is a guess at it
    disclosures: tuple[str, ...] = ()  # what left without noise in this run, and why
    assumptions: tuple[str, ...] = ()
    budget: float | None = None  # the epsilon that was asked for
    spent: float | None = None  # share of the budget that was charged, 0 to 1
    rounds_planned: int | None = None
    stopped: str = ""  # why the run ended before its last round
    lost: int = 0  # rounds that were granted and cut short, and may not be run again
    dimension: int | None = None
    noise_to_bound: float | None = None  # length of the noise on the mean over the bound on the mean's signal
    seed: int | None = None  # of noise and draws, where they can be repeated
    prelude: tuple[str, ...] = ()  # what was released before round 1, and with how much noise, in words
    held_out: tuple[str, ...] = ()  # the test on held-out records, in words
    personal: bool = False  # clients keep a model, or layers, of their own
    defence: str | None = None  # a heuristic that changed updates before they were clipped
    notes: tuple[str, ...] = ()  # further assumptions, told by the scheme or by the way gradients are clipped
    separation: int = 1  # a client takes part in one of so many consecutive rounds at most
    account: str = ""  # what all runs on the same records have spent, as a sentence

    def __post_init__(self) -> None:
        for name, words in _WORDS.items():
            try:
                object.__setattr__(self, name, words(getattr(self, name)))
            except ValueError:
                raise BadInput(f"{name} must be one of {', '.join(words)}, not {getattr(self, name)!r}.") from None
        for name in ("reasons", "departures", "disclosures", "assumptions", "prelude", "held_out", "notes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if isinstance(self.multiplier, list):
            object.__setattr__(self, "multiplier", tuple(self.multiplier))
        for name, value in (("epsilon", self.epsilon), ("epsilon_claimed", self.epsilon_claimed)):
            if value is None and name == "epsilon_claimed":
                continue
            if isinstance(value, bool) or not (isinstance(value, (int, float)) and value >= 0):
                raise BadInput(f"{name} must be a number of at least 0, or infinity, not {value!r}.")
        if not (isinstance(self.delta, (int, float)) and 0 <= self.delta < 1):
            raise BadInput(f"delta must be at least 0 and below 1, not {self.delta!r}.")
        whole(0, rounds=self.rounds, lost=self.lost)
        whole(1, steps=self.steps, separation=self.separation)
        if self.rate is not None:
            rate(rate=self.rate)
        elif self.sampling is not Sampling.NONE:
            raise BadInput(f"Sampling {self.sampling} has a rate; none was given.")
        if self.spent is not None:
            at_least(0, spent=self.spent)
        if self.proven and (self.reasons or self.disclosures):
            raise BadInput(f"A run that is not private ({self.why[0]}) has no epsilon {self.epsilon:g}; state inf.")
        if not self.proven and not self.why:
            raise BadInput("A run that is not private must say why; give at least one reason.")

    @property
    def proven(self) -> bool:
        """Whether an epsilon is proven."""
        return math.isfinite(self.epsilon)

    @property
    def rehearsal(self) -> bool:
        """Whether an epsilon is proven that only holds towards people who do not know the seed."""
        return self.proven and not self.secure

    @property
    def sealed(self) -> bool:
        """Whether secure aggregation hides messages that are private without it."""
        return self.observer is Observer.SECAGG_SERVER and self.noise is Noise.LOCAL

    @property
    def why(self) -> tuple[str, ...]:
        """Every reason why the run is not private, each once."""
        return tuple(dict.fromkeys((*self.reasons, *self.disclosures)))

    def to_json(self) -> dict[str, object]:
        """Plain data; infinity is the string "inf"."""
        row: dict[str, object] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, StrEnum):
                value = str(value)
            elif isinstance(value, tuple):
                value = list(value)
            elif isinstance(value, float) and math.isinf(value):
                value = "inf"
            row[item.name] = value
        return row | {"proven": self.proven, "reasons": list(self.why)}

    @classmethod
    def from_json(cls, row: dict[str, object]) -> Statement:
        """The statement that `to_json` wrote."""
        known = {item.name for item in fields(cls)}
        given = {key: math.inf if value == "inf" else value for key, value in row.items() if key in known}
        try:
            return cls(**given)  # type: ignore[arg-type]
        except TypeError as error:
            raise BadInput(f"The statement is incomplete ({error}).") from error

    def text(self) -> str:
        """The page to sign."""
        parts = [f"PRIVACY STATEMENT: {self.method} ({self.variant})", "", *_wrap(self._verdict())]
        if self.rehearsal:
            parts += _wrap(phrases.rehearsal(self.seed))
        for title, paragraphs in self._sections():
            if paragraphs:
                parts += ["", title]
                for paragraph in paragraphs:
                    parts += _wrap(paragraph, "  ")
        return "\n".join(parts) + "\n"

    def _verdict(self) -> str:
        if self.proven:
            return f"PROVEN: epsilon {rounded_up(self.epsilon)}, delta {rounded_up(self.delta)}, for the unit and the observer below."
        return "NOT PRIVATE: no epsilon is proven for this run. Do not quote one."

    def _sections(self) -> list[tuple[str, list[str]]]:
        return [
            ("Why it is not private", _numbered(self.why)),
            ("What is protected" if self.proven else "What was meant to be protected", self._protected()),
            ("Against whom", [phrases.AGAINST[self.observer]] + [phrases.MASKED_LOCAL] * self.sealed),
            ("What the numbers mean", self._meaning()),
            ("How it was computed", self._computed()),
            ("What was released before round 1", _numbered(self.prelude)),
            ("What it is tested on", _numbered(self.held_out)),
            ("What stays with the clients", [phrases.PERSONAL] * self.personal),
            ("Heuristic defence", [] if self.defence is None else [phrases.heuristic(self.defence, self.proven)]),
            ("What happened to the budget", self._budget()),
            ("What the paper claims", self._claimed()),
            ("Where the run departs from the paper", [self.guess] * bool(self.guess) + _numbered(self.departures)),
            ("What is assumed", _numbered((*self.assumptions, *self.notes))),
            ("What left without noise", _numbered(self.disclosures) or [phrases.NOTHING_LEFT] * self.proven),
            ("Where it ran", [phrases.SIMULATION if self.simulated else phrases.DEPLOYMENT]),
        ]

    def _protected(self) -> list[str]:
        sense = phrases.NEIGHBOURS[self.relation].format(unit=phrases.NOUN[self.unit])
        return [phrases.PROTECTED[self.unit], f"{sense} (Relation {self.relation}.)"]

    def _meaning(self) -> list[str]:
        return [in_numbers(self.epsilon, self.delta, self.relation, self.unit)] if self.proven else []

    def _computed(self) -> list[str]:
        by_step = self.unit is Unit.EXAMPLE and self.steps > 1
        releases = f"{self.rounds} rounds" + (f" of {self.steps} releases each" if self.steps > 1 else "")
        said = [f"Accounting: {phrases.phrase(phrases.ACCOUNTANT, self.accountant)}.", f"Releases: {releases}."]
        # Without a proof there is nothing that sampling gains or does not gain.
        if self.proven or self.sampling is not Sampling.NONE:
            sampling = phrases.sampling(self.sampling, self.unit, f"{self.rate or 1:g}", by_step)
            said[-1] += f" Sampling: {sampling}."
        if self.separation > 1:
            said.append(phrases.IN_TURNS.format(rounds=self.separation))
        if self.multiplier is not None and self.sealed:
            said.append(phrases.OWN_MULTIPLIERS.format(range=_range(self.multiplier)))
        elif self.multiplier is not None:
            said.append(f"Multiplier (noise on the sum divided by the bound): {_range(self.multiplier)}.")
        if self.sigma is not None:
            said.append(
                f"Standard deviation of the noise: {self.sigma:.4g}, whatever the bound; no multiplier describes it."
            )
        said.append(f"Noise: {phrases.NOISE[self.noise]}.")
        if self.rule:
            said.append(f"Bound: {self.rule}.")
        if self.dimension is not None:
            said.append(f"Model: {self.dimension:,} released numbers.")
        if self.noise_to_bound is not None:
            release = "one release" if self.steps > 1 else "a round"
            said.append(f"On the mean of {release} the noise is {self.noise_to_bound:.3g} times as long as the bound.")
        return said

    def _budget(self) -> list[str]:
        said = []
        if self.budget is not None:
            most = "at most " if self.sealed else ""
            spent = "" if self.spent is None else f"; {most}{100 * min(1.0, self.spent):.4g}% of it was spent"
            said.append(f"Budget: epsilon {self.budget:.4g} at delta {self.delta:.3g}{spent}.")
        if self.stopped:
            of = f" of {self.rounds_planned}" if self.rounds_planned else ""
            said.append(f"The run stopped after {self.rounds}{of} rounds: {self.stopped.rstrip('.')}.")
            if self.proven:
                said.append(phrases.STOPPED_EARLY)
        if self.lost:
            said.append(phrases.LOST.format(lost=self.lost))
        if self.account:
            said.append(self.account)
        return said

    def _claimed(self) -> list[str]:
        if self.epsilon_claimed is None:
            return []
        how = f" ({self.claim.rstrip('.')})" if self.claim else ""
        return [
            f"By the paper's own accounting{how} this run would print epsilon {self.epsilon_claimed:.4g}. {phrases.CLAIM}"
        ]


_WORDS: dict[str, type[StrEnum]] = {
    "variant": Variant,
    "unit": Unit,
    "relation": Relation,
    "observer": Observer,
    "sampling": Sampling,
    "noise": Noise,
}


def _range(multiplier: float | tuple[float, ...]) -> str:
    if not isinstance(multiplier, tuple):
        return f"{multiplier:.4g}"
    low, high = min(multiplier), max(multiplier)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _numbered(sentences: tuple[str, ...]) -> list[str]:
    return [f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1)]


def _wrap(paragraph: str, indent: str = "") -> list[str]:
    first = paragraph.split(". ", 1)[0]
    hang = indent + " " * (len(first) + 2 if first.isdigit() else 0)
    return textwrap.wrap(paragraph, WIDTH, initial_indent=indent, subsequent_indent=hang, break_on_hyphens=False)
