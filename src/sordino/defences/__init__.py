"""Heuristic defences: a client changes its update before it is clipped. None of them gives a guarantee.

A defence is a function of one client's own data, the public model and draws of the client's own. It acts before clipping, so
the proof of the method under it stays as it is, and the epsilon neither rises nor falls. The statement says of every
defence: `heuristic: no guarantee`.

To add one, write a frozen dataclass with `check` and `__call__` in a file of its own, and add it to `DEFENCES`. Its numeric
fields are options of the plan, under the name of the defence: `--defence soteria --option soteria_percentile=60`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING

from sordino.defences.base import Change, Defence, OwnView
from sordino.defences.censor import Censor
from sordino.defences.soteria import Soteria
from sordino.errors import BadInput, one_of

if TYPE_CHECKING:
    import torch
    from torch import nn

    from sordino.plan import Plan

__all__ = ["DEFENCES", "Change", "Defence", "OwnView", "build", "check_model", "hint", "own_options"]

DEFENCES: Mapping[str, type[Soteria] | type[Censor]] = MappingProxyType({d.name: d for d in (Soteria, Censor)})


def build(plan: Plan) -> Defence | None:
    """The defence that a plan names, with the plan's options for it; None if it names none."""
    if plan.defence is None:
        return None
    one_of(DEFENCES, defence=plan.defence)
    kind = DEFENCES[plan.defence]
    whole_numbers = {f.name for f in fields(kind) if f.type == "int"}
    given: dict[str, float] = {}
    for option in own_options(plan):
        value, name = plan.options[option], option.removeprefix(f"{plan.defence}_")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise BadInput(f"option {option} must be a number, not {value!r}.")
        given[name] = int(value) if name in whole_numbers and value == int(value) else value
    return kind(**given)  # type: ignore[arg-type]


def own_options(plan: Plan) -> list[str]:
    """The options of a plan that belong to its defence, and not to its method."""
    known = [] if plan.defence is None else _options(plan.defence)
    return [name for name in plan.options if name in known]


def hint(plan: Plan, option: str) -> str:
    """The end of a sentence on an option that neither method nor defence has; empty if defences have nothing to do with it."""
    if plan.defence is not None and _options(plan.defence):
        return f"; defence {plan.defence} has {', '.join(_options(plan.defence))}"
    whose = [name for name in DEFENCES if option in _options(name)]
    return f"; it belongs to defence {whose[0]}, which the plan does not name" if whose else ""


def _options(name: str) -> list[str]:
    return [f"{name}_{f.name}" for f in fields(DEFENCES[name])] if name in DEFENCES else []


def check_model(defence: Defence | None, model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Refuse a model that has no place for the defence; it is looked at with synthetic input."""
    if defence is not None:
        from sordino.gradients.flat import made_up

        defence.check(model, made_up(model, shape, dtype, 2))
