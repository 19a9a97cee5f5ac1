"""``sordino certs``: an authority, a server certificate and node keys for a federation, one folder for each machine."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

EXAMPLES = """example:
  sordino certs pki --server 192.0.2.1,fl.example.org --nodes north,east,west
  # then carry pki/server to the server, pki/north to the machine north, and so on; keep pki/ca.key away from all of them"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "certs",
        help="make certificates and keys for training across machines",
        description="Make an authority, a server certificate and node keys: one folder for each machine.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="FOLDER", help="folder for the certificates and keys")
    parser.add_argument(
        "--server", metavar="ADDRESS,...", help="names or IPs by which nodes reach the server; left out: only add nodes"
    )
    parser.add_argument("--nodes", required=True, metavar="NAME,...", help="names of the data holders")
    parser.add_argument("--days", type=int, default=365, help="how long the certificates hold (default: 365)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Write certificates and keys, and say where they are."""
    from sordino.engines.flower import pki

    folder, nodes = Path(args.folder), _names(args.nodes)
    if args.server is None:
        made = pki.add_nodes(folder, nodes, args.days)
    else:
        made = pki.make(folder, _names(args.server), nodes, args.days)
    if args.json:
        print(json.dumps({"authority": str(folder / "ca.crt"), "folders": [str(path) for path in made]}))
        return 0
    print(f"Authority  {folder / 'ca.crt'} (keep ca.key away from server and nodes)")
    for path in made:
        print(f"Machine    {path}")
    return 0


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
