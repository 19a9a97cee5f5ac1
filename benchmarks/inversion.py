"""Inversion: the table of FedMAP by one command, KED-MI on two data sets, and the speed of the gradient-matching step.

    python benchmarks/inversion.py table --page                           defence x attack x data set, batches of 1 and 4
    python benchmarks/inversion.py table --small --data cifar10,mnist     few steps: only to see that all of it runs
    python benchmarks/inversion.py table --attack ig --batch 1            some of the lines
    python benchmarks/inversion.py table --kept --page                    the lines that are there; nothing is attacked
    python benchmarks/inversion.py classes --page                         KED-MI
    python benchmarks/inversion.py speed --page

Rows are lines in docs/results/inversion.jsonl (with `--small` in the folder `--out`), and those that are there are not run again. The folder holds
pictures, which show records of public data sets, and where an attack stands that was interrupted. `--page` puts the tables on docs/attacks.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from inversion_classes import STUDIES, by_class, classes
from inversion_rows import RESULTS, Row, add, read
from inversion_speed import by_speed, speed
from inversion_table import ATTACKS, BATCHES, DEFENCES, by_defence, kept, lines, run
from page import fill


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("table", "classes", "speed"))
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="as it is published on the page (the default)")
    size.add_argument("--small", action="store_true", help="few steps: only to see that it runs")
    parser.add_argument("--out", default="runs/inversion")
    parser.add_argument("--data", default=None, help="data sets; table: cifar10,fashion-mnist; classes: mnist,cifar10")
    parser.add_argument("--defence", default=",".join(DEFENCES), help="which; none is the control of the others")
    parser.add_argument("--attack", default=",".join(ATTACKS))
    parser.add_argument("--batch", default=",".join(map(str, BATCHES)))
    parser.add_argument("--kept", action="store_true", help="print the lines that are there, and attack nothing")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", action="store_true", help="put the tables on docs/attacks.md")
    args = parser.parse_args()
    if args.small and args.page:
        parser.error("--small only shows that it runs; leave out --page.")
    out = Path(args.out) / ("small" if args.small else "full")
    out.mkdir(parents=True, exist_ok=True)
    results = out / RESULTS.name if args.small else RESULTS
    found: list[Row]
    if args.what == "speed":
        found = speed(10 if args.small else 100)
        tables = {"inversion speed": by_speed(found)}
    elif args.what == "classes":
        for name in [] if args.kept else (args.data or ",".join(STUDIES)).split(","):
            there = read(results).get(f"classes-{name}")
            if there is None or there.get("imported"):  # figures without a run behind them are measured again
                add(results, classes(name, out, args.small))
        found = [row for name, row in read(results).items() if name.startswith("classes-")]
        tables = {"inversion classes": by_class(found)}
    else:
        names = (args.data or "cifar10,fashion-mnist").split(",")
        batches = [int(word) for word in args.batch.split(",")]
        wanted = [
            line
            for name in names
            for line in lines(name)
            if line.defence in args.defence.split(",")
            and line.attack in args.attack.split(",")
            and line.batch in batches
        ]
        run([] if args.kept else wanted, results, out, args.small)
        rows = {name: kept(name, results) for name in names}
        found = [row for part in rows.values() for row in part]
        tables = {f"inversion {name}": by_defence(part) for name, part in rows.items()}
    texts = {name: "\n".join(table) for name, table in tables.items()}
    if args.page:
        for name, text in texts.items():
            fill("attacks.md", name, text)
    print(json.dumps(found) if args.json else "\n\n".join(texts.values()))


if __name__ == "__main__":
    main()
