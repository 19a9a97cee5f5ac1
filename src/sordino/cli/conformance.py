"""``sordino conformance``: the library audits itself, and shows that it would notice if something were wrong."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sordino.audit.conformance_table import SeedsSummary, Summary

ABOUT = """Play every certified method, in every unit and towards every observer, in two worlds that differ in one
unit, and measure epsilon from below; plant bugs, and see that they are caught; and hold methods as published against
their own claims.

Exit code 4 if a certified method leaks more than is proven, or a bug is missed."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "conformance",
        help="the library audits itself, and catches planted bugs",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--small", action="store_true", help="the form for continuous integration: fewer cases, fewer runs"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all random draws")
    parser.add_argument(
        "--seeds", type=int, default=0, metavar="N", help="check the certified methods only, over N seeds"
    )
    parser.add_argument("--runs", type=int, default=40, help="with --seeds: runs of each world and seed")
    parser.add_argument("--workers", type=int, default=0, help="processes (0: one per core)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Play the suite. The exit code says whether all held and every bug was caught."""
    from sordino.audit import conformance as suite

    def watch(row: object, done: int, of: int) -> None:
        if not args.json and sys.stderr.isatty():
            print(f"\r{done} of {of}", end="\n" if done == of else "", file=sys.stderr, flush=True)

    if args.seeds:
        over = suite.over_seeds(range(args.seeds), args.runs, args.small, args.workers, watch)
        print(json.dumps(over) if args.json else _seeds(over))
        return 4 if over["failed"] else 0
    found = suite.conformance(args.small, args.seed, args.workers, watch)
    print(json.dumps(found) if args.json else _table(found))
    return 4 if found["methods_failed"] or found["mutations_caught"] < found["mutations"] else 0


HEADS = {
    "certified": ("Certified methods", "held", "FAILED"),
    "mutation": ("Planted bugs", "caught", "MISSED"),
    "published": ("As published, against the printed epsilon", "refuted", "not refuted"),
}


def _table(found: Summary) -> str:
    lines = []
    for kind, (title, good, bad) in HEADS.items():
        rows = [row for row in found["rows"] if row["kind"] == kind]
        lines += ["", f"{title:70}{'stated':>8}{'at least':>10}  "]
        for row in rows:
            stated = row["epsilon_claimed"] if kind == "published" else row["epsilon_proven"]
            also = "; refused at run time too" if row["refused"] else ""
            said = "-" if stated is None else f"{stated:.2f}"
            word = good if row["ok"] else bad
            lines.append(
                f"{row['name'][:69]:70}{said:>8}{row['epsilon_lower']:>10.2f}  {word}, {row['statistic']}{also}"
            )
    failed = found["methods_failed"]
    lines += [
        "",
        f"{found['methods_checked']} methods in {found['cases']} cases: {len(failed) or 'none'} failed. "
        f"{found['mutations_caught']} of {found['mutations']} bugs caught. "
        f"{found['published_refuted']} of {found['published']} printed claims refuted. {found['seconds']:.0f} s.",
    ]
    return "\n".join(lines[1:])


def _seeds(found: SeedsSummary) -> str:
    lines = [f"{'Certified methods, all seeds together':70}{'stated':>8}{'at least':>10}"]
    lines += [f"{r['name'][:69]:70}{r['epsilon_proven']:>8.2f}{r['epsilon_lower']:>10.2f}" for r in found["rows"]]
    failed = len(found["failed"]) or "none"
    lines += ["", f"{found['cases']} cases, {found['seeds']} seeds of {found['runs']} runs: {failed} failed."]
    return "\n".join(lines)
