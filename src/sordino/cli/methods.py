"""``sordino methods``: the table of methods, their papers, and whether what they print holds."""

from __future__ import annotations

import argparse
import json
import textwrap

from sordino.methods import TABLE, Method


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "methods",
        help="the methods, their papers, and whether they are private as published",
        description="List the methods: paper, options (NAME=VALUE), and whether they are private as published.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """List the methods."""
    if args.json:
        print(json.dumps({"methods": [row(m) for m in TABLE]}, indent=2))
    else:
        print("\n\n".join(page(m) for m in TABLE))
    return 0


def row(method: Method) -> dict[str, object]:
    """What `sordino methods --json` prints of one method."""
    return {
        "name": method.name,
        "paper": method.paper,
        "variants": [str(v) for v in method.variants],
        "units": [str(u) for u in method.units],
        "private_as_published": method.private_as_published,
        "reasons": list(method.reasons),
        "guess": method.guess,
    }


def page(method: Method) -> str:
    """What a terminal shows of one method."""
    lines = [f"{method.name}  ({_verdict(method)})", f"  {method.paper}"]
    if method.guess:
        lines += textwrap.wrap(method.guess, 116, initial_indent="  ", subsequent_indent="    ")
    if method.options:
        given = (f"{name}={'auto' if value is None else f'{value:g}'}" for name, value in method.options.items())
        lines += textwrap.wrap("options: " + " ".join(given), 116, initial_indent="  ", subsequent_indent="    ")
    for reason in method.reasons:
        lines += textwrap.wrap(reason, 116, initial_indent="  - ", subsequent_indent="    ")
    return "\n".join(lines)


def _verdict(method: Method) -> str:
    if method.private_as_published is None:
        return "not known whether it is private as published: the paper was not read"
    if method.private_as_published:
        return "private as published"
    return "as published, its epsilon does not hold" if method.private else "not private"
