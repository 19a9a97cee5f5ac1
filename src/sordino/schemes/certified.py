"""What a rule may do in a run whose epsilon is printed, and the comparison of every release with its grant.

A rule may be a user's own. It sees released values only, but what it asks for and how it clips must be covered by the
proof: exact norms, a bound of its own making, or Gaussian answers beside a Laplace sum are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from sordino.errors import BadInput, NotPrivate
from sordino.privacy import bounds, events
from sordino.privacy.bounds import Bound
from sordino.rules.base import Queries, Rule
from sordino.rules.query import Query, is_raw

if TYPE_CHECKING:
    from sordino.privacy.exact import Noise
    from sordino.schemes.terms import Terms

# Bounds whose clipping and noise are proven to match (privacy/bounds.py and its tests). A class of one's own is none.
PROVEN = (bounds.Flat, bounds.Automatic, bounds.Grouped, bounds.EvenlyNoised, bounds.Coordinates, bounds.L1)
_CLOSE = 1e-9  # rounding of sums of 1/z^2


def check_rule(terms: Terms, rule: Rule) -> None:
    """Before any data is touched: the rule's first question and first bound."""
    state = rule.init()
    check_queries(terms, rule.query(state))
    check_bound(terms, rule.bound(state, None))


def check_queries(terms: Terms, queries: Queries) -> None:
    """Refuse questions about norms that no proof covers."""
    if not terms.proven:
        return
    for query in queries:
        if query is not None:
            check_query(terms, query)


def check_query(terms: Terms, query: Query) -> None:
    """Refuse a query that no proof covers in a certified run."""
    if not terms.proven:
        return
    if is_raw(query):
        raise BadInput(
            f"the rule of method {terms.plan.method} asks for exact norms, which no noise protects, in a run that is "
            "certified; ask for a CentredBit, a HistogramBin or a BoundedValue, or make it the published variant."
        )
    if terms.plan.mechanism == "laplace":
        raise BadInput(
            f"the rule of method {terms.plan.method} asks a query, whose answer has Gaussian noise, beside a Laplace sum; "
            "no accountant here composes the two: use mechanism gaussian."
        )
    if not 0 < query.share < 1 or not 0 < query.norm < math.inf:
        raise BadInput(
            f"a query must take a share between 0 and 1 and declare a finite norm, not {query.share!r} and {query.norm!r}."
        )


def check_bound(terms: Terms, bound: Bound) -> None:
    """Refuse a bound whose clipping no proof covers."""
    if terms.proven and type(bound) not in PROVEN:
        names = ", ".join(kind.__name__ for kind in PROVEN)
        raise BadInput(
            f"the rule of method {terms.plan.method} clips by a {type(bound).__name__}, for which nothing is proven, in a run "
            f"that is certified; use one of {names}."
        )


def check_released(mechanism: str, released: Sequence[events.Event], granted: float, what: str) -> None:
    """What went through the doors must be what was granted: Gaussians of one joint multiplier, or one Laplace."""
    why = [reason for event in released for reason in events.reasons(event)]
    if why:
        raise NotPrivate(f"{what} was granted as private but {why[0]}: a mechanism and the plan disagree; report this.")
    kind = events.laplace(granted) if mechanism == "laplace" else events.gaussian(granted)
    if not released or any(type(event) is not type(kind) for event in released):
        raise NotPrivate(f"{what} released something else than {mechanism} noise; report this.")
    if mechanism == "laplace" and len(released) > 1:
        raise NotPrivate(f"{what} released {len(released)} Laplace sums and was granted one; report this.")
    multipliers = [cast("Noise", event).noise_multiplier for event in released]  # of the type of `kind`, all of them
    said = multipliers[0] if mechanism == "laplace" else cast("Noise", events.joint(*multipliers)).noise_multiplier
    if said < granted * (1 - _CLOSE):
        raise NotPrivate(
            f"{what} released at multiplier {said:.6g} but was granted {granted:.6g}: "
            "a mechanism and the plan disagree; report this."
        )
