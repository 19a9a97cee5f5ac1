"""``sordino attack RUN``: membership inference against a finished run, beside what its proof allows."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sordino.attacks.table import USUAL, entries
from sordino.cli.numbers import count, number
from sordino.report.attacked import caveats, judged

EXAMPLES = """examples:
  sordino attack runs/digits-adact-1
  sordino attack runs/cifar10-fedavg-1 --attack rf,gb,rmia --json
  sordino attack runs/cifar10-adact-1 --attack lira --references 32 --workers 8
  sordino attack runs/cifar10-adact-1 --attack all --control runs/cifar10-fedavg-1"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "attack",
        help="membership inference against a finished run, beside what its proof allows",
        description="Attack a finished run: members from its federation, non-members from the test split. A private run "
        "is compared with an undefended control, which is trained and attacked alike.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", help="the folder of the run")
    parser.add_argument(
        "--attack", default=",".join(USUAL), metavar="NAMES", help=f"see `sordino attacks`; default {','.join(USUAL)}"
    )
    parser.add_argument(
        "--records", default=None, help="members to attack, and as many non-members (default: all there are)"
    )
    parser.add_argument("--references", default=None, help="reference models of lira (16) and rmia (4)")
    parser.add_argument("--shadows", default=None, help="shadow models of shadow-lr (4)")
    parser.add_argument(
        "--own", default=None, help="share of the attacked records whose membership the attacker knows (0.5)"
    )
    control = "auto: train one; none; or the folder of a run without privacy"
    parser.add_argument("--control", default="auto", metavar="WHICH", help=control)
    parser.add_argument("--workers", default=None, help="models trained side by side (default: one per core)")
    parser.add_argument("--seed", default=None, help="of the attacker's draws")
    parser.add_argument("--fresh", action="store_true", help="do not take lines from an earlier table")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    from sordino.attacks.protocol import Protocol
    from sordino.attacks.runs import Settings, attack_run

    chosen = entries(args.attack)
    protocol = Protocol(
        records=count(args, "records") or 0, own=_or(number(args, "own"), 0.5), seed=count(args, "seed") or 0
    )
    settings = Settings(
        protocol,
        count(args, "references"),
        count(args, "shadows"),
        args.control,
        count(args, "workers") or 0,
        args.fresh,
    )
    with bars(args.quiet or args.json) as say:
        table = attack_run(args.run, chosen, settings, say=say)
    print(json.dumps(table) if args.json else text(table))
    return 0


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


@contextmanager
def bars(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr for each thing that takes long; none where nobody looks."""
    if quiet or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as shown:
        tasks: dict[str, TaskID] = {}

        def say(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = shown.add_task(what, total=total)
            shown.update(tasks[what], completed=done, total=total)

        yield say


def text(table: dict[str, Any]) -> str:
    """The table for people."""
    epsilon = table["epsilon"]
    proof = "nothing is proven" if epsilon == "inf" else f"epsilon {epsilon:.4g} is proven, delta {table['delta']:g}"
    head = f"{'attack':<24} {'AUC':>6} {'95% interval':>15} {'at most':>8} "
    head += f"{'1% FPR':>7} {'0.1%':>7} {'ASR':>6} {'control':>8}"
    lines = [
        f"Attacked: {table['unit_attacked']}.  Protected: {table['unit_protected']} ({proof}).",
        f"Judged records (members + others): {', '.join(dict.fromkeys(map(judged, table['results'])))}.",
        "",
        head,
        "-" * len(head),
    ]
    for row in table["results"]:
        low, high = row["auc_ci"]
        control = "-" if row["control_auc"] is None else f"{row['control_auc']:.3f}"
        lines.append(
            f"{row['attack']:<24} {row['auc']:>6.3f} {f'{low:.3f} to {high:.3f}':>15} {row['auc_ceiling']:>8.4g} "
            f"{row['tpr_at_1pct']:>7.1%} {row['tpr_at_0.1pct']:>7.1%} {row['asr']:>6.1%} {control:>8}"
        )
    refused = [f"  {one['attack']} was not possible: {one['why']}" for one in table["refused"]]
    return "\n".join([*lines, "", table["verdict"], *refused, *(f"  {note}" for note in caveats(table["results"]))])
