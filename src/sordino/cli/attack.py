"""``sordino attack RUN``: membership inference and inversion against a finished run, beside what its proof allows."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from sordino.attacks.table import EVERY_TASK, USUAL, Entry, entries
from sordino.cli.numbers import count, number
from sordino.data.schema import CLASSIFICATION
from sordino.errors import BadInput
from sordino.plain import Json
from sordino.plan import read_toml
from sordino.report.attacked import caveats, judged

Say = Callable[[str, int, int], None]

EXAMPLES = """examples:
  sordino attack runs/digits-adact-1
  sordino attack runs/cifar10-fedavg-1 --attack rf,gb,rmia --json
  sordino attack runs/cifar10-adact-1 --attack lira --references 32 --workers 8
  sordino attack runs/cifar10-adact-1 --attack membership --control runs/cifar10-fedavg-1
  sordino attack runs/cifar10-adact-1 --attack dlg,ig,gi --batch 4 --json
  sordino attack runs/cifar10-adact-1 --attack ig --pictures
  sordino attack runs/mnist-fedavg-1 --attack ked-mi --public fashion-mnist"""

T = TypeVar("T")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "attack",
        help="membership inference and inversion against a finished run, beside what its proof allows",
        description="Attack a finished run. Membership: members from its federation, non-members from the test split; a "
        "private run is compared with an undefended control, which is trained and attacked in the same way. Inversion: pictures from "
        "the messages that clients would have sent of some records; the control is the same message without the defence.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", help="the folder of the run")
    parser.add_argument(
        "--attack",
        metavar="NAMES",
        help=f"see `sordino attacks`; default {','.join(USUAL)} (without classes: {','.join(EVERY_TASK)})",
    )
    parser.add_argument(
        "--records", default=None, help="members to attack, and as many non-members (default: all there are)"
    )
    parser.add_argument("--references", default=None, help="reference models of lira (16) and rmia (4)")
    parser.add_argument("--shadows", default=None, help="shadow models of shadow-lr (4)")
    parser.add_argument(
        "--own", default=None, help="share of the attacked records whose membership the attacker knows (0.5)"
    )
    parser.add_argument("--batch", default=None, help="inversion: records behind one message (1)")
    parser.add_argument("--images", default=None, help="inversion: messages to attack (2)")
    parser.add_argument(
        "--steps", default=None, help="inversion: steps of each attack (default: the attack's own number)"
    )
    parser.add_argument("--public", default="", metavar="DATA", help="ked-mi: data set of public images (same shape)")
    parser.add_argument(
        "--pictures",
        action="store_true",
        help="inversion: keep originals and reconstructions in the run folder and its report; they show private records",
    )
    control = "auto: train one; none; or the folder of a run without privacy"
    parser.add_argument("--control", default="auto", metavar="WHICH", help=control)
    parser.add_argument("--workers", default=None, help="models trained side by side (default: one per core)")
    parser.add_argument("--seed", default=None, help="seed of the attacker's draws")
    parser.add_argument("--fresh", action="store_true", help="attack again; do not reuse lines of an earlier table")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Attack a finished run and print one row per attack, beside its ceiling."""
    chosen = entries(args.attack if args.attack is not None else ",".join(usual(args.run)))
    table: Json = {}
    with bars(args.quiet or args.json) as say:
        membership = [one for one in chosen if one.kind == "membership"]
        inversion = [one for one in chosen if one.kind == "inversion"]
        if membership:
            table = _membership(args, membership, say)
        inverted = _inversion(args, inversion, say, alone=not membership) if inversion else None
    if args.json:
        print(json.dumps(table if inverted is None else joined(table, inverted)))
    else:
        parts = [text(table)] if membership else []
        print("\n\n".join(parts if inverted is None else [*parts, inversion_text(inverted)]))
    return 0


def usual(run: str) -> tuple[str, ...]:
    """The attacks that suit a run's task."""
    plan = Path(run) / "plan.toml"
    task = read_toml(plan).get("task", CLASSIFICATION) if plan.is_file() else CLASSIFICATION
    return USUAL if task == CLASSIFICATION else EVERY_TASK


def _membership(args: argparse.Namespace, chosen: list[Entry], say: Say) -> Json:
    from sordino.attacks.protocol import Protocol
    from sordino.attacks.runs import Settings, attack_run

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
    return attack_run(args.run, chosen, settings, say=say)


def _inversion(args: argparse.Namespace, chosen: list[Entry], say: Say, alone: bool) -> Json:
    from sordino.attacks.inversion.runs import InversionSettings
    from sordino.attacks.runs import invert_run

    settings = InversionSettings(
        batch=_or(count(args, "batch"), 1),
        images=_or(count(args, "images"), 2),
        public=args.public,
        control=args.control != "none",
        seed=count(args, "seed") or 0,
        fresh=args.fresh,
        steps=count(args, "steps"),
        pictures=args.pictures,
    )
    try:
        return invert_run(args.run, chosen, settings, say=say)
    except BadInput as error:
        if alone:
            raise
        # Beside membership attacks that went well it is one more line below the table.
        why = str(error)
        return {"results": [], "refused": [{"attack": one.name, "why": why} for one in chosen], "verdict": ""}


def joined(table: Json, inverted: Json) -> Json:
    """One object of both kinds; every line of inversion says its kind."""
    if not table:
        return inverted
    both = {name: [*table[name], *inverted[name]] for name in ("results", "refused")}
    return {**table, **both, "verdict_inversion": inverted["verdict"]}


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


@contextmanager
def bars(quiet: bool) -> Iterator[Say]:
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


def text(table: Json) -> str:
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


def inversion_text(table: Json) -> str:
    """The table of inversion for people."""
    head = f"{'attack':<14} {'model':<8} {'batch':>5} {'MSE':>8} {'PSNR':>6} {'SSIM':>6} {'control':>11} {'drawn':>6} {'at most':>8}"
    lines = [head, "-" * len(head)]
    for row in table["results"]:
        if row["attack"] == "ked-mi":
            lines.append(
                f"{row['attack']:<14} {row['model']:<8} judged right {row['top1']:.1%} (top 5: {row['top5']:.1%}), "
                f"{row['times_chance']:.1f} times chance"
            )
            continue
        control = "-" if row["control_ssim"] is None else f"{row['control_ssim']:.3f}"
        control += " fails" if row["informative"] is False else ""
        name = row["attack"] + (f"+{row['defence']}" if row["adaptive"] else "")
        lines.append(
            f"{name:<14} {row['model']:<8} {row['batch']:>5} {row['mse']:>8.4f} {row['psnr']:>6.1f} {row['ssim']:>6.3f} "
            f"{control:>11} {row['reconstructed']:>6.0%} {row['message_bound']:>8.2g}"
        )
    told = "SSIM: 1 is the original. drawn: pictures with SSIM of at least 0.5; at most: the share that the noise of one message allows any attack."
    if all(row["attack"] == "ked-mi" for row in table["results"]):
        told = "judged right: how often a classifier that the attacker never saw names the class; top 5: among its first five."
    if any(row.get("adaptive") for row in table["results"]):
        told += " ig+soteria: an attacker that knows the defence."
    refused = [f"  {one['attack']} was not possible: {one['why']}" for one in table["refused"]]
    return "\n".join(
        [*lines, "", told, table["verdict"], *refused, *(f"  {note}" for note in caveats(table["results"]))]
    )
