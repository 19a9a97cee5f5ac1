"""What was proven, under which assumptions, and what leaked: one page for the person who signs, and the same as JSON.

There are two kinds of result and no third. Either an epsilon is proven for the stated unit, relation and observer, or
the run is not private and the reasons are listed; a `Statement` that is neither cannot be built. What a paper's own
accounting would print stands beside it as `epsilon_claimed`, and never in its place.
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum
from typing import Any

from sordino.errors import BadInput, at_least, rate, whole
from sordino.privacy.vocabulary import Noise, Observer, Relation, Sampling, Unit, Variant

WIDTH = 100

_UNITS = {
    Unit.CLIENT: "Each client: everything that one client holds, taken together.",
    Unit.EXAMPLE: "Each example: one single record, whichever client holds it.",
}
_RELATIONS = {
    Relation.ADD_REMOVE: "The outcome is nearly as likely whether one {unit} takes part or does not exist{aside}.",
    Relation.ZERO_OUT: "The outcome is nearly as likely whether one {unit} contributes or contributes nothing; "
    "how many there are is public{aside}.",
    Relation.REPLACE_ONE: "The outcome is nearly as likely whatever one {unit} is replaced by{aside}.",
}
_OBSERVERS = {
    Observer.PUBLIC: "Anyone who sees every model that was released, from the first round to the last. The server is "
    "trusted: it sees what the clients send and adds the noise.",
    Observer.SECAGG_SERVER: "The server itself, which sees only sums over a cohort (secure aggregation), and anyone "
    "who sees the released models.",
    Observer.SERVER: "The server itself, which sees every message of every client, and anyone who sees the released "
    "models.",
}
_SEALED = (
    "The proof does not rest on the aggregation: each message carries its full noise, and the same epsilon holds towards a "
    "server that sees every one of them. Secure aggregation earns nothing here; it keeps single messages from the server besides."
)
_SAMPLINGS = {
    Sampling.POISSON: "each {unit} enters a {round} by its own coin, with probability {rate:g}",
    Sampling.FIXED: "a fixed number is drawn without replacement, a share of {rate:g}",
    Sampling.NONE: "nothing is gained from it: everyone takes part every time, or whoever looks sees who does",
}
_ACCOUNTANTS = {
    "pld": "privacy loss distributions, for a schedule that was settled before round one",
    "rdp": "Renyi differential privacy",
    "rdp-filter": "a Renyi filter at an order committed before round one, which refuses what the budget cannot bear",
    "gdp": "the exact trade-off curve of the Gaussian mechanism",
    "gdp-filter": "a Gaussian filter, which refuses what the budget cannot bear",
}


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
    rule: str = ""  # how the bound was set, in words
    steps: int = 1  # releases charged in each round
    epsilon_claimed: float | None = None
    claim: str = ""  # how the paper arrives at it
    reasons: tuple[str, ...] = ()  # why it is not private
    disclosures: tuple[str, ...] = ()  # what left without noise in this run, and why
    assumptions: tuple[str, ...] = ()
    budget: float | None = None  # the epsilon that was asked for
    spent: float | None = None  # share of the budget that was charged, 0 to 1
    rounds_planned: int | None = None
    stopped: str = ""  # why the run ended before its last round
    lost: int = 0  # rounds that were granted and cut short, and may not be run again
    dimension: int | None = None
    noise_to_bound: float | None = None  # length of the noise on the mean over the bound on the mean's signal

    def __post_init__(self) -> None:
        for name, words in _WORDS.items():
            try:
                object.__setattr__(self, name, words(getattr(self, name)))
            except ValueError:
                raise BadInput(f"{name} must be one of {', '.join(words)}, not {getattr(self, name)!r}.") from None
        for name in ("reasons", "disclosures", "assumptions"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if isinstance(self.multiplier, list):
            object.__setattr__(self, "multiplier", tuple(self.multiplier))
        for name in ("epsilon", "epsilon_claimed"):
            value = getattr(self, name)
            if value is None and name == "epsilon_claimed":
                continue
            if isinstance(value, bool) or not (isinstance(value, (int, float)) and value >= 0):
                raise BadInput(f"{name} must be a number of at least 0, or infinity, not {value!r}.")
        if not (isinstance(self.delta, (int, float)) and 0 <= self.delta < 1):
            raise BadInput(f"delta must be at least 0 and below 1, not {self.delta!r}.")
        whole(0, rounds=self.rounds, lost=self.lost)
        whole(1, steps=self.steps)
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
    def sealed(self) -> bool:
        """Whether secure aggregation hides messages that are private without it."""
        return self.observer is Observer.SECAGG_SERVER and self.noise is Noise.LOCAL

    @property
    def why(self) -> tuple[str, ...]:
        """Every reason why the run is not private, each once."""
        return tuple(dict.fromkeys((*self.reasons, *self.disclosures)))

    def to_json(self) -> dict[str, Any]:
        """Plain data; infinity is the string "inf"."""
        row: dict[str, Any] = {}
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
    def from_json(cls, row: dict[str, Any]) -> Statement:
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
        for title, paragraphs in self._sections():
            if paragraphs:
                parts += ["", title]
                for paragraph in paragraphs:
                    parts += _wrap(paragraph, "  ")
        return "\n".join(parts) + "\n"

    def _verdict(self) -> str:
        if self.proven:
            return f"PROVEN: epsilon {_up(self.epsilon)}, delta {_up(self.delta)}, for the unit and the observer below."
        return "NOT PRIVATE: no epsilon is proven for this run, and none may be quoted for it."

    def _sections(self) -> list[tuple[str, list[str]]]:
        return [
            ("Why it is not private", _numbered(self.why)),
            ("What is protected" if self.proven else "What was meant to be protected", self._protected()),
            ("Against whom", [_OBSERVERS[self.observer]] + [_SEALED] * self.sealed),
            ("What the numbers mean", self._meaning()),
            ("How it was computed", self._computed()),
            ("What happened to the budget", self._budget()),
            ("What the paper claims", self._claimed()),
            ("What is assumed", _numbered(self.assumptions)),
            ("What left without noise", _numbered(self.disclosures) or ["Nothing."] * self.proven),
            ("Where it ran", self._where()),
        ]

    def _protected(self) -> list[str]:
        return [_UNITS[self.unit], _RELATIONS[self.relation].format(unit=self.unit, aside=f" ({self.relation})")]

    def _meaning(self) -> list[str]:
        if not self.proven:
            return []
        other = self.relation is Relation.REPLACE_ONE
        asked = f"whether a given {self.unit} " + ("is one thing or another" if other else "took part")
        sure = 1 / (1 + math.exp(-self.epsilon))
        return [
            f"Someone who looks, and who thinks it even odds {asked}, can become at most {_up(100 * sure)}% sure of "
            f"the right answer, but for a chance of the order of delta ({_up(self.delta)})."
        ]

    def _computed(self) -> list[str]:
        each = "round" if self.unit is Unit.CLIENT or self.steps == 1 else "step"
        sampling = _SAMPLINGS[self.sampling].format(unit=self.unit, rate=self.rate or 1, round=each)
        releases = f"{self.rounds} rounds" + (f" of {self.steps} releases each" if self.steps > 1 else "")
        said = [
            f"Accounting: {_ACCOUNTANTS.get(self.accountant, self.accountant)}.",
            f"Releases: {releases}. Sampling: {sampling}.",
        ]
        if self.multiplier is not None and self.sealed:
            said.append(
                "Multiplier (noise on the sum over the bound): set by each client for each of its steps, and told to nobody; "
                f"{_range(self.multiplier)} for a client that takes the most steps and spends evenly."
            )
        elif self.multiplier is not None:
            said.append(f"Multiplier (noise on the sum over the bound): {_range(self.multiplier)}.")
        said.append(f"Noise: {_NOISE[self.noise]}.")
        if self.rule:
            said.append(f"Bound: {self.rule}.")
        if self.dimension is not None:
            said.append(f"Model: {self.dimension:,} released numbers.")
        if self.noise_to_bound is not None:
            said.append(f"On the mean of a round the noise is {self.noise_to_bound:.3g} times as long as the bound.")
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
                said.append("The epsilon above is that of the whole budget: nothing is taken off for stopping early.")
        if self.lost:
            said.append(f"Cut short, paid for and not run again: {self.lost} rounds.")
        return said

    def _claimed(self) -> list[str]:
        if self.epsilon_claimed is None:
            return []
        how = f" ({self.claim.rstrip('.')})" if self.claim else ""
        return [
            f"By the paper's own accounting{how} this run would print epsilon {self.epsilon_claimed:.4g}. That "
            "is a claim, and does not take the place of the verdict above."
        ]

    def _where(self) -> list[str]:
        if self.simulated:
            return ["A simulation: all data lay in one place, and whoever ran it could see everything."]
        return ["A deployment: each client's data stayed with that client."]


def assumptions(
    unit: Unit,
    relation: Relation,
    observer: Observer,
    sampling: Sampling,
    noise: Noise,
    simulated: bool,
    secure: bool,
    discrete: bool = False,
    survivors: int | None = None,
    sizes_public: bool = True,
    test_public: bool = True,
    delta: float = 0.0,
    population: int | None = None,
) -> tuple[str, ...]:
    """What the proof takes for granted, as sentences.

    `discrete`: the noise is drawn on integers. `survivors`: the fewest honest clients whose shares reach the sum.
    `sizes_public`: how much each client holds enters rates or weights. `test_public`: accuracy is measured and shown.
    `population`: how many units there are; a `delta` of one in that many would let one of them be shown outright.
    """
    unit, relation, observer, sampling, noise = (
        Unit(unit), Relation(relation), Observer(observer), Sampling(sampling), Noise(noise)
    )  # fmt: skip
    said = []
    if population is not None and delta * population >= 1:
        said.append(
            f"A delta of {_up(delta)} is accepted, though it is not below 1 in {population:,} {unit}s: by itself it would "
            f"allow that one {unit} is shown outright."
        )
    if unit is Unit.CLIENT:
        said.append("All data of one person lies with one client; a person at several clients is protected less.")
    else:
        said.append("One person is one record; a person with k records has k times the epsilon (and a larger delta).")
    if relation is not Relation.ADD_REMOVE:
        said.append(f"The number of {unit}s is public.")
    if sizes_public:
        said.append("How many clients there are, and how many examples each of them holds, is public.")
    if sampling is not Sampling.NONE:
        draw = "by independent coins" if sampling is Sampling.POISSON else "uniformly, without replacement"
        whose = "clients" if unit is Unit.CLIENT else "examples"
        said.append(f"The {whose} of a round are drawn honestly, {draw}, at the stated rate.")
        said.append(f"The draw stays secret: no one who looks, and no other client, learns which {whose} were in.")
    if noise is Noise.CENTRAL:
        said.append("The server is trusted with the clipped contributions, adds the noise, and releases nothing else.")
    elif noise is Noise.SHARES:
        min_cohort = f"at least {survivors} clients" if survivors else "all clients of a cohort"
        said.append("Secure aggregation lets the server see sums only, and holds its own promises.")
        said.append(
            f"In each round {min_cohort} add their share of the noise, collude with no one, and do not drop out."
        )
    else:
        unmasked = "; nothing is assumed of secure aggregation" if observer is Observer.SECAGG_SERVER else ""
        said.append(f"Each client adds its own noise before anything leaves it{unmasked}.")
    said.append("Every client runs the stated software: it clips as the plan says, and keeps raw values to itself.")
    if not secure:
        said.append("The noise comes from a seeded generator: it hides nothing from anyone who knows the seed.")
    if not discrete:
        said.append("Noise in floating point is taken for real-valued; attacks on the last digits are not covered.")
    said.append("The first model and every setting were chosen without the protected data; earlier trials add up.")
    if test_public:
        said.append("The data on which accuracy is measured is public, or its figures are not released.")
    said.append("Who fails, drops out or is slow does not depend on the protected data; timing is not covered.")
    if simulated and observer is not Observer.PUBLIC:
        said.append("The observer's view was simulated: no real server was kept from seeing more.")
    return tuple(said)


_WORDS: dict[str, type[StrEnum]] = {
    "variant": Variant,
    "unit": Unit,
    "relation": Relation,
    "observer": Observer,
    "sampling": Sampling,
    "noise": Noise,
}
_NOISE = {
    Noise.CENTRAL: "added by the server to the sum",
    Noise.SHARES: "added in shares by the clients, under secure aggregation",
    Noise.LOCAL: "added in full by each client",
}


def _up(value: float) -> str:
    """Four digits, rounded up: what is printed is never less than what is proven.

    >>> _up(4.00001), _up(1e-5), _up(0.0)
    ('4.001', '1e-05', '0')
    """
    number = Decimal(repr(float(value)))
    return f"{float(number.quantize(Decimal(1).scaleb(number.adjusted() - 3), ROUND_CEILING)):.4g}" if number else "0"


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
