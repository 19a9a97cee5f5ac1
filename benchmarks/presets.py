"""Every preset on its own data, shortened or in full: what it reaches and prints, beside what its paper reports.

    python benchmarks/presets.py                      two rounds of one local epoch with cohorts of two, as a check that all run
    python benchmarks/presets.py --rounds 30          more rounds; cohorts and epochs as in the paper
    python benchmarks/presets.py --full acn-mnist     the paper's own setting

A line of JSON for each run goes to `--out` and is not run again if it is there. Data that is not here is named. `--page` puts the table of the
shortened form on docs/papers.md.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from page import fill

CHECK = {"rounds": 2, "local_epochs": 1}


def paper(name: str) -> str:
    """What the paper reports, from the first line of the preset."""
    from sordino import presets

    first = (presets.FOLDER / f"{name}.toml").read_text().splitlines()[0]
    found = re.search(r"\((.*)\)", first)
    return found.group(1).split(", that is")[0] if found else ""


def settings(name: str, args: argparse.Namespace) -> dict[str, Any]:
    from sordino import presets

    given = presets.read(name)
    if args.full:
        return given
    if args.rounds:
        return given | {"rounds": args.rounds}
    return given | CHECK | ({"cohort": 2} if "cohort" in given else {})


def run(given: dict[str, Any]) -> dict[str, Any]:
    from sordino.assembly import prepare
    from sordino.engines import EngineOptions
    from sordino.training import train

    model, federation, plan, _ = prepare(given)
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        speed = EngineOptions(workers=1, evaluate_every=plan.rounds)
        told = train(model, federation, plan, out=Path(folder) / "run", options=speed).to_json()
    keep = ("accuracy", "epsilon", "epsilon_claimed", "departures", "reasons")
    return {key: told[key] for key in keep} | {"seconds": round(time.process_time() - started, 1)}


def main() -> None:
    from sordino import presets
    from sordino.data.sets import status

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=presets.names())
    parser.add_argument("--full", action="store_true", help="the paper's rounds, epochs and cohorts")
    parser.add_argument("--rounds", type=int, help="so many rounds, the rest as in the paper")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "presets.jsonl")
    parser.add_argument("--done", action="store_true", help="run nothing that is not in --out yet")
    parser.add_argument("--page", action="store_true", help="put the table on docs/papers.md")
    args = parser.parse_args()
    done = {}
    if args.out.exists():
        done = {row["key"]: row for row in map(json.loads, args.out.read_text().splitlines())}
    lines = ["| preset | run | accuracy | claimed | proven | the paper |", "|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    for name in args.names:
        given = settings(name, args)
        key = json.dumps([name, given], sort_keys=True)
        if status(given["data"]).present == "no":
            lines.append(f"| `{name}` | {given['data']} is not here | | | | {paper(name)} |")
        elif key not in done and args.done:
            lines.append(f"| `{name}` | not run | | | | {paper(name)} |")
        else:
            if key not in done:
                done[key] = {"key": key, **run(given)}
                args.out.parent.mkdir(parents=True, exist_ok=True)
                with args.out.open("a") as file:
                    file.write(json.dumps(done[key]) + "\n")
            row = done[key]
            how = f"{given['rounds']} rounds of {given['local_epochs']}, cohort {given.get('cohort', given['clients'])}"
            claimed = "none" if row["epsilon_claimed"] is None else f"{row['epsilon_claimed']:.4g}"
            proven = row["epsilon"] if row["epsilon"] == "inf" else f"{row['epsilon']:.4g}"
            lines.append(f"| `{name}` | {how} | {row['accuracy']:.1%} | {claimed} | {proven} | {paper(name)} |")
        print(lines[-1], flush=True)
    if args.page:
        fill("papers.md", "presets", "\n".join(lines))


if __name__ == "__main__":
    main()
