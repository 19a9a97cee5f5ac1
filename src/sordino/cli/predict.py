"""``sordino predict RUN --data FILE``: the model of a finished run on new data. ``sordino export RUN``: ONNX and the card."""

from __future__ import annotations

import argparse
import csv
import io
import json
from pathlib import Path


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "use the model of a finished run on new data"
    parser = commands.add_parser("predict", help=text, description=text.capitalize() + ". Columns are matched by name.")
    parser.add_argument("run", metavar="RUN", help="the folder of a run")
    parser.add_argument(
        "--data",
        required=True,
        metavar="FILE",
        help="new examples: .csv, .tsv, .parquet or .npz; labels need not be there",
    )
    parser.add_argument("--out", metavar="FILE", help="write a .csv there instead of printing it")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Write one prediction per row of new data."""
    from sordino.files import write_atomically
    from sordino.inference.loading import load

    rows = load(args.run).predict(args.data).rows()
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["prediction"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if args.out:
        write_atomically(Path(args.out), text.getvalue())
    if args.json:
        print(json.dumps({"run": args.run, "examples": len(rows), "predictions": rows, "out": args.out}))
    elif args.out:
        print(f"{args.out}: {len(rows):,} predictions.")
    else:
        print(text.getvalue(), end="")
    return 0
