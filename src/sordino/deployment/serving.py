"""What `sordino serve` does: a SuperLink, the nodes that are admitted, and a run of the plan."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino.assembly import told_task
from sordino.data.check import Pair, checked, count_classes
from sordino.data.dataset import Normalise
from sordino.data.ingest import Records, Source, is_file, left_out, read_records, schema_for, with_classes
from sordino.data.schema import CLASSIFICATION, Schema
from sordino.data.table import Table
from sordino.deployment.control import Link
from sordino.deployment.federate import KEPT, federate
from sordino.engines import EngineOptions
from sordino.engines.flower.address import split_address
from sordino.engines.flower.engine import Patience
from sordino.engines.flower.grid import OverGrid
from sordino.engines.flower.pki import Own
from sordino.engines.flower.seals import SignedServer
from sordino.engines.flower.transport import SecureChannel
from sordino.errors import BadInput, SordinoError
from sordino.federation.folder import claim
from sordino.plan import Plan
from sordino.training import Progress, Result

log = logging.getLogger("sordino.server")


@dataclass(frozen=True)
class Public:
    """What the server itself needs of the data: how many classes, and a public test set if there is one."""

    classes: int
    test: Pair | None = None
    normalise: Normalise | None = None
    schema: Schema | None = None  # how holders' tables are read; None: as the columns that they have say

    @classmethod
    def find(cls, plan: Plan, test: str | None, classes: int | None) -> Public:
        """From a test file or a schema, or from the data set that the plan names."""
        test, classes = test or plan.test, classes or plan.classes
        held = read_records(Path(str(test))) if is_file(test) else None
        if isinstance(held, Table) or plan.schema is not None:
            return cls._of_tables(plan, held, classes)
        if held is not None:
            pair = checked(*held, classes, "the test set", plan.task)
            return cls(count_classes(classes, pair[1], pair, plan.task), pair)
        if classes is not None:
            return cls(classes)
        from sordino.data import sets

        if plan.data not in sets.ENTRIES:
            raise BadInput(f"how many classes {plan.data!r} has is not known; give --classes, or a public --test file.")
        data = sets.load(plan.data)
        public = None if data.test_x is None or data.test_y is None else (data.test_x, data.test_y)
        return cls(data.classes, public, data.normalise)

    @classmethod
    def _of_tables(cls, plan: Plan, test: Records | None, classes: int | None) -> Public:
        source = Source("", plan.client_column, plan.label, None, plan.schema, told_task(plan), classes, plan.ignore)
        test = left_out([], test, source)[1] if test is not None and source.ignore is not None else test
        table = test if isinstance(test, Table) else None
        schema, _ = with_classes(schema_for([], table, source), [], table, classes)
        if schema.task == CLASSIFICATION and not schema.classes:
            raise BadInput(f"{plan.schema} does not name the classes: declare them, or give a public --test file.")
        held = schema.read(test) if isinstance(test, Table) else test
        return cls(schema.outputs, held, schema=schema)


def nodes_in(certs: Path) -> dict[str, str]:
    """Name and certificate of every node that is admitted, in natural order: n2 before n10."""
    found = {path.stem: path.read_text() for path in (certs / "nodes").glob("*.crt")}
    if not found:
        raise BadInput(f"{certs}/nodes holds no certificates; put there one NAME.crt for each node.")
    return {name: found[name] for name in sorted(found, key=natural)}


def natural(name: str) -> list[tuple[int, int, str]]:
    """n2 before n10."""
    return [(0, int(piece), "") if piece.isdigit() else (1, 0, piece) for piece in re.split(r"(\d+)", name) if piece]


def serve(
    plan: Plan,
    certs: Path,
    address: str,
    out: Path | None,
    public: Public,
    *,
    patience: Patience | None = None,
    resume: bool = False,
    options: EngineOptions | None = None,
    on_round: Callable[[Progress], None] | None = None,
) -> Result:
    """Run `plan` with the nodes whose certificates lie in `certs`; blocks until it is over."""
    nodes, own, patience = nodes_in(certs), Own.server(certs), patience or Patience()
    host, port = split_address(address)
    out = out if out is not None else claim(plan)
    if resume and not (out / KEPT).exists():
        raise BadInput(f"{out} is not the folder of a run across machines; give the folder that serve made.")
    link = Link(certs, host, port, out / "flower", nodes)
    link.open()

    def mend() -> tuple[Any, dict[int, str]]:
        """Start the SuperLink again; nodes find it by themselves."""
        limit = time.monotonic() + patience.wait
        while True:
            try:
                link.open()
                return link.grid, link.ids
            except Exception as error:  # noqa: BLE001 - as long as there is patience
                if time.monotonic() > limit:
                    raise SordinoError(f"the SuperLink cannot be started again: {error}") from error
                time.sleep(1.0)

    try:
        log.info("waiting for %d nodes at %s", len(nodes), address)
        post = SecureChannel(OverGrid(link.grid, link.ids, mend), SignedServer(own, nodes), nodes)
        return federate(
            post,
            plan,
            out,
            classes=public.classes,
            test=public.test,
            normalise=public.normalise,
            schema=public.schema,
            certificates=nodes,
            authority=own.authority,
            patience=patience,
            resume=resume,
            options=options,
            on_round=on_round,
        )
    finally:
        link.close()
