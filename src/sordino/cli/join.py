"""``sordino join``: take part in training with the records on this machine, under this machine's own policy."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
from pathlib import Path

EXAMPLES = """examples:
  sordino join 192.0.2.1:8443 --data ./records --certs pki/north
  sordino join 192.0.2.1:8443 --data records.parquet --certs pki/north --policy policy.toml --once"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "join",
        help="take part with the records on this machine",
        description="Take part in training with the records on this machine. They never leave it; a policy of your own says "
        "what may be done with them, and a ledger of your own keeps count.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("address", nargs="?", default="", metavar="HOST:PORT", help="where the server listens")
    parser.add_argument(
        "--data", required=True, metavar="PATH", help="a file of records (.npz, .csv, .parquet), or its folder"
    )
    parser.add_argument("--label", help="the column to predict, if it has another name here than in the run")
    parser.add_argument(
        "--certs", required=True, metavar="FOLDER", help="this machine's folder, made by `sordino certs`"
    )
    parser.add_argument(
        "--policy", metavar="FILE", help="what this holder allows (default: certified methods, epsilon 8 in all)"
    )
    parser.add_argument("--state", metavar="FOLDER", help="ledger, allowance and pending work (default: NAME-state)")
    parser.add_argument("--socket", metavar="PATH", help="start no node; serve this socket to a SuperNode that you run")
    parser.add_argument("--once", action="store_true", help="leave when a run is over")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end and nothing else")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Take part until the server or the user ends it."""
    from sordino.data.table import Table
    from sordino.deployment.joining import Joined, own_records
    from sordino.engines.flower.address import split_address
    from sordino.engines.flower.pki import Own
    from sordino.engines.flower.policy import Policy
    from sordino.errors import BadInput

    if bool(args.address) == bool(args.socket):
        raise BadInput("give the server's HOST:PORT, or --socket for a SuperNode of your own.")
    if args.address:
        split_address(args.address)
    certs = Path(args.certs)
    name = Own.node(certs).name
    policy = Policy() if args.policy is None else Policy.load(args.policy)
    state = Path(args.state or f"{name}-state").resolve()
    data = own_records(Path(args.data), name, args.label)
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    form = logging.Formatter(f"%(asctime)s {name}: %(message)s")
    for handler in (logging.StreamHandler(sys.stderr), logging.FileHandler(state / "holder.log")):
        handler.setFormatter(form)
        logging.getLogger("sordino").addHandler(handler)
    logging.getLogger("sordino").setLevel(logging.INFO)
    listen = None if args.socket is None else Path(args.socket)
    joined = Joined(args.address, data, certs, policy, state, args.once, listen)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: joined.stop.set())
    logging.getLogger("sordino.holder").info(
        "%d records; waiting for %s", len(data if isinstance(data, Table) else data[1]), args.address or args.socket
    )
    joined.wait()
    spent = joined.holder.allowance
    if args.json:
        said = {"name": name, "runs": len(spent.runs), "epsilon_reserved": spent.epsilon, "delta_reserved": spent.delta}
        print(json.dumps(said | {"state": str(state)}))
    return 0
