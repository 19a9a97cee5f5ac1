"""The sections on the public test set and on held-out records: what a guess would reach, and how each class fares."""

from __future__ import annotations

from sordino.plain import Json
from sordino.report.html import Safe, tag
from sordino.report.numbers import number, percent, plain
from sordino.report.reading import Run

MOST = 20  # classes of which a table of confusions is still read

_FIGURES = (
    ("accuracy", "Accuracy", percent),
    ("majority", "Accuracy of always naming the most frequent class", percent),
    ("balanced_accuracy", "Balanced accuracy: the mean recall of all classes", percent),
    ("calibration_error", "Calibration error: how far confidence is from accuracy", percent),
    ("rmse", "Root mean square error", plain),
    ("rmse_of_mean", "Root mean square error of always naming the mean", plain),
    ("mae", "Mean absolute error", plain),
    ("mae_of_middle", "Mean absolute error of always naming the middle of the declared span", plain),
    ("r2", "R²", plain),
)


def tested(run: Run) -> Safe | None:
    """None where no figures were kept."""
    if run.scored is None:
        return None
    found: Json = run.scored
    return tag(
        "section",
        tag("h2", "On the public test set", id="tested"),
        *_warnings(found),
        _figures(found),
        _classes(found),
        _confusion(found),
        aria_labelledby="tested",
    )


def held_out(run: Run) -> Safe | None:
    """Figures that carry noise; None where nothing was held out."""
    if run.held_out is None:
        return None
    found: Json = run.held_out
    ends = [number(end) for end in found.get("interval", [])]
    form = percent if "accuracy" in found else plain
    rows = [] if len(ends) != 2 or None in ends else [("95% interval, noise and draw", " to ".join(map(form, ends)))]  # type: ignore[arg-type]
    noise = number(found.get("noise"))
    rows += [] if noise is None else [("Deviation of the noise", form(noise))]
    unit = "clients" if found.get("unit") == "client" else "records"
    return tag(
        "section",
        tag("h2", "On held-out records, with noise", id="held-out"),
        tag("p", "Nothing was trained on these records. The figures carry noise and are part of the guarantee above."),
        *_warnings(found),
        _table(_known(found) + rows, f"{found.get('tested', 0):,} {unit}"),
        _recalls(found),
        _between(found),
        aria_labelledby="held-out",
    )


def _between(found: Json) -> Safe | None:
    """How far clients lie apart, where the plan asks for it."""
    apart = found.get("between")
    if not isinstance(apart, dict):
        return None
    sd = number(apart.get("sd"))
    rows = [("Standard deviation of the clients' accuracies", "lost in the noise" if sd is None else percent(sd))]
    known = [("Lowest, noise included", "lowest"), ("10th percentile, noise included", "tenth")]
    rows += [(name, percent(value)) for name, key in known if (value := number(apart.get(key))) is not None]
    noise = number(apart.get("noise"))
    if noise is not None and "lowest" in apart:
        rows.append(("Largest deviation of the noise in a client's accuracy", percent(noise)))
    return _table(rows, f"{apart.get('clients', 0):,} clients")


def _warnings(found: Json) -> list[Safe]:
    said = [text for text in found.get("warnings", []) if isinstance(text, str)]
    return [tag("p", tag("strong", f"{text[:1].upper()}{text[1:]}")) for text in said]


def _known(found: Json) -> list[tuple[str, str]]:
    return [(name, form(value)) for key, name, form in _FIGURES if (value := number(found.get(key))) is not None]


def _figures(found: Json) -> Safe:
    return _table(_known(found), f"{found.get('examples', 0):,} examples")


def _table(known: list[tuple[str, str]], caption: str) -> Safe:
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", value, class_="n")) for name, value in known]
    return tag("table", tag("caption", caption), tag("tbody", *rows))


def _recalls(found: Json) -> Safe | None:
    each = [one for one in found.get("classes", []) if isinstance(one, dict)]
    if not each:
        return None
    head = tag("tr", *(tag("th", name, scope="col") for name in ("Class", "Recall", "Share of the records")))
    body = []
    for one in each:
        shares = [number(one.get(key)) for key in ("recall", "share")]
        cells = [tag("td", "–" if share is None else percent(share), class_="n") for share in shares]
        body.append(tag("tr", tag("th", str(one.get("name")), scope="row"), *cells))
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="scroll", tabindex="0")


def _classes(found: Json) -> Safe | None:
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


def _confusion(found: Json) -> Safe | None:
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
