"""``sordino verify``: check a finished run, as a third party would."""

from __future__ import annotations

import argparse
import json

EXAMPLES = """examples:
  sordino verify runs/digits-adact-1
  sordino verify runs/digits-adact-1 --json
  sordino verify received/ --authority ca.crt

Exit code 0: everything agrees. 4: something does not. 2: there is no run."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "verify",
        help="check a finished run: hashes, ledger, plan, and its epsilon by another accountant",
        description="Check a finished run without trusting the program that trained it: the ledger's chain, the plan it is "
        "bound to, hashes of every file, what the statement claims, signatures of data holders, and epsilon, which "
        "dp-accounting recomputes from the ledger's events.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", help="the folder of the run")
    parser.add_argument(
        "--authority", metavar="FILE", help="certificate that data holders' signatures are checked against (ca.crt)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Check a run folder. Exit code 0: everything agrees; 4: something does not."""
    from sordino.verify import check

    verdict = check(args.run, args.authority)
    print(json.dumps(verdict.to_json()) if args.json else verdict.text())
    return 0 if verdict.ok else 4
