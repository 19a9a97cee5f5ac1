"""A holder for Flower's simulation, in which one process plays many clients, and any process any client.

Nothing is kept in memory between messages but what never changes (the data, the terms of the plan): a holder is opened for
a message, with its state in the run's folder, and closed again. The folder must be one that all of Ray's workers see.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from sordino.assembly import complete, everyone
from sordino.engines.flower.holder import Holder
from sordino.engines.flower.policy import Policy
from sordino.engines.flower.seals import Plain
from sordino.federation.population import Federation
from sordino.plan import Plan, read_toml
from sordino.privacy.vocabulary import Observer, Variant

ANYTHING = Policy(
    epsilon=1e12,
    delta=1 - 1e-9,
    observers=tuple(str(o) for o in Observer),
    variants=tuple(str(v) for v in Variant),
    secure=False,
    least=1,
)


def plan_of(config: Any) -> Plan:
    """The plan that a run's configuration names; `clients` there says how many nodes take part."""
    given = read_toml(str(config["plan"]))
    if config.get("clients"):
        given["clients"] = int(config["clients"])
    return Plan.from_json(complete(given))


@lru_cache(maxsize=1)
def _population(path: str, clients: int) -> Federation:
    return everyone(plan_of({"plan": path, "clients": clients}))  # each client holds out by itself


def answer(message: bytes, context: Any) -> bytes:
    """What virtual client `partition-id` answers."""
    config, k = context.run_config, int(context.node_config["partition-id"])
    federation = _population(str(config["plan"]), int(config.get("clients", 0)))
    folder = Path(str(config["out"])) / "clients" / str(k)
    holder = Holder(f"n{k}", federation.raw(k), ANYTHING, folder, Plain())
    try:
        holder.simulated = True
        return holder.handle(message)
    finally:
        holder.close()
