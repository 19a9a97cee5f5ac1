"""The twin of a private run: the same network on the same population, trained without clipping and noise, and well.

Its accuracy less that of the private run is the price of privacy. Rates, rounds and optimiser are the recipe's for training without
noise, not those that were chosen against it: a poor twin would make privacy look cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sordino.errors import BadInput
from sordino.methods import method
from sordino.plain import Json, Plain

if TYPE_CHECKING:
    from sordino.plan import Plan

# What the twin shares with the run: the population, the network and the chance. All else is about noise, or suits it.
SHARED = (
    *("data", "clients", "partition", "alpha", "classes", "seed", "partition_seed"),
    *("client_column", "label", "test", "schema", "ignore", "task"),
)


def twin_of(given: Plain, plan: Plan) -> Json:
    """What to ask the recipes for. `given` is what was asked for the private run, `plan` what came of it."""
    if not method(given.get("method", "adact")).private:
        raise BadInput(f"method {given['method']} has no privacy already; leave --without-privacy and --price out.")
    shared = {name: given[name] for name in SHARED if given.get(name) is not None}
    prepared = {"prepare": dict(plan.prepare)} if plan.prepare else {}
    return {**shared, **prepared, "method": "fedavg", "model": plan.model}
