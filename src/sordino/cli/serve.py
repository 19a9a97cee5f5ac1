"""``sordino serve``: run a plan with data holders on other machines."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

EXAMPLES = """examples:
  sordino serve plan.toml --certs pki/server
  sordino serve plan.toml --certs pki/server --address 192.0.2.1:8443 --test test.npz --deadline 120
  sordino serve --resume runs/digits-adact-1 --certs pki/server          after a crash or a reboot"""


if TYPE_CHECKING:
    from sordino.plan import Plan


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "serve",
        help="run a plan with data holders on other machines",
        description="Run a plan with data holders on other machines, over TLS; each joins with `sordino join`.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a plan.toml")
    parser.add_argument("--certs", required=True, metavar="FOLDER", help="the server's folder, made by `sordino certs`")
    parser.add_argument(
        "--address", default="0.0.0.0:8443", metavar="HOST:PORT", help="where to listen (default: 0.0.0.0:8443)"
    )
    parser.add_argument(
        "--test",
        metavar="FILE",
        help="a public test set: .npz, .csv or .parquet; or holdout=0.1: a share of the holders' records",
    )
    parser.add_argument("--schema", metavar="FILE", help="schema.toml: how every holder reads its table")
    parser.add_argument(
        "--classes", metavar="INT", help="how many classes there are, if neither the test set nor the data set says so"
    )
    parser.add_argument(
        "--survivors",
        metavar="INT",
        help="the fewest clients that stay in a round; they share the noise (secagg-server; default: what the plan says, or all)",
    )
    parser.add_argument(
        "--deadline", default=600.0, metavar="SECONDS", help="time for one exchange with a client (default: 600)"
    )
    parser.add_argument(
        "--wait", default=600.0, metavar="SECONDS", help="time to wait for clients that are not there (default: 600)"
    )
    parser.add_argument("--least", default=1, metavar="INT", help="fewest contributions in a round (default: 1)")
    parser.add_argument(
        "--colluders", default=0, metavar="INT", help="clients that may collude with the server (default: 0)"
    )
    parser.add_argument(
        "--evaluate-every",
        default=0,
        metavar="ROUNDS",
        help="measure accuracy once in so many rounds (default: about twenty times in a run)",
    )
    parser.add_argument("--out", metavar="FOLDER", help="run folder (default: a new one under runs/)")
    parser.add_argument("--resume", metavar="RUN", help="go on with the run in this folder")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Serve a plan until it is trained, with holders on other machines."""
    from sordino.assembly import complete
    from sordino.cli.numbers import count, number
    from sordino.deployment.serving import Public, nodes_in, serve
    from sordino.engines import EngineOptions
    from sordino.engines.flower.engine import Patience
    from sordino.errors import BadInput
    from sordino.plan import Plan, read_toml

    if (args.plan is None) == (args.resume is None):
        raise BadInput("give a plan file, or --resume with the folder of a run.")
    classes, survivors, least, colluders, every = (
        count(args, name) for name in ("classes", "survivors", "least", "colluders", "evaluate_every")
    )
    patience = Patience(number(args, "deadline") or 0.0, number(args, "wait") or 0.0, least or 0, colluders or 0)
    if args.resume is not None and survivors is not None:
        raise BadInput("a run that goes on keeps its plan; leave --survivors out.")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.getLogger("sordino").addHandler(handler)
    logging.getLogger("sordino").setLevel(logging.INFO)
    certs = Path(args.certs)
    chosen = args.resume or args.out
    out = None if chosen is None else Path(chosen)
    if args.resume is not None:
        plan = kept_plan(Path(args.resume))
    else:
        given = {"clients": len(nodes_in(certs)), **read_toml(args.plan)}
        named = {"survivors": survivors, "test": args.test, "schema": args.schema, "classes": classes}
        given |= {name: value for name, value in named.items() if value is not None}
        if "data" not in given and any(given.get(name) is not None for name in ("test", "schema", "classes")):
            given["data"] = "<holders>"  # nothing here names what they hold
        plan = Plan.from_json(complete(given))
    public = Public.find(plan, args.test, classes)

    from sordino.cli.progress import bar

    with bar(plan, quiet=args.quiet or args.json, tensorboard=False, out=out) as watch:
        result = serve(
            plan,
            certs,
            args.address,
            out,
            public,
            patience=patience,
            resume=args.resume is not None,
            options=EngineOptions(evaluate_every=every or 0),
            on_round=watch,
        )
    if args.json:
        print(json.dumps(result.to_json()))
    else:
        from sordino.report.summary import summary
        from sordino.verify import after_training

        print(summary(result))
        print(after_training(result.folder))
    return 3 if result.stopped else 0


def kept_plan(folder: Path) -> Plan:
    """The plan of a run that `serve` began."""
    from sordino.deployment.federate import KEPT
    from sordino.errors import BadInput
    from sordino.plan import Plan

    try:
        return Plan.from_json(json.loads((folder / KEPT).read_text())["plan"])
    except (OSError, ValueError, KeyError):
        raise BadInput(
            f"{folder} is not the folder of a run across machines; give the folder that serve made."
        ) from None
