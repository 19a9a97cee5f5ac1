"""What a data holder makes of a request: the one that its own terms allow, or a refusal.

Nothing that the server says decides how much noise is due. The holder builds the request anew from its own terms, with
the bound and the query that the server names (public values that follow from what was released), refuses any field that
differs, and then works on its own copy.
"""

from __future__ import annotations

import math

from sordino.errors import NotPrivate
from sordino.rules.base import Rule
from sordino.rules.query import Query, is_raw
from sordino.schemes import certified
from sordino.schemes.clipped import request_for, share_of
from sordino.schemes.request import CONTRIBUTE, QUERY, Request
from sordino.schemes.terms import Terms

CLOSE = 1e-6  # by how much two machines may differ over the same calibration
_NUMBERS = ("multiplier", "query_multiplier")
_EXACT = ("round", "step", "phase", "grid", "query_grid", "survivors", "released")


def clipped(terms: Terms, rule: Rule, asked: Request, taken: float) -> Request:
    """A phase of a round of clipped contributions. `taken`: the share of the round that this try has used."""
    if asked.phase not in (QUERY, CONTRIBUTE):
        raise NotPrivate(f"a round has no phase {asked.phase!r}.")
    if asked.bound is None or asked.released:
        raise NotPrivate("contributions are clipped here, and not sent without a bound.")
    usual = rule.bound(rule.init(), None)
    if type(asked.bound) is not type(usual):
        raise NotPrivate(f"the plan's method clips by a {usual.kind} bound, not by {asked.bound.kind}.")
    certified.check_bound(terms, asked.bound)
    if asked.query is not None:
        _check_query(terms, rule, asked.query)
    if taken + share_of(asked.query) >= 1:
        raise NotPrivate("the queries of this round take all of its privacy, and nothing is left for the sum.")
    return same(request_for(terms, asked.round, asked.phase, asked.bound, asked.query, taken), asked)


def _check_query(terms: Terms, rule: Rule, query: Query) -> None:
    if is_raw(query) and terms.proven:
        raise NotPrivate("exact norms are asked for, which the plan does not provide for.")
    usual = [type(q) for q in rule.query(rule.init()) if q is not None]
    if type(query) not in usual:
        raise NotPrivate(f"the plan's method does not ask a {type(query).__name__}.")
    certified.check_query(terms, query)


def same(expected: Request, asked: Request) -> Request:
    """The expected request, if the one that was asked does not differ from it."""
    for name in _EXACT:
        want, got = getattr(expected, name), getattr(asked, name)
        if got != want:
            raise NotPrivate(
                _SENTENCES.get(name, "a request says {name} {got}, and the plan {want}.").format(
                    name=name, got=got, want=want
                )
            )
    for name in _NUMBERS:
        _same_noise(expected, asked, name)
    return expected


def _same_noise(expected: Request, asked: Request, name: str) -> None:
    want, got, what = getattr(expected, name), getattr(asked, name), name.replace("_", " ")
    if want is None and got is not None:
        raise NotPrivate(f"a request asks for a {what} of {got:.6g}, and the plan for none from clients.")
    if want is None:
        return
    if got is None:
        raise NotPrivate("the plan has clients add noise, and the request does not.")
    if not math.isclose(want, got, rel_tol=CLOSE):
        how = "less" if got < want else "more"
        raise NotPrivate(f"round {asked.round} asks for {how} noise than its {what} of {want:.4g}.")


_SENTENCES = {
    "grid": "the sum is to be taken on another grid than the bound asks for.",
    "query_grid": "the answers are to be taken on another grid than the query asks for.",
    "survivors": "noise is to be divided among {got}, the plan says {want}.",
}
