"""Synthetic run folders: the files that training writes, made by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

PLAN = {
    "data": "digits",
    "clients": 10,
    "partition": "dirichlet",
    "alpha": 1.0,
    "model": "auto",
    "method": "adact",
    "variant": "certified",
    "mechanism": "gaussian",
    "bound": 1.0,
    "unit": "example",
    "observer": "secagg-server",
    "epsilon": 4.0,
    "delta": 1e-5,
    "sampling": "poisson",
    "rounds": 20,
    "batch_size": 256,
    "lr": 0.5,
    "seed": 7,
    "secure": False,
}

STATEMENT = {
    "method": "adact",
    "variant": "certified",
    "unit": "example",
    "relation": "add-remove",
    "observer": "secagg-server",
    "epsilon": 3.98712,
    "delta": 1e-5,
    "epsilon_claimed": None,
    "reasons": [],
    "disclosures": [],
    "accountant": "pld",
    "sampling": "poisson",
    "rate": 0.178,
    "rounds": 20,
    "rounds_planned": 20,
    "multiplier": 1.183,
    "noise": "shares",
    "assumptions": ["The draw stays secret.", "Every client runs the stated software."],
    "simulated": True,
    "secure": False,
    "budget": 4.0,
    "spent": 1.0,
}


def rounds(count: int, every: int = 5, **fixed: Any) -> list[dict[str, Any]]:
    """Metrics of a run that learns, with a bound that falls."""
    rows = []
    for t in range(1, count + 1):
        row = {
            "round": t,
            "cohort": 10,
            "bound": 0.3 + 0.7 * math.exp(-t / 8),
            "multiplier": 1.183,
            "noise": 0.5,
            "moved": 0.8,
            "seconds": 0.037,
        }
        if t % every == 0:
            row |= {"accuracy": 0.9 * (1 - math.exp(-t / 4)), "loss": 2.3 * math.exp(-t / 9)}
        rows.append(row | fixed)
    return rows


@pytest.fixture
def make(tmp_path: Path):
    """make(plan=..., statement=..., metrics=..., audit=..., attack=...): a run folder; None leaves a file out."""

    def made(
        plan: dict[str, Any] | None = None,
        statement: dict[str, Any] | None = STATEMENT,
        metrics: list[dict[str, Any]] | None = None,
        audit: dict[str, Any] | None = None,
        attack: Any = None,
        name: str = "digits-adact-1",
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        settings = PLAN if plan is None else plan
        (folder / "plan.toml").write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in settings.items()))
        for file, content in (("statement", statement), ("audit", audit), ("attack", attack)):
            if content is not None:
                (folder / f"{file}.json").write_text(json.dumps(content))
        if metrics is not None:
            (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
        return folder

    return made
