"""The section on the public test set: what a guess would reach, how each class fares, and what is taken for what."""

from __future__ import annotations

from typing import Any

from sordino.report.html import Safe, tag
from sordino.report.numbers import number, percent, plain
from sordino.report.reading import Run

MOST = 20  # classes of which a table of confusions is still read

_FIGURES = (
    ("accuracy", "Accuracy", percent),
    ("majority", "Accuracy of always naming the commonest class", percent),
    ("balanced_accuracy", "Balanced accuracy: the mean recall of all classes", percent),
    ("calibration_error", "Calibration error: how far confidence is from accuracy", percent),
    ("rmse", "Root mean square error", plain),
    ("rmse_of_mean", "Root mean square error of always naming the mean", plain),
    ("mae", "Mean absolute error", plain),
    ("r2", "R²", plain),
)


def tested(run: Run) -> Safe | None:
    """None where no figures were kept."""
    if run.scored is None:
        return None
    found: dict[str, Any] = run.scored
    said = [
        tag("p", tag("strong", f"{text[:1].upper()}{text[1:]}"))
        for text in found.get("warnings", [])
        if isinstance(text, str)
    ]
    return tag(
        "section",
        tag("h2", "On the public test set", id="tested"),
        *said,
        _figures(found),
        _classes(found),
        _confusion(found),
        aria_labelledby="tested",
    )


def _figures(found: dict[str, Any]) -> Safe:
    known = [(name, form(value)) for key, name, form in _FIGURES if (value := number(found.get(key))) is not None]
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", value, class_="n")) for name, value in known]
    return tag("table", tag("caption", f"{found.get('examples', 0):,} examples"), tag("tbody", *rows))


def _classes(found: dict[str, Any]) -> Safe | None:
    each = [one for one in found.get("classes", []) if isinstance(one, dict)]
    if not each:
        return None
    head = tag("tr", *(tag("th", name, scope="col") for name in ("Class", "Precision", "Recall", "Test examples")))
    body = []
    for one in each:
        shares = [number(one.get(key)) for key in ("precision", "recall")]
        cells = [tag("td", "–" if share is None else percent(share), class_="n") for share in shares]
        body.append(
            tag(
                "tr",
                tag("th", str(one.get("name")), scope="row"),
                *cells,
                tag("td", str(one.get("examples")), class_="n"),
            )
        )
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="scroll", tabindex="0")


def _confusion(found: dict[str, Any]) -> Safe | None:
    rows, names = (
        found.get("confusion", []),
        [str(one.get("name")) for one in found.get("classes", []) if isinstance(one, dict)],
    )
    if not rows or len(names) > MOST:
        return None
    head = tag("tr", tag("th", "True class"), *(tag("th", f"as {name}", scope="col", class_="n") for name in names))
    body = [
        tag("tr", tag("th", name, scope="row"), *(tag("td", str(count), class_="n") for count in row[: len(names)]))
        for name, row in zip(names, rows)
    ]
    table = tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="scroll", tabindex="0")
    return tag("details", tag("summary", "What is taken for what"), table)
