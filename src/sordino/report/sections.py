"""The sections around the promise: the verdict, how training went, the plan, and the command that repeats the run."""

from __future__ import annotations

from sordino.privacy import phrases
from sordino.report.downsample import spread
from sordino.report.html import Safe, tag
from sordino.report.numbers import at_least, at_most, number, percent, plain
from sordino.report.reading import Run
from sordino.report.series import Figure, noise_to_signal, spending
from sordino.report.verdict import Kind, Verdict

ROWS = 40  # of the table behind the charts

SERVER = ("server_optimizer", "server_lr", "server_momentum", "steps", "lr_schedule", "average")
# The plan's settings by subject; what is not named here is listed last.
SUBJECTS = (
    ("Population", ("data", "clients", "partition", "alpha", "model")),
    ("Method", ("method", "variant", "mechanism", "bound", "personal", "defence")),
    ("Guarantee", ("unit", "observer", "relation", "epsilon", "delta", "multiplier")),
    ("Taking part", ("sampling", "cohort", "weights", "weight_cap")),
    ("Chance", ("seed", "secure", "canaries")),
    ("Training", ("rounds", "local_epochs", "batch_size", "lr", "optimizer", "momentum", *SERVER)),
)


def head(run: Run, verdict: Verdict) -> Safe:
    """The verdict, and its reasons where it is not a proof."""
    reasons = None
    if verdict.reasons:
        reasons = tag("ol", *(tag("li", reason) for reason in verdict.reasons), class_="reasons")
    return tag(
        "section",
        tag("h1", _mark(verdict.kind), verdict.headline, id="verdict"),
        tag("p", verdict.lead + ("." if verdict.kind is Kind.PROVEN else ""), class_="lead"),
        tag("p", tag("strong", verdict.rehearsal), class_="rehearsal") if verdict.rehearsal else None,
        reasons,
        _what(run, verdict),
        _where(run),
        _key_figures(run, verdict),
        class_="verdict",
        aria_labelledby="verdict",
    )


def _mark(kind: Kind) -> Safe:
    """A tick, a cross or a dash: the verdict must not hang on colour alone."""
    path = {Kind.PROVEN: "M7 12.5l3.5 3.5 6.5-8", Kind.OPEN: "M7 12h10"}.get(kind, "M8 8l8 8m0-8l-8 8")
    disc = tag("circle", cx=12, cy=12, r=11)
    return tag("svg", disc, tag("path", d=path), viewBox="0 0 24 24", class_="mark", aria_hidden="true")


def _where(run: Run) -> Safe | None:
    simulated = (run.statement or {}).get("simulated")
    if not isinstance(simulated, bool):
        return None
    return tag("p", phrases.SIMULATION if simulated else phrases.DEPLOYMENT, class_="where")


def _what(run: Run, verdict: Verdict) -> Safe:
    """What was trained, in a line. "Certified" is not said of a run for which nothing is proven."""
    method, variant, data = run.said("method"), run.said("variant"), run.plan.get("data")
    if verdict.kind is not Kind.PROVEN and variant == "certified":
        variant = None
    clients = number(run.plan.get("clients"))
    said = f"Trained with {method or 'a method that is not stated'}" + (f" ({variant} variant)" if variant else "")
    said += (f" on {data}" if data else "") + (f", held by {clients:,.0f} clients." if clients else ".")
    return tag("p", said, class_="where")


def _key_figures(run: Run, verdict: Verdict) -> Safe:
    """The few numbers that are asked for first."""
    shown: list[tuple[str, str, str]] = []
    if verdict.epsilon is not None:
        budget = number(run.said("budget")) or number(run.plan.get("epsilon"))
        shown.append(("Epsilon, proven", at_most(verdict.epsilon), f"of a budget of {plain(budget)}" if budget else ""))
    claimed = number(run.said("epsilon_claimed"))
    if claimed is not None:
        shown.append(("Epsilon, claimed", plain(claimed), "by the paper’s own accounting"))
    measured = number((run.audit or {}).get("epsilon_lower"))
    if measured is not None:
        shown.append(("Epsilon, measured", f"≥ {at_least(measured)}", "by the audit"))
    accuracy = run.points("accuracy")
    if accuracy:
        shown.append(("Accuracy", percent(accuracy[-1][1]), "measured on a public test set"))
        shown += _price(run, accuracy[-1][1])
    else:
        shown.append(("Accuracy", "–", "not measured"))
    shown.append(_between_clients(run))
    planned = number(run.said("rounds_planned")) or number(run.plan.get("rounds"))
    short = planned is not None and run.rounds < planned
    shown.append(("Rounds", f"{run.rounds:,}", f"of {int(planned):,} planned" if short and planned else "as planned"))
    cells = [tag("div", tag("dt", name), tag("dd", tag("b", value), tag("span", note))) for name, value, note in shown]
    return tag("dl", *cells, class_="figures")


def _price(run: Run, accuracy: float) -> list[tuple[str, str, str]]:
    """What says nothing, and what asks for no privacy, beside the accuracy."""
    shown = []
    least = number((run.scored or {}).get("majority"))
    most = number((run.comparison or {}).get("without_privacy"))
    if least is not None:
        shown.append(("Majority class", percent(least), "by always naming the most frequent class"))
    if most is not None:
        costs = f"the same network; privacy costs {100 * (most - accuracy):.1f} points. No epsilon covers this figure"
        shown.append(("Without privacy", percent(most), costs))
    return shown


def _between_clients(run: Run) -> tuple[str, str, str]:
    """How far clients lie apart, on public splits of theirs; other figures stay with the clients."""
    name, said = "Between clients", run.fairness or {}
    sd, lowest, tenth, many = (number(said.get(key)) for key in ("sd", "lowest", "tenth", "clients"))
    if sd is None or lowest is None or tenth is None or many is None:
        return name, "–", "no public test split of each client; such figures stay with the clients"
    few = number(said.get("smallest")) or 0
    chance = f"; the smallest split has {few:,.0f} records" if few < 50 else ""
    note = f"standard deviation of accuracy over {many:,.0f} public splits; lowest {percent(lowest)}, 10th percentile {percent(tenth)}"
    return name, f"{100 * sd:.1f} points", note + chance


def training(run: Run, figures: list[Figure]) -> Safe:
    """The charts, and the numbers behind them."""
    heading = tag("h2", "How training went", id="training")
    if not run.metrics:
        return tag("section", heading, tag("p", "No rounds are recorded in this folder."), aria_labelledby="training")
    drawn = []
    for figure in figures:
        scale = tag("small", " logarithmic scale") if figure.chart.log else None
        title = tag("h3", tag("span", figure.chart.title, scale), tag("b", figure.latest))
        drawn.append(tag("figure", title, figure.chart.svg(), tag("figcaption", figure.note)))
    return tag("section", heading, tag("div", *drawn, class_="charts"), _table(run), aria_labelledby="training")


def _table(run: Run) -> Safe:
    ratio, share = dict(noise_to_signal(run)), dict(spending(run)[0])
    if number((run.statement or {}).get("epsilon")) is None:
        share = {}
    rows = [row | {"ratio": ratio.get(row["round"]), "share": share.get(row["round"])} for row in run.metrics]
    shown = [c for c in _COLUMNS if any(number(row.get(c[0])) is not None for row in rows)]
    measured = [row for row in rows if number(row.get("accuracy")) is not None or row in (rows[0], rows[-1])]
    some = rows if len(rows) <= ROWS else spread(measured if len(measured) >= ROWS // 2 else rows, ROWS)
    head = tag("tr", *(tag("th", name, scope="col", class_="n") for name in ("Round", *(c[1] for c in shown))))
    body = []
    for row in some:
        values = [(number(row.get(key)), form) for key, _, form in shown]
        cells = [tag("td", "–" if value is None else form(value), class_="n") for value, form in values]
        body.append(tag("tr", tag("th", f"{row['round']:,}", scope="row", class_="n"), *cells))
    which = f"{len(some)} of {len(rows):,} rounds" if len(some) < len(rows) else f"rounds: {len(rows)}"
    table = tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="scroll", tabindex="0")
    return tag("details", tag("summary", f"The numbers behind the charts ({which})"), table)


# No timings: how long a round took tells how many took part, which may be what the proof keeps secret.
_COLUMNS = (
    ("accuracy", "Accuracy", percent),
    ("loss", "Loss", lambda v: plain(v, 3)),
    ("bound", "Bound", plain),
    ("multiplier", "Multiplier", plain),
    ("ratio", "Noise in step", lambda v: plain(v, 3)),
    ("share", "Budget spent", percent),
    ("cohort", "Cohort", plain),
)


def plan(run: Run) -> Safe:
    """Every setting, by subject."""
    left = dict(run.plan)
    options = left.pop("options", None)
    blocks = []
    for subject, keys in SUBJECTS:
        rows = [(key, left.pop(key)) for key in keys if key in left]
        if subject == "Method" and isinstance(options, dict):
            rows += list(options.items())
        blocks.append(_settings(subject, rows))
    blocks.append(_settings("Other", list(left.items())))
    return tag("section", tag("h2", "The plan", id="plan"), tag("div", *blocks, class_="plan"), aria_labelledby="plan")


def _settings(subject: str, rows: list[tuple[str, object]]) -> Safe | None:
    if not rows:
        return None
    cells = [(tag("th", key.replace("_", " "), scope="row"), tag("td", _setting(value))) for key, value in rows]
    return tag("table", tag("caption", subject), tag("tbody", *(tag("tr", *pair) for pair in cells)))


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return plain(value, 6) if isinstance(value, float) and number(value) is not None else str(value)


def repeat(run: Run) -> Safe:
    """The command, and the plan file that it needs."""
    exactly = "The same plan gives the same model, in one process or in several."
    if run.plan.get("secure") is True:
        exactly = "The noise comes from the secure source and is drawn anew, so figures differ within its range."
    return tag(
        "section",
        tag("h2", "To repeat this run", id="repeat"),
        tag("p", "The run folder holds the plan as ", tag("code", "plan.toml"), ". ", exactly),
        tag("pre", tag("code", "sordino train --plan plan.toml"), tabindex="0"),
        tag("p", "A run that was started from Python also needs its own model and data.", class_="note"),
        tag("details", tag("summary", "plan.toml"), tag("pre", tag("code", run.plan_text), tabindex="0")),
        aria_labelledby="repeat",
    )
