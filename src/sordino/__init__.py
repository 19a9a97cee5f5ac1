"""Sordino: federated learning with adaptive differential privacy that is proven, enforced and attacked.

    import sordino
    federation = sordino.Federation.from_arrays([(x0, y0), (x1, y1)], test=(x, y))
    plan = sordino.plan_for(federation, model, epsilon=4.0)  # or write a Plan yourself
    result = sordino.train(model, federation, plan)
    print(result.statement.text())
    sordino.load(result.folder, model).predict(x)

Names are imported when they are first used, so that commands which do not train never load PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sordino.assembly import plan_for
    from sordino.callbacks import Callback, EarlyStop
    from sordino.engines import EngineOptions
    from sordino.errors import BadInput, BudgetRefused, SordinoError
    from sordino.federation.population import Federation
    from sordino.inference.loading import load
    from sordino.methods import Method
    from sordino.plan import Plan
    from sordino.privacy.vocabulary import Observer, Relation, Sampling, Unit, Variant
    from sordino.training import Result, train

_HOME = {
    "Plan": "sordino.plan",
    "plan_for": "sordino.assembly",
    "Federation": "sordino.federation.population",
    "train": "sordino.training",
    "load": "sordino.inference.loading",
    "Result": "sordino.training",
    "EngineOptions": "sordino.engines",
    "Callback": "sordino.callbacks",
    "EarlyStop": "sordino.callbacks",
    "Method": "sordino.methods",
    "Unit": "sordino.privacy.vocabulary",
    "Relation": "sordino.privacy.vocabulary",
    "Observer": "sordino.privacy.vocabulary",
    "Sampling": "sordino.privacy.vocabulary",
    "Variant": "sordino.privacy.vocabulary",
    "SordinoError": "sordino.errors",
    "BadInput": "sordino.errors",
    "BudgetRefused": "sordino.errors",
}

__all__ = [
    "BadInput",
    "BudgetRefused",
    "Callback",
    "EarlyStop",
    "Federation",
    "Method",
    "Observer",
    "Plan",
    "Relation",
    "Result",
    "Sampling",
    "SordinoError",
    "EngineOptions",
    "Unit",
    "Variant",
    "load",
    "plan_for",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sordino' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
