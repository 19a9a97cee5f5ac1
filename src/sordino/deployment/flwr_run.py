"""The server app under `flwr run`: a plan on whatever nodes Flower has, simulated or real.

Configuration of the app: `plan` (path), `out` (run folder), `clients` (how many nodes to wait for), `test` and `classes` as
for `sordino serve`, `certs` (the server's folder, to sign what is asked; without it only holders that ask for no signature
answer), `resume`. Simulated nodes have partitions of the plan's own data; real ones have a holder each (`sordino join
--socket`).
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Any

from sordino.deployment.federate import federate
from sordino.deployment.serving import Public, natural, nodes_in
from sordino.deployment.simulated import plan_of
from sordino.engines.flower.engine import Patience
from sordino.engines.flower.grid import OverGrid
from sordino.engines.flower.pki import Own
from sordino.engines.flower.seals import EVERYONE, Plain, SignedServer
from sordino.engines.flower.transport import SecureChannel
from sordino.engines.flower.wire import Message
from sordino.errors import SordinoError

log = logging.getLogger("sordino.server")


def run(grid: Any, config: Any) -> None:
    """All of `flwr run`."""
    from sordino.report.summary import summary

    logging.getLogger("sordino").setLevel(logging.INFO)
    plan = plan_of(config)
    patience = Patience(float(config.get("deadline", 600.0)), float(config.get("wait", 600.0)))
    certs = str(config.get("certs", ""))
    nodes = nodes_in(Path(certs)) if certs else {}
    seal: Any = SignedServer(Own.server(Path(certs)), nodes) if certs else Plain()
    names, virtual = discover(grid, plan.clients, patience, seal)
    post = SecureChannel(OverGrid(grid, names), seal, sorted(names.values(), key=natural))
    public = Public.find(plan, str(config.get("test", "")) or None, int(config.get("classes", 0)) or None)
    result = federate(
        post,
        plan,
        Path(str(config["out"])),
        classes=public.classes,
        test=public.test,
        normalise=public.normalise,
        schema=public.schema,
        certificates=nodes,
        patience=patience,
        resume=bool(config.get("resume", False)),
        simulated=virtual,
    )
    print(summary(result))
    sys.stdout.flush()


def discover(grid: Any, count: int, patience: Patience, seal: Any) -> tuple[dict[int, str], bool]:
    """Node ids and the names that their holders go by, once `count` of them answer; and whether they are simulated."""
    limit = time.monotonic() + patience.wait
    while True:
        ids = sorted(grid.get_node_ids())
        if len(ids) >= count:
            hall = OverGrid(grid, {node: str(node) for node in ids})
            sent = {str(node): seal.seal(Message("hello"), EVERYONE) for node in ids}
            said = hall.exchange(sent, min(60.0, patience.deadline))
            names = {int(node): seal.open(sent[node], reply).get("name", str) for node, reply in said.items()}
            if len(set(names.values())) == count:
                return names, all(bool(reply.head.get("simulated")) for reply in said.values())
        if time.monotonic() > limit:
            raise SordinoError(f"{count} nodes are needed and {len(ids)} came within {patience.wait:g} s.")
        time.sleep(0.5)
