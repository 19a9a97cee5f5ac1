"""The page: sections in order, one style sheet, no script, and a policy that forbids the browser to fetch anything."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from sordino.report import inverted, sections
from sordino.report.compare import comparison
from sordino.report.html import Safe, sheet, tag
from sordino.report.promise import assumed, promise
from sordino.report.reading import Run
from sordino.report.series import figures
from sordino.report.tested import held_out, tested
from sordino.report.verdict import Kind, Verdict

_TONE = {Kind.PROVEN: "good", Kind.OPEN: "open"}


def page(run: Run, verdict: Verdict) -> str:
    """The whole document. It depends on the files of the run alone: the same files give the same bytes."""
    css = files("sordino.report").joinpath("report.css").read_text()
    body = tag(
        "body",
        _masthead(run),
        tag(
            "main",
            sections.head(run, verdict),
            comparison(run, verdict),
            inverted.section(run),
            promise(run, verdict),
            assumed(run, verdict),
            sections.training(run, figures(run)),
            tested(run),
            held_out(run),
            sections.plan(run),
            sections.repeat(run),
        ),
        _foot(run),
        class_=_TONE.get(verdict.kind, "bad"),
    )
    return f"<!DOCTYPE html>\n{tag('html', _head(run, verdict, css), body, lang='en')}\n"


def _head(run: Run, verdict: Verdict, css: str) -> Safe:
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    images = "img-src data:; " if inverted.shows_records(run) else ""
    policy = f"default-src 'none'; {images}style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{verdict.headline} · {run.name} · Sordino"),
        sheet(css),
    )


def _masthead(run: Run) -> Safe:
    title = tag("p", f"Privacy report for {run.name}")
    shown = tag("p", tag("strong", inverted.WARNING)) if inverted.shows_records(run) else None
    return tag("header", tag("p", "Sordino", class_="brand"), title, shown, class_="masthead")


def _foot(run: Run) -> Safe:
    lines = [tag("div", tag("span", word)) for word in ("Read by", "Date", "Signature")]
    return tag(
        "footer",
        tag("div", *lines, class_="sign", aria_hidden="true"),
        tag(
            "p",
            "Drawn from the plan, the statement and the metrics of the run. All figures are released values.",
            _played(run),
        ),
    )


def _played(run: Run) -> str | None:
    """The results of attacks are no released values: the owner of the data played them on the data itself."""
    if not run.attacks and run.inversion is None:
        return None
    return " Except those of attacks: the owner of the data played them on the data itself, and no epsilon covers them."
