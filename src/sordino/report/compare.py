"""Claimed, proven and measured side by side: three epsilons on one scale, and what each attack achieved."""

from __future__ import annotations

from dataclasses import dataclass

from sordino.report import attacked
from sordino.report.axis import linear
from sordino.report.html import Safe, tag
from sordino.report.numbers import at_least, at_most, number, percent, plain
from sordino.report.reading import Run
from sordino.report.verdict import Kind, Verdict

WIDTH, ROW, LEFT, RIGHT = 720, 40, 190, 90


@dataclass(frozen=True)
class Bar:
    """One epsilon. `value` None: there is no finite one, and the bar runs off the scale."""

    kind: str  # claimed, proven, measured
    label: str
    value: float | None
    shown: str
    note: str


def bars(run: Run, verdict: Verdict) -> list[Bar]:
    """The epsilons that are known of a run, in the order of the promise."""
    found = []
    claimed = number(run.said("epsilon_claimed"))
    if claimed is None:
        claimed = number((run.audit or {}).get("epsilon_claimed"))
    if claimed is not None:
        note = f"What its own accounting prints: {(run.statement or {}).get('claim') or 'not proven here'}"
        found.append(Bar("claimed", "Claimed by the paper", claimed, plain(claimed), note))
    if verdict.kind is Kind.PROVEN and verdict.epsilon is not None:
        note = "An upper limit: no attack can do better."
        found.append(Bar("proven", "Proven", verdict.epsilon, at_most(verdict.epsilon), note))
    else:
        word = "no bound" if verdict.kind is not Kind.CONTRADICTED else "contradicted"
        found.append(Bar("unproven", "Proven", None, word, "There is no bound on what an attack may show."))
    audit = run.audit or {}
    measured = number(audit.get("epsilon_lower"))
    if measured is not None:
        found.append(Bar("measured", "Measured by the audit", measured, f"≥ {at_least(measured)}", _measured(audit)))
    return found


def _measured(audit: dict[str, object]) -> str:
    confidence, most = number(audit.get("confidence")), number(audit.get("largest_provable"))
    said = "An attack on this run achieved it"
    if confidence is not None:
        said += f", at confidence {percent(confidence, 0)}"
    return said + ("." if most is None else f"; this audit could have shown {plain(most, 3)} at most.")


def comparison(run: Run, verdict: Verdict) -> Safe | None:
    """The section, where there is something to compare with."""
    found = bars(run, verdict)
    if len(found) < 2 and not run.attacks:
        return None
    words = {"claimed": "claimed", "measured": "measured"}
    named = [words.get(bar.kind, "proven") for bar in found]
    title = ", ".join(named) if len(named) > 2 else " and ".join(named) if len(named) > 1 else "measured"
    parts: list[Safe | None] = [tag("h2", title.capitalize(), id="compared")]
    if len(found) > 1:
        parts += [_refuted(run), _scale(found), _table(found)]
    if run.attacks:
        parts += [tag("h3", "Attacks on this run"), attacked.table(run.attacks, run.refused)]
    return tag("section", *parts, aria_labelledby="compared")


def _refuted(run: Run) -> Safe | None:
    """A measurement above the paper's claim proves the claim wrong."""
    audit = run.audit or {}
    measured, claimed = number(audit.get("epsilon_lower")), number(run.said("epsilon_claimed"))
    if measured is None or claimed is None or measured <= claimed:
        return None
    return tag("p", tag("strong", "The claim is refuted: "), "the audit measured more than the claim allows.")


def _scale(found: list[Bar]) -> Safe:
    finite = [bar.value for bar in found if bar.value is not None]
    axis = linear(0.0, max([*finite, 0.1]) * (1.0 if None not in [bar.value for bar in found] else 1.25))
    height = ROW * len(found) + 34
    parts: list[Safe] = [
        tag("title", "Claimed, proven and measured epsilon", id="scale-title"),
        tag("desc", "; ".join(f"{bar.label}: {bar.shown}" for bar in found) + ".", id="scale-words"),
    ]
    base = ROW * len(found) + 4
    for value in axis.ticks:
        x = round(LEFT + axis.at(value) * (WIDTH - LEFT - RIGHT), 1)
        parts.append(tag("line", x1=x, x2=x, y1=4, y2=base, class_="grid"))
        parts.append(tag("text", plain(value), x=x, y=base + 18, class_="tick across"))
    for i, bar in enumerate(found):
        middle = i * ROW + ROW / 2 + 4
        length = round((1.0 if bar.value is None else axis.at(bar.value)) * (WIDTH - LEFT - RIGHT), 1)
        shape = tag("rect", x=LEFT, y=middle - 9, width=max(length, 1.5), height=18, class_=f"bar {bar.kind}")
        parts.append(tag("text", bar.label, x=LEFT - 12, y=middle, dy="0.35em", class_="label up"))
        parts.append(tag("g", tag("title", f"{bar.label}: {bar.shown}"), shape))
        parts.append(tag("text", bar.shown, x=LEFT + length + 8, y=middle, dy="0.35em", class_="value"))
    parts.append(tag("text", "epsilon", x=LEFT - 12, y=base + 18, class_="tick up"))
    svg = tag(
        "svg",
        *parts,
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_labelledby="scale-title scale-words",
        class_="chart scale",
    )
    return tag("div", svg, class_="wide-only")


def _table(found: list[Bar]) -> Safe:
    rows = []
    for bar in found:
        cells = tag("td", bar.shown, class_="n"), tag("td", bar.note)
        rows.append(tag("tr", tag("th", bar.label, scope="row"), *cells))
    head = tag("tr", *(tag("th", name, scope="col", class_=kind) for name, kind in _HEAD))
    return tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="scroll", tabindex="0")


_HEAD = (("", None), ("Epsilon", "n"), ("What it means", None))
