"""``sordino report``: draw the report of a run again, from the files in its folder."""

from __future__ import annotations

import argparse
import json


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "report",
        help="draw the report of a run again",
        description="Draw the report of a run again: one HTML file that needs no network, for reading and for print.",
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--out", metavar="FILE", help="where to write it (default: report.html in the run folder)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Write report.html anew, and say what it found."""
    from sordino.report.reading import Run
    from sordino.report.run import write_report
    from sordino.report.verdict import Kind, judge

    written = write_report(args.run, args.out)
    read = Run.read(args.run)
    verdict = judge(read)
    if args.json:
        told = {
            "run": args.run,
            "report": str(written),
            "verdict": str(verdict.kind),
            "epsilon": "inf" if verdict.kind is Kind.NOT_PRIVATE else verdict.epsilon,
            "delta": verdict.delta,
            "reasons": list(verdict.reasons),
            "rounds": read.rounds,
        }
        print(json.dumps(told))
    else:
        print(f"{verdict.headline}\n{written}")
    return 0
