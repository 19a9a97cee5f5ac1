"""The verdict at the head of the report. There are two: proven, or not private. A run whose files do not say enough, or
contradict each other, gets neither, and the report says why; an epsilon is never shown as proven on doubtful grounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sordino.privacy.phrases import EACH, TOWARDS, phrase, rehearsal
from sordino.report.numbers import at_least, at_most, number, percent, plain
from sordino.report.reading import Run

# A statement belongs to the plan that it lies beside if these agree.
SHARED = ("method", "variant", "unit", "observer", "delta", "relation")


class Kind(StrEnum):
    """What the page says at its head."""

    PROVEN = "proven"
    NOT_PRIVATE = "not private"
    CONTRADICTED = "contradicted"  # the audit measured more than the proof allows
    OPEN = "not established"


@dataclass(frozen=True)
class Verdict:
    """`epsilon` is set where one is proven, and nowhere else."""

    kind: Kind
    headline: str
    lead: str
    reasons: tuple[str, ...] = ()
    epsilon: float | None = None
    delta: float | None = None
    rehearsal: str = ""  # what must stand beside an epsilon that only hides from people who do not know the seed


def judge(run: Run) -> Verdict:
    """What may be said of a run on the strength of its files."""
    if run.statement is None:
        lead = "The folder holds no statement: the run has not ended. Nothing may be quoted for it."
        return Verdict(Kind.OPEN, "Nothing is established yet", lead)
    doubts = _doubts(run)
    reasons = tuple(dict.fromkeys(run.sentences("reasons") + run.sentences("disclosures")))
    epsilon, delta = number(run.statement.get("epsilon")), number(run.statement.get("delta"))
    if doubts:
        return Verdict(Kind.OPEN, "Nothing is established", "The files of this run do not fit together.", doubts)
    if run.statement.get("epsilon") == "inf" or run.statement.get("proven") is False or reasons:
        lead = "No epsilon is proven for this run, and none may be quoted for it."
        return Verdict(Kind.NOT_PRIVATE, "Not private", lead, reasons or ("The statement gives no reason.",))
    if epsilon is None or epsilon < 0 or delta is None or not 0 <= delta < 1:
        lead = "The statement holds no epsilon and delta that can be read. Nothing may be quoted for this run."
        return Verdict(Kind.OPEN, "Nothing is established", lead)
    measured = number((run.audit or {}).get("epsilon_lower"))
    if measured is not None and measured > epsilon:
        return _contradicted(run, measured, epsilon)
    whom = f"for {phrase(EACH, run.said('unit'))}, {phrase(TOWARDS, run.said('observer'))}"
    headline = f"Proven: epsilon {at_most(epsilon)}, delta {plain(delta)}"
    seeded = "" if run.said("secure") is True else rehearsal(run.said("seed"))
    return Verdict(Kind.PROVEN, headline, whom, (), epsilon, delta, seeded)


def _doubts(run: Run) -> tuple[str, ...]:
    """Where statement, plan and metrics contradict each other."""
    stated = run.statement or {}
    doubts = []
    for key in SHARED:
        planned = run.plan.get(key)
        if planned is not None and stated.get(key) is not None and stated[key] != planned:
            doubts.append(f"The plan says {key} {planned}, the statement {stated[key]}.")
    if run.metrics and isinstance(stated.get("rounds"), int) and run.metrics[-1]["round"] > stated["rounds"]:
        last = run.metrics[-1]["round"]
        doubts.append(f"The metrics go on to round {last}, the statement covers {stated['rounds']}.")
    return tuple(doubts)


def _contradicted(run: Run, measured: float, epsilon: float) -> Verdict:
    confidence = number((run.audit or {}).get("confidence"))
    sure = f", at confidence {percent(confidence, 0)}" if confidence is not None else ""
    why = f"The audit measured epsilon of at least {at_least(measured)}{sure}; {at_most(epsilon)} was stated as proven."
    lead = "The proof must not be relied on until this is explained."
    return Verdict(Kind.CONTRADICTED, "Contradicted by the audit", lead, (why,))
