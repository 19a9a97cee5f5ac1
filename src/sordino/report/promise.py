"""The promise: who is protected against whom, what that means in numbers, how it was computed, and what is assumed."""

from __future__ import annotations

import math
from typing import Any

from sordino.report import phrases
from sordino.report.html import Safe, join, tag
from sordino.report.numbers import number, percent, percent_up, plain
from sordino.report.phrases import phrase
from sordino.report.reading import Run
from sordino.report.verdict import Kind, Verdict


def promise(run: Run, verdict: Verdict) -> Safe:
    """Who is protected, against whom, what that means in numbers, and how it was computed."""
    proven = verdict.kind is Kind.PROVEN
    unit = run.said("unit")
    rows: list[tuple[str, Safe | str | None]] = []
    if not _noiseless(run):
        rows.append(("Protected" if proven else "Meant to be protected", phrase(phrases.PROTECTED, unit)))
        rows.append(("Against", phrase(phrases.AGAINST, run.said("observer")) + phrases.SEALED * _sealed(run)))
    relation = run.said("relation")
    if proven and relation is not None:
        said = phrase(phrases.NEIGHBOURS, relation, unit=phrase(phrases.UNIT, unit))
        rows.append(("In what sense", join(said, " ", tag("span", f"(relation {relation})", class_="quiet"))))
    if verdict.epsilon is not None and verdict.delta is not None:
        rows.append(("In numbers", _in_numbers(verdict.epsilon, verdict.delta, phrase(phrases.UNIT, unit))))
    rows.append(("Left without noise", _left(run, verdict)))
    rows += [("Computed by", _computed(run)), ("Noise", _noise(run))]
    rule = (run.statement or {}).get("rule")
    rows += [("Rule for the bound", f"{str(rule).rstrip('.')}." if rule else None), ("Budget", _budget(run, proven))]
    rows += [("The paper’s claim", _claim(run))]
    cells = [join(tag("dt", name), tag("dd", value)) for name, value in rows if value]
    title = "What is promised" if proven else "What was done"
    return tag("section", tag("h2", title, id="promise"), tag("dl", *cells, class_="facts"), aria_labelledby="promise")


def _in_numbers(epsilon: float, delta: float, unit: str) -> Safe:
    """What (epsilon, delta) allows the best attack, whatever it knows (Kairouz et al. 2015, hypothesis testing)."""
    sure = (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))
    caught = [most_found(epsilon, delta, alarms) for alarms in (0.001, 0.01)]
    return join(
        f"Told to guess, at even odds, whether a given {unit} was used, no one is right more often than ",
        tag("b", percent_up(sure)),
        " of the time; blind guessing is right 50%. With one false alarm in 1,000, no one finds more than ",
        tag("b", percent_up(caught[0])),
        f" of the {unit}s that were used; with one in 100, no more than ",
        tag("b", percent_up(caught[1])),
        ".",
    )


def most_found(epsilon: float, delta: float, alarms: float) -> float:
    """The largest rate of true alarms at a rate of false ones: both errors obey `a + e^epsilon b >= 1 - delta`."""
    return min(math.exp(min(epsilon, 50)) * alarms + delta, 1 - math.exp(-epsilon) * max(0.0, 1 - delta - alarms))


def _computed(run: Run) -> str | None:
    accountant = (run.statement or {}).get("accountant")
    if accountant is None or (run.statement or {}).get("epsilon") == "inf":
        return None
    rate = number(run.said("rate"))
    who = phrase(phrases.EACH, run.said("unit")).capitalize()
    drawn = phrase(phrases.SAMPLING, run.said("sampling"), who=who, rate="1" if rate is None else plain(rate))
    steps = run.said("steps")
    each = f" of {steps} releases each" if isinstance(steps, int) and steps > 1 else ""
    return f"{phrase(phrases.ACCOUNTANT, accountant)}. {run.rounds:,} rounds{each}. {drawn}."


def _multipliers(run: Run) -> list[float]:
    stated = (run.statement or {}).get("multiplier")
    found = [number(value) for value in (stated if isinstance(stated, list) else [stated])]
    return [z for z in found if z is not None] or [z for _, z in run.points("multiplier")]


def _noiseless(run: Run) -> bool:
    """The baseline that never meant to protect anyone."""
    many = _multipliers(run)
    return bool(many) and max(many) == 0


def _sealed(run: Run) -> bool:
    """Whether secure aggregation hid messages that are private without it."""
    return run.said("observer") == "secagg-server" and (run.statement or {}).get("noise") == "local"


def _noise(run: Run) -> str | None:
    many = _multipliers(run)
    if not many or _noiseless(run):
        return "None was added." if many else None
    size = plain(min(many)) if min(many) == max(many) else f"{plain(min(many))} to {plain(max(many))}"
    placed = (run.statement or {}).get("noise")
    if _sealed(run):
        return f"Set by each client for each step, and told to nobody; evenly spent, at most {size} times the bound."
    return f"{size} times the bound, on the sum" + (f"; {phrase(phrases.NOISE, placed)}." if placed else ".")


def _budget(run: Run, proven: bool) -> str | None:
    stated = run.statement or {}
    said = []
    budget, spent, stopped = number(stated.get("budget")), number(stated.get("spent")), stated.get("stopped")
    if budget is not None and proven:
        most = "at most " if _sealed(run) else ""
        used = "" if spent is None else f"; {most}{percent(min(1.0, spent))} of it was spent"
        said.append(f"Epsilon {plain(budget)}{used}.")
    if stopped:
        said.append(f"Training ended after {run.rounds:,} rounds: {_sentence(stopped)}")
        if proven:
            said.append("Nothing is taken off the epsilon for stopping early.")
    lost = stated.get("lost")
    if lost:
        said.append(f"{lost} rounds were cut short, paid for and not run again.")
    return " ".join(said) or None


def _claim(run: Run) -> str | None:
    claimed = number(run.said("epsilon_claimed"))
    if claimed is None:
        return None
    how = (run.statement or {}).get("claim")
    return f"Epsilon {plain(claimed)}" + (f" ({str(how).rstrip('.')})" if how else "") + ". That is not proven here."


def _left(run: Run, verdict: Verdict) -> Safe | str | None:
    """What left without going through a mechanism."""
    left = run.sentences("disclosures")
    if left:
        return join(*(tag("p", said) for said in left))
    if verdict.kind is Kind.PROVEN:
        return "Nothing. All that was released went through a mechanism, and was charged to the budget."
    return "See the reasons above." if verdict.kind is Kind.NOT_PRIVATE else None


def assumed(run: Run, verdict: Verdict) -> Safe | None:
    """What the proof takes for granted; where there is none, nothing."""
    if verdict.kind not in (Kind.PROVEN, Kind.CONTRADICTED):
        return None
    said = run.sentences("assumptions")
    taken = tag("ol", *(tag("li", sentence) for sentence in said), class_="long")
    if not said:
        taken = tag("p", "The statement names no assumptions.")
    return tag("section", tag("h2", "What is assumed", id="assumed"), taken, aria_labelledby="assumed")


def _sentence(value: Any) -> str | None:
    said = str(value).strip() if value else ""
    return said[0].upper() + said[1:].rstrip(".") + "." if said else None
