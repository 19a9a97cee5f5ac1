"""A round without models: norms are drawn, asked about, and clipped; answers and sums get real noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sordino.methods import RuleContext, method
from sordino.privacy.randomness import SERVER, stream
from sordino.rules.base import RoundOutput, Rule, State
from sordino.rules.query import Answer, Query, is_raw, split


@dataclass(frozen=True)
class StandIn:
    """The settings of a plan that rules look at."""

    method: str = "adact"
    variant: str = "certified"
    mechanism: str = "gaussian"
    bound: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)
    unit: str = "client"
    observer: str = "public"
    epsilon: float | None = None
    delta: float = 1e-5
    multiplier: float | None = 1.0
    cohort: int | None = 100
    clients: int = 1000
    rounds: int = 100
    local_epochs: int = 1
    defence: str | None = None


PLAN = StandIn()


def build(name: str, sizes: tuple[int, ...] = (4, 2), units: float = 100, **changes: Any) -> Rule:
    return method(name).build(RuleContext(replace(PLAN, method=name, **changes), sizes, units))  # type: ignore[arg-type]


def play(
    rule: Rule,
    norms: Callable[[np.random.Generator, int], np.ndarray],
    rounds: int,
    multiplier: float = 1.0,
    units: float = 100,
    seed: int = 0,
) -> list[float]:
    """The bounds of so many rounds."""
    state, bounds = rule.init(), []
    for t in range(1, rounds + 1):
        drawn = norms(stream(seed, t, SERVER, "norms"), t)
        state, bound = step(rule, state, t, drawn, multiplier, units, stream(seed, t, SERVER, "noise"))
        bounds.append(bound)
    return bounds


def step(
    rule: Rule, state: State, t: int, norms: np.ndarray, z: float, units: float, source: np.random.Generator
) -> tuple[State, float]:
    pre_clip, with_sum = rule.query(state)
    z_sum, (std_pre, std_with) = split(z, pre_clip, with_sum)
    asked = reply(pre_clip, norms, rule.bound(state, None).size, std_pre, units, source)
    bound = rule.bound(state, asked)
    said = reply(with_sum, norms, bound.size, std_with, units, source)
    mean = np.zeros(1)  # rules that learn from the sum itself are staged elsewhere
    seen = RoundOutput(t, bound, said, mean, np.asarray(bound.std(z_sum)) / units, asked)
    return rule.observe(state, seen), bound.size


def reply(
    query: Query | None, norms: np.ndarray, bound: float, std: float | None, units: float, source: np.random.Generator
) -> Answer | None:
    if query is None:
        return None
    total = query.encode(norms, bound)
    if is_raw(query) or std is None:
        return Answer(total, units)
    return Answer(total + std * source.standard_normal(total.shape), units, std)
