"""What inversion drew of a run: how near it came, what the control says, what the proof allows any attack, and the pictures.

The lines come from a file: a field may be missing or of any type, and then counts as not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sordino.report.attacked import caveats
from sordino.report.html import Safe, join, picture, tag
from sordino.report.numbers import number, percent, plain
from sordino.report.reading import Run

Line = Mapping[str, object]
WARNING = "This page shows private records as pictures. Keep it where the data is kept."
STRIPS = (
    ("original", "Originals"),
    ("drawn", "Drawn from what this run sends"),
    ("undefended", "Drawn without the defence"),
)


def shows_records(run: Run) -> bool:
    """Whether there are pictures of private records."""
    return any(_strips(line) for line in _lines(run))


def section(run: Run) -> Safe | None:
    """The section, where the messages or the classes of the run were attacked."""
    lines = _lines(run)
    if not lines:
        return None
    found = run.inversion or {}
    messages = [line for line in lines if number(line.get("ssim")) is not None]
    classes = [line for line in lines if number(line.get("top1")) is not None]
    refused = found.get("refused")
    notes = [
        *caveats(lines),
        *(
            f"{one.get('attack', 'an attack')} was not possible: {one.get('why', 'no reason is given')}"
            for one in (refused if isinstance(refused, list) else [])
            if isinstance(one, dict)
        ),
    ]
    return tag(
        "section",
        tag("h2", "What can be drawn", id="drawn"),
        tag("p", tag("strong", str(found.get("verdict", "")))),
        _messages(messages) if messages else None,
        _classes(classes) if classes else None,
        tag("ul", *(tag("li", note) for note in notes), class_="note") if notes else None,
        _pictures(lines) if shows_records(run) else None,
        aria_labelledby="drawn",
    )


def _lines(run: Run) -> list[Line]:
    found = (run.inversion or {}).get("results")
    return [line for line in found if isinstance(line, dict)] if isinstance(found, list) else []


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Safe:
    names = [tag("th", name, scope="col", class_="n" if i else None) for i, name in enumerate(head)]
    body = [
        tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell, class_="n") for cell in row[1:])) for row in rows
    ]
    table = tag("table", tag("thead", tag("tr", *names)), tag("tbody", *body))
    return tag("div", table, class_="scroll", tabindex="0")


def _messages(lines: Sequence[Line]) -> Safe:
    head = (
        "Attack", "Records in the message", "MSE", "PSNR, dB", "SSIM", "SSIM without the defence", "Drawn",
        "At most, this message", "At most, the run",
    )  # fmt: skip
    rows = []
    for line in lines:
        share = [number(line.get(key)) for key in ("reconstructed", "message_bound", "reconstruction_bound")]
        rows.append(
            (
                _name(line), _plain(line, "batch"), _plain(line, "mse", 4), _fixed(line, "psnr", 1), _fixed(line, "ssim", 3),
                control(line), *("–" if one is None else percent(one) for one in share),
            )
        )  # fmt: skip
    return join(_table(head, rows), tag("p", _explained(lines), class_="note"))


def control(line: Line) -> str:
    """What the same attack reached without the defence, and whether the line then says anything."""
    reached = number(line.get("control_ssim"))
    if reached is None:
        return "none"
    return f"{reached:.3f}" + ("" if line.get("informative") is True else " (fails: this line says nothing)")


def _explained(lines: Sequence[Line]) -> str:
    chance = {number(line.get("prior_chance")) for line in lines} - {None}
    guess = f" One guess without any message is that near in {percent(max(c for c in chance if c is not None))} of cases." if chance else ""  # fmt: skip
    return (
        "A picture is nearer if its MSE is lower, or its PSNR and SSIM are higher; SSIM 1 is the original. “Drawn” is the share of pictures with SSIM of at least "
        "0.5. “At most” is the largest probability with which any attack can come that near to a record, by the proof "
        f"(reconstruction robustness: Hayes, Mahloujifar and Balle 2023); 100% says that nothing is proven.{guess}"
    )


def _classes(lines: Sequence[Line]) -> Safe:
    head = (
        "Attack on the model",
        "Judged right, top 1",
        "Top 5",
        "Chance",
        "Times chance",
        "The judge itself is right",
    )
    keys = ("top1", "top5", "chance")
    rows = []
    for line in lines:
        shares = ["–" if number(line.get(key)) is None else percent(number(line.get(key)) or 0.0) for key in keys]
        judge = number(line.get("judge_accuracy"))
        rows.append(
            (_name(line), *shares, _fixed(line, "times_chance", 1), "not measured" if judge is None else percent(judge))
        )
    return _table(head, rows)


def _pictures(lines: Sequence[Line]) -> Safe:
    figures = []
    for line in lines:
        strips = _strips(line)
        if strips:
            shown = [tag("div", tag("p", words, class_="note"), image) for words, image in strips]
            figures.append(tag("figure", tag("h3", _name(line)), *shown))
    return join(
        tag("h3", "Originals and reconstructions"),
        tag("p", tag("strong", WARNING), class_="rehearsal"),
        tag("div", *figures, class_="charts"),
    )


def _strips(line: Line) -> list[tuple[str, Safe]]:
    found = line.get("pictures")
    if not isinstance(found, dict):
        return []
    kept = [(words, found.get(key)) for key, words in STRIPS]
    made = [(words, picture(data, f"{words}: {_name(line)}")) for words, data in kept if isinstance(data, str)]
    return [(words, image) for words, image in made if image is not None]


def _name(line: Line) -> str:
    which = {"first": "first round", "trained": "trained model"}.get(str(line.get("model")))
    knows = f" that knows {line.get('defence')}" if line.get("adaptive") is True else ""
    return str(line.get("attack", "unnamed")) + knows + (f", {which}" if which else "")


def _plain(line: Line, key: str, digits: int = 3) -> str:
    found = number(line.get(key))
    return "–" if found is None else plain(found, digits)


def _fixed(line: Line, key: str, digits: int) -> str:
    found = number(line.get(key))
    return "–" if found is None else f"{found:.{digits}f}"
