"""``sordino attacks``: the table of attacks, their papers, and what each knows."""

from __future__ import annotations

import argparse
import json
import textwrap

from sordino.attacks.table import TABLE, Entry


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "attacks", help="the attacks, their papers, and what each knows", description="List the attacks."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """List the attacks."""
    if args.json:
        print(json.dumps({"attacks": [entry.to_json() for entry in TABLE]}, indent=2))
    else:
        print("\n\n".join(page(entry) for entry in TABLE))
    return 0


def page(entry: Entry) -> str:
    """What a terminal shows of one attack."""
    lines = [
        f"{entry.name}  ({entry.kind})",
        *textwrap.wrap(entry.paper, 116, initial_indent="  ", subsequent_indent="  "),
    ]
    lines += textwrap.wrap(f"knows: {entry.knows}", 116, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)
