"""`MODEL_CARD.md`: what a model is for, what it was trained on, what is proven of it, how good it is, and where that ends.

After Mitchell et al. (2019), Model Cards for Model Reporting. Everything in it is read from the files of the run; what only
its makers know (intended use, ethical questions) is left open and says so.
"""

from __future__ import annotations

import json
from pathlib import Path

from sordino import evaluation, record
from sordino.errors import BadInput
from sordino.plain import Json
from sordino.plan import read_toml
from sordino.privacy.statement import Statement

NAME, HELD_OUT = "MODEL_CARD.md", "held_out.json"


def card(folder: str | Path) -> str:
    """The card of the run in `folder`, as Markdown."""
    folder = Path(folder)
    if not (folder / "plan.toml").is_file():
        raise BadInput(f"{folder} is not a run folder (it has no plan.toml); give the folder of a run.")
    plan = read_toml(folder / "plan.toml")
    told, facts, scored = (_read(folder / name) for name in ("statement.json", record.NAME, evaluation.NAME))
    if not told:
        raise BadInput(f"{folder} has no statement.json: the run has not ended; finish it with sordino train --resume.")
    tested = _read(folder / HELD_OUT).get("figures", {})
    statement = Statement.from_json(told)
    lines = [f"# Model card: {facts.get('data', plan.get('data'))}", ""]
    for title, body in (
        ("What it is", _model(plan, facts)),
        ("Intended use", ["_To be filled in by its makers: who should use it, for what, and for what not._"]),
        ("Training data", _data(plan, facts)),
        ("Guarantee", _guarantee(statement)),
        ("How good it is", [*_scores(scored, bool(tested)), *[""] * bool(scored and tested), *_held_out(tested)]),
        ("Limits", _limits(statement, scored, tested)),
        (
            "How to use it",
            [
                f"`sordino predict {folder.name} --data FILE`, or `sordino.load({folder.name!r}).predict(FILE)` in Python."
            ],
        ),
    ):
        lines += [f"## {title}", "", *body, ""]
    return "\n".join(lines)


def _model(plan: Json, facts: Json) -> list[str]:
    made, software = facts.get("model", {}), facts.get("software", {})
    return [
        f"- Task: {facts.get('task', 'classification')}; outputs: {_few(facts.get('classes', []))}",
        f"- Network: {plan.get('model')} ({made.get('class', '?')}, {made.get('parameters', 0):,} parameters)",
        f"- Method: {plan.get('method')} ({plan.get('variant')}), {plan.get('rounds')} rounds",
        f"- Date: {str(facts.get('date', '?'))[:10]}; software: sordino {software.get('sordino', '?')}, torch {software.get('torch', '?')}",
    ]


def _data(plan: Json, facts: Json) -> list[str]:
    said = [
        f"- Source: {plan.get('data')}, held by {facts.get('clients', '?')} clients",
        f"- Shape of an example: {facts.get('shape')}",
    ]
    if facts.get("features"):
        said.append(f"- Inputs: {_few(facts['features'], 30)} (read through `{record.SCHEMA}`)")
    if facts.get("labels"):
        said.append(f"- Predicted: {_few(facts['labels'])}")
    tested = facts.get("test_examples")
    said.append(f"- Public test examples: {tested:,}" if tested else "- No public test set was given")
    if facts.get("held_out"):
        said.append(f"- Held out, never trained on: {facts['held_out']:,} records")
    return said


def _guarantee(statement: Statement) -> list[str]:
    verdict = statement.text().split("\n\n")[1].replace("\n", " ")
    said = [
        f"**{verdict}**",
        "",
        f"- Unit: {statement.unit}; relation: {statement.relation}; observer: {statement.observer}",
    ]
    said.append(
        "- The whole statement, with everything that it assumes, is in `statement.txt`; `sordino verify` checks it."
    )
    return said


def _held_out(tested: Json) -> list[str]:
    """Figures that carry noise, and how much of it."""
    if not tested:
        return []
    unit = "clients" if tested.get("unit") == "client" else "records"
    low, high = tested["interval"]
    said = [f"On {tested['tested']:,} held-out {unit} that nothing was trained on, released with noise:", ""]
    if "accuracy" in tested:
        said.append(f"- Accuracy: {tested['accuracy']:.1%} (95%: {low:.1%} to {high:.1%})")
    if "majority" in tested:
        said.append(f"- Always naming {tested['majority_class']}: {tested['majority']:.1%}")
    if "balanced_accuracy" in tested:
        said.append(f"- Balanced accuracy: {tested['balanced_accuracy']:.1%}")
    if "mae" in tested:
        middle = f"always naming the middle: {tested['mae_of_middle']:.4g}"
        said.append(f"- Mean absolute error: {tested['mae']:.4g} (95%: {low:.4g} to {high:.4g}); {middle}")
    return said


def _scores(scored: Json, held_out: bool) -> list[str]:
    if not scored:
        return [] if held_out else ["Not measured: there was no public test set."]
    said = [f"On {scored['examples']:,} public test examples:", ""]
    for key, name, form in (
        ("accuracy", "Accuracy", "{:.1%}"), ("majority", "Always naming the most frequent class", "{:.1%}"),
        ("balanced_accuracy", "Balanced accuracy", "{:.1%}"), ("calibration_error", "Calibration error", "{:.3f}"),
        ("rmse", "Root mean square error", "{:.4g}"), ("rmse_of_mean", "Always naming the mean", "{:.4g}"), ("r2", "R2", "{:.3f}"),
    ):  # fmt: skip
        if key in scored:
            said.append(f"- {name}: {form.format(scored[key])}")
    if scored.get("classes"):
        said += ["", "| class | precision | recall | test examples |", "|---|---|---|---|"]
        said += [
            f"| {one['name']} | {_percent(one['precision'])} | {_percent(one['recall'])} | {one['examples']:,} |"
            for one in scored["classes"]
        ]
    return said


def _limits(statement: Statement, scored: Json, tested: Json) -> list[str]:
    warnings = (*scored.get("warnings", []), *tested.get("warnings", []))
    said = [f"- {warning[0].upper()}{warning[1:]}" for warning in warnings]
    said += [f"- Not private: {reason}" for reason in statement.why]
    said.append("- The figures hold for data like the test set; on other data the model may do worse.")
    said.append(
        "- The guarantee is about the training records. It does not say that predictions are right, fair or safe to act on."
    )
    return said


def _few(names: list[str], most: int = 12) -> str:
    return ", ".join(map(str, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _read(file: Path) -> Json:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
