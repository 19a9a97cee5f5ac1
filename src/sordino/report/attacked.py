"""What a table of attacks may be quoted for: the control, the caveats and the number of judged records of every figure.

`sordino attack` prints these sentences and the report shows them, so that a figure never stands without them. The lines
may come from a file: a field may be missing or of any type, and then counts as not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sordino.report.html import Safe, join, tag
from sordino.report.numbers import number, percent

Line = Mapping[str, object]


def verdict(lines: Sequence[Line]) -> str:
    """What the table as a whole says about the defence."""
    told = [line.get("informative") for line in lines]
    if not any(isinstance(one, bool) for one in told):
        return "No undefended control was attacked, so a low AUC carries no information about the defence."
    if not any(one is True for one in told):
        return (
            "The undefended control resists these attacks too, so this table carries no information about the defence."
        )
    failed = [_name(line) for line, one in zip(lines, told) if one is False]
    absent = [_name(line) for line, one in zip(lines, told) if not isinstance(one, bool)]
    said = []
    if failed:
        said.append(
            f"On the undefended control {', '.join(failed)} failed: those lines carry no information about the defence."
        )
    if absent:
        said.append(
            f"No control was attacked with {', '.join(absent)}: those lines carry no information about the defence."
        )
    return " ".join(said) or "Every attack succeeds on the undefended control, so the table tells about the defence."


def caveats(lines: Sequence[Line]) -> list[str]:
    """Each note once, with the attacks that it is about, unless it is about all."""
    about: dict[str, list[str]] = {}
    for line in lines:
        notes = line.get("notes")
        for note in notes if isinstance(notes, list) else []:
            about.setdefault(str(note), []).append(_name(line))
    return [
        note if len(names) == len(lines) > 1 else f"{', '.join(dict.fromkeys(names))}: {note}"
        for note, names in about.items()
    ]


def judged(line: Line) -> str:
    """How many records a line rests on."""
    counts = [line.get(key) for key in ("members", "non_members")]
    if any(isinstance(count, bool) or not isinstance(count, int) for count in counts):
        return "not recorded"
    return f"{counts[0]:,} + {counts[1]:,}"


def control(line: Line) -> str:
    """What the same attack reached without the defence, and whether the line then says anything."""
    reached = number(line.get("control_auc"))
    if reached is None:
        return "none"
    told = line.get("informative")
    return f"{reached:.3f}" + ("" if told is True else " (fails)" if told is False else " (not judged)")


_COLUMNS = (
    ("auc", "AUC"),
    ("auc_ci", "95% interval"),
    ("auc_ceiling", "AUC, at most"),
    ("tpr_at_1pct", "Found at 1% false alarms"),
    ("tpr_at_0.1pct", "Found at 0.1%"),
    ("asr", "Success rate"),
)


def table(lines: Sequence[Line], refused: Sequence[Line] = ()) -> Safe:
    """The attacks on a run, for the report: first what the table may be quoted for, then its lines, then the caveats."""
    shown = [(key, name) for key, name in _COLUMNS if any(line.get(key) is not None for line in lines)]
    names = ("AUC on the undefended control", "Judged: members + others", *(name for _, name in shown))
    head = tag("tr", tag("th", "Attack", scope="col"), *(tag("th", name, scope="col", class_="n") for name in names))
    rows = []
    for line in lines:
        values = (control(line), judged(line), *(_cell(key, line.get(key)) for key, _ in shown))
        cells = [tag("td", value, class_="n") for value in values]
        rows.append(tag("tr", tag("th", _name(line), scope="row"), *cells))
    notes = [
        *caveats(lines),
        *(f"{_name(one)} was not possible: {one.get('why', 'no reason is given')}" for one in refused),
    ]
    return join(
        tag("p", tag("strong", verdict(lines))),
        tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="scroll", tabindex="0"),
        tag("p", "AUC 0.5 is blind guessing. “At most” is what the proven epsilon allows any attack.", class_="note"),
        tag("ul", *(tag("li", note) for note in notes), class_="note") if notes else None,
    )


def _name(line: Line) -> str:
    return str(line.get("attack", "unnamed"))


def _cell(key: str, value: object) -> str:
    if isinstance(value, list) and len(value) == 2 and all(number(v) is not None for v in value):
        return f"{value[0]:.3f} to {value[1]:.3f}"
    found = number(value)
    if found is None:
        return "–" if value is None else str(value)
    return f"{found:.3f}" if key.startswith("auc") else percent(found)
