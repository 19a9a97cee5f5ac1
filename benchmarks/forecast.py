"""Whether the planner's word before a run is right: forecast against outcome, and what its first remedy brings.

    python benchmarks/forecast.py            every setting that was not run yet
    python benchmarks/forecast.py --page     put the table on docs/regret.md

Each setting runs as `sordino train` would run it with nothing given but data, clients, unit and epsilon. Where learning is not called
plausible, the options of the first remedy that the data can follow are run too. "Of what can be learnt" holds the accuracy between the share
of the largest class and what the example unit reaches at epsilon 8. Results are lines in docs/results/forecast.jsonl.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator

import numpy as np
import regret
from page import DOCS, fill

from sordino import Plan
from sordino.assembly import assemble
from sordino.cli.plan import effective_of
from sordino.federation.population import Federation
from sordino.planning.planner import Forecast, Scenario, plan
from sordino.planning.remedies import Remedy

RESULTS = DOCS / "results" / "forecast.jsonl"
MNIST = (1_500, 2_000)
# data, records and tests (0: all), unit, clients, epsilon
CASES = [
    *[("digits", 0, 0, "client", clients, 4.0) for clients in (10, 30, 100, 300)],
    *[("digits", 0, 0, "client", 100, epsilon) for epsilon in (0.3, 1.0)],
    *[("digits", 0, 0, "example", 10, epsilon) for epsilon in (0.03, 0.1, 0.3, 1.0)],
    *[("mnist", *MNIST, "client", clients, 4.0) for clients in (10, 30, 100)],
    *[("mnist", *MNIST, "example", 10, epsilon) for epsilon in (0.1, 0.3, 1.0)],
]
NAMES = (
    "clients",
    "rounds",
    "cohort",
    "unit",
    "relation",
    "sampling",
    "delta",
    "batch_size",
    "local_epochs",
    "epsilon",
)
LEARNT, DROWNED = 0.75, 0.3  # of what can be learnt: from here on plausible was right, up to there implausible


def setting(case: tuple) -> regret.Setting:
    data, records, tests, unit, clients, _ = case
    return regret.Setting(data, records, tests, clients, unit, "iid")


def forecast(chosen: Plan, federation: Federation) -> Forecast:
    """As `sordino train` would say it."""
    model = assemble(chosen, federation)[0]
    dimension = sum(p.numel() for p in model.parameters())
    examples = federation.examples // federation.clients
    given = {name: getattr(chosen, name) for name in NAMES} | {"dimension": dimension, "examples": examples}
    effective = effective_of(chosen, dimension, federation.classes)
    return plan(
        Scenario(**given, effective=effective, observer="secagg-server")
    )  # the default; noise is drawn centrally here


def followed(remedies: tuple[Remedy, ...]) -> tuple[Remedy, dict[str, object]] | None:
    """The first remedy that the same data can follow, and what it gives."""
    for remedy in remedies:
        words = remedy.options.split()
        given = {name[2:].replace("-", "_"): value for name, value in zip(words[::2], words[1::2])}
        if "clients" in given or "dimension" in given or remedy.doubtful:
            continue
        given.pop("observer", None)
        number = {
            name: float(value) if name == "epsilon" else int(value) for name, value in given.items() if name != "unit"
        }
        return remedy, given | number
    return None


def run(case: tuple) -> dict[str, object]:
    what, epsilon, began = setting(case), case[-1], time.perf_counter()
    federation = regret.population(what, 0)
    chosen = regret.recipe(federation, what, epsilon, 0)
    said = forecast(chosen, federation)
    row = {
        "case": list(case),
        "left": said.left,
        "verdict": said.verdict,
        "accuracy": regret.run(federation, chosen)[0],
    }
    assert federation.test is not None
    row["majority"] = float(np.bincount(np.asarray(federation.test[1])).max() / len(federation.test[1]))
    found = followed(said.remedies)
    if found is not None:
        remedy, given = found
        asked = {"unit": what.unit, "epsilon": epsilon, **given}
        after = regret.plan_for(federation, observer="public", seed=0, partition="iid", **asked)
        row |= {"remedy": remedy.change, "options": remedy.options, "left after": remedy.left}
        row["after"] = regret.run(federation, after)[0]
    return row | {"seconds": round(time.perf_counter() - began, 1)}


def table(rows: list[dict]) -> str:
    best = {(r["case"][0]): r["accuracy"] for r in rows if r["case"][-1] == 8.0 and r["case"][3] == "example"}
    lines = [
        "| data | unit | clients | epsilon | noise over signal | forecast | accuracy | of what can be learnt | right | first remedy | noise over signal then | accuracy then |",
        "|---" * 12 + "|",
    ]
    right = 0
    shown = [r for r in rows if not (r["case"][-1] == 8.0 and r["case"][3] == "example")]
    for r in shown:
        data, _, _, unit, clients, epsilon = r["case"]
        learnt = (r["accuracy"] - r["majority"]) / (best[data] - r["majority"])
        fits = {"plausible": learnt >= LEARNT, "hard": DROWNED <= learnt < 0.95, "implausible": learnt < DROWNED}[
            r["verdict"]
        ]
        right += fits
        after = f"{r['remedy']} | {r['left after']:.2g} | {100 * r['after']:.1f}" if "after" in r else "- | - | -"
        lines.append(
            f"| {data} | {unit} | {clients} | {epsilon:g} | {r['left']:.2g} | {r['verdict']} | {100 * r['accuracy']:.1f} | {100 * learnt:.0f}% | "
            f"{'yes' if fits else 'no'} | {after} |"
        )
    return "\n".join([*lines, "", f"Right in {right} of {len(shown)} settings, one seed each."])


def todo(rows: list[dict]) -> Iterator[tuple]:
    done = {json.dumps(r["case"]) for r in rows}
    tops = dict.fromkeys((case[0], *case[1:3], "example", 10, 8.0) for case in CASES)
    return (case for case in [*tops, *CASES] if json.dumps(list(case)) not in done)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="only put the table of what there is on docs/regret.md")
    args = parser.parse_args()
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    for case in [] if args.page else todo(rows):
        rows.append(run(case))
        print(json.dumps(rows[-1]), flush=True)
        with RESULTS.open("a") as lines:
            lines.write(json.dumps(rows[-1]) + "\n")
    if args.page:
        fill("regret.md", "forecast", table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
