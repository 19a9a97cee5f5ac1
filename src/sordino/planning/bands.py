"""Correlated or independent noise: how many bands leave the least noise in the model, before there is data.

The model is a sum of steps, so what counts is the noise in that sum. More bands take noise out of it and give up amplification (`schemes.turns`).
Both are known from the plan: `compare` has them for every number of bands that fits, one band being independent noise, and `best` picks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sordino.errors import BadInput
from sordino.federation.sizes import PublicSizes
from sordino.plan import Plan
from sordino.schemes import settle
from sordino.schemes.turns import Turns


@dataclass(frozen=True)
class Choice:
    """One number of bands."""

    bands: int
    rate: float  # of a client's coin in its turn
    turns: int  # of a client, at most
    multiplier: float
    noise: float  # on each weight of the model at the end, in server_lr x bound / cohort
    relative: float  # to that of one band


def compare(plan: Plan, counts: Sequence[int] | None = None) -> list[Choice]:
    """What each number of bands brings, at the plan's epsilon: powers of two from 1 on as far as clients and rounds reach."""
    if not isinstance(plan.scheme, Turns):
        raise BadInput(
            f"bands are for method dp-bandmf in the client unit towards the public, not for method {plan.method}."
        )
    most = min(plan.clients // plan.cohort_size, plan.rounds)
    counts = counts or [2**i for i in range(most.bit_length()) if 2**i <= min(most, 64)]
    sizes = PublicSizes(plan.clients, 1)
    found: list[Choice] = []
    for b in counts:
        terms = settle(plan.replace(options={**plan.options, "bands": b}), sizes)
        scheme = terms.scheme
        assert isinstance(scheme, Turns)
        noise = terms.multiplier * scheme.bands.noise_of_model(plan.rounds, scheme.momentum)
        first = found[0].noise if found else noise
        found.append(Choice(b, scheme.turn_rate, terms.exposures, terms.multiplier, noise, noise / first))
    return found


def best(plan: Plan) -> Choice:
    """The number of bands that leaves the least noise in the model."""
    return min(compare(plan), key=lambda choice: choice.noise)
