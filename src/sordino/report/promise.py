"""The promise: who is protected against whom, what that means in numbers, how it was computed, and what is assumed."""

from __future__ import annotations

import re

from sordino.privacy import phrases
from sordino.privacy.in_numbers import in_numbers
from sordino.privacy.phrases import phrase
from sordino.report.html import Safe, join, tag
from sordino.report.numbers import number, percent, plain
from sordino.report.reading import Run
from sordino.report.verdict import Kind, Verdict


def promise(run: Run, verdict: Verdict) -> Safe:
    """Who is protected, against whom, what that means in numbers, and how it was computed."""
    proven = verdict.kind is Kind.PROVEN
    unit = run.said("unit")
    rows: list[tuple[str, Safe | str | None]] = []
    if not _noiseless(run):
        rows.append(("Protected" if proven else "Meant to be protected", phrase(phrases.PROTECTED, unit)))
        rows.append(
            ("Against", phrase(phrases.AGAINST, run.said("observer")) + f" {phrases.MASKED_LOCAL}" * _sealed(run))
        )
    relation = run.said("relation")
    if proven and relation is not None:
        said = phrase(phrases.NEIGHBOURS, relation, unit=phrase(phrases.NOUN, unit))
        rows.append(("In what sense", join(said, " ", tag("span", f"(Relation {relation}.)", class_="quiet"))))
    if verdict.epsilon is not None and verdict.delta is not None:
        rows.append(("In numbers", _in_numbers(in_numbers(verdict.epsilon, verdict.delta, relation, unit))))
    rows.append(("Left without noise", _left(run, verdict)))
    rows += [("Computed by", _computed(run)), ("Noise", _noise(run))]
    before = run.sentences("prelude")
    rows.append(("Released before round 1", join(*(tag("p", said) for said in before)) if before else None))
    tested = run.sentences("held_out")
    rows.append(("Tested on", join(*(tag("p", said) for said in tested)) if tested else None))
    rule = (run.statement or {}).get("rule")
    rows += [("Rule for the bound", f"{str(rule).rstrip('.')}." if rule else None), ("Budget", _budget(run, proven))]
    rows += [("Stays with clients", phrases.PERSONAL if (run.statement or {}).get("personal") else None)]
    rows += [("The paper’s claim", _claim(run)), ("Heuristic defence", _defence(run, proven))]
    cells = [join(tag("dt", name), tag("dd", value)) for name, value in rows if value]
    title = "What is promised" if proven else "What was done"
    return tag("section", tag("h2", title, id="promise"), tag("dl", *cells, class_="facts"), aria_labelledby="promise")


def _in_numbers(sentences: str) -> Safe:
    """What the best attack can achieve, with the shares in bold."""
    parts = re.split(r"(\d[\d.]*%)", sentences)
    return join(*(tag("b", part) if i % 2 else part for i, part in enumerate(parts)))


def _computed(run: Run) -> str | None:
    accountant = (run.statement or {}).get("accountant")
    if accountant is None or (run.statement or {}).get("epsilon") == "inf":
        return None
    rate, steps = number(run.said("rate")), run.said("steps")
    many = isinstance(steps, int) and steps > 1
    by_step = many and run.said("unit") == "example"
    drawn = phrases.sampling(run.said("sampling"), run.said("unit"), "1" if rate is None else plain(rate), by_step)
    each = f" of {steps} releases each" if many else ""
    by = _sentence(phrase(phrases.ACCOUNTANT, accountant))
    return f"{by} {run.rounds:,} rounds{each}. {_sentence(f'Sampling: {drawn}')}"


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
        return phrases.OWN_MULTIPLIERS.format(range=f"{size} times the bound")
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
            said.append(phrases.STOPPED_EARLY)
    lost = stated.get("lost")
    if lost:
        said.append(phrases.LOST.format(lost=lost))
    if stated.get("account"):
        said.append(str(stated["account"]))
    return " ".join(said) or None


def _claim(run: Run) -> str | None:
    claimed = number(run.said("epsilon_claimed"))
    if claimed is None:
        return None
    how = (run.statement or {}).get("claim")
    return f"Epsilon {plain(claimed)}" + (f" ({str(how).rstrip('.')})" if how else "") + f". {phrases.CLAIM}"


def _defence(run: Run, proven: bool) -> str | None:
    named = run.said("defence")
    return phrases.heuristic(named, proven) if named else None


def _left(run: Run, verdict: Verdict) -> Safe | str | None:
    """What left without going through a mechanism."""
    left = run.sentences("disclosures")
    if left:
        return join(*(tag("p", said) for said in left))
    if verdict.kind is Kind.PROVEN:
        return phrases.NOTHING_LEFT
    return "See the reasons above." if verdict.kind is Kind.NOT_PRIVATE else None


def assumed(run: Run, verdict: Verdict) -> Safe | None:
    """What the proof takes for granted; where there is none, nothing."""
    if verdict.kind not in (Kind.PROVEN, Kind.CONTRADICTED):
        return None
    said = run.sentences("assumptions") + run.sentences("notes")
    taken = tag("ol", *(tag("li", sentence) for sentence in said), class_="long")
    if not said:
        taken = tag("p", "The statement names no assumptions.")
    return tag("section", tag("h2", "What is assumed", id="assumed"), taken, aria_labelledby="assumed")


def _sentence(value: object) -> str | None:
    said = str(value).strip() if value else ""
    return said[0].upper() + said[1:].rstrip(".") + "." if said else None
