"""What one unit is exposed to, and what a round does: one file for each row of the table in docs/guarantees.md.

`select` and `scheme_for` are the only places that decide between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sordino.privacy.vocabulary import Observer, Unit
from sordino.schemes.base import Scheme
from sordino.schemes.calibrate import check_clients
from sordino.schemes.client import Client
from sordino.schemes.local import Local
from sordino.schemes.plain import Plain
from sordino.schemes.pooled import Pooled
from sordino.schemes.terms import Terms

if TYPE_CHECKING:
    from sordino.federation.sizes import PublicSizes
    from sordino.methods import Method
    from sordino.plan import Plan

__all__ = ["Scheme", "scheme_for", "select", "settle"]


def select(method: Method, unit: Unit, observer: Observer) -> type[Scheme]:
    """The scheme of a method that protects this unit towards this observer."""
    if method.scheme is not None:
        return method.scheme
    if not method.private:
        return Plain
    if unit == Unit.CLIENT:
        return Client
    return Local if observer == Observer.SERVER else Pooled


def scheme_for(plan: Plan) -> Scheme:
    """The scheme of a plan: the only place that decides between ways of working."""
    method = plan.method_spec
    own = None if method.scheme is not None else method.own_scheme(plan)
    chosen = own or select(method, plan.unit, plan.observer)
    return (chosen.as_published() if plan.published else chosen)(plan)


def settle(plan: Plan, public: PublicSizes) -> Terms:
    """The terms of a plan on a population: what it will release, before any data is touched."""
    check_clients(plan, public)
    return plan.scheme.settle(public)
