"""From a run with canaries to a lower bound on its epsilon: what `sordino audit` computes.

Two views of the same run. The observer of `all-rounds` sees every released model (and, towards a server that sees
messages, every message). The observer of `final-model` sees the last model only. The first view decides.

Which bound is the headline follows from what it is held against:

    one-run, proven curve   where an epsilon was proven: the run against the curve of its own proof (`curves`)
    one-run                 where none was: Steinke et al. 2023, which holds for every (epsilon, delta)

The other numbers are told beside it. The Gaussian-fit figure of `canary_clients` is an estimate and is called one.
"""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sordino.audit import bounds, canary_clients, watching
from sordino.audit.curves import Family
from sordino.audit.guessing import Bound, guess, perfect
from sordino.errors import BadInput, SordinoError, between
from sordino.privacy.vocabulary import Relation

CURVE, ANY = "one-run, proven curve", "one-run"
FILE = "audit.json"


class AuditFailed(SordinoError):
    """The run leaks more than was proven of it."""

    exit_code = 4


def audit(run: str | Path, confidence: float = 0.95) -> dict[str, Any]:
    """What the canaries of a finished run show; also written to its folder, where the report finds it."""
    between(0, 1, confidence=confidence)
    folder = Path(run)
    if not (folder / "plan.toml").is_file():
        raise BadInput(f"{str(folder)!r} is not a run folder (it has no plan.toml); give the folder of a run.")
    kept = watching.read(folder)
    if "scores" not in kept:
        raise BadInput(
            f"the run in {folder} is not finished; go on with sordino train --resume {folder}, then audit it."
        )
    stated = _statement(folder)
    found = measured(kept, stated, confidence)
    (folder / FILE).write_text(json.dumps(found, indent=2) + "\n")
    _draw_report(folder)
    return found


def measured(kept: dict[str, Any], stated: dict[str, Any], confidence: float) -> dict[str, Any]:
    """The same, from what was kept of the canaries and what was stated of the run."""
    delta, proven = float(stated["delta"]), _number(stated["epsilon"])
    any_bound: Bound = partial(_one_run, delta)
    headline: Bound = any_bound
    if kept["event"] is not None:
        headline = Family(kept["event"], delta, Relation(kept["relation"])).lower
    coins = np.array(kept["coins"], bool)
    views = {}
    for name, scores in kept["scores"].items():
        best, plain = (guess(np.array(scores), coins, b, confidence) for b in (headline, any_bound))
        views[name] = {
            "epsilon_lower": best.epsilon,
            "guesses": best.guesses,
            "correct": best.correct,
            "one_run": plain.epsilon,
        }
    first = next(iter(views))
    return {
        "epsilon_lower": views[first]["epsilon_lower"],
        "confidence": confidence,
        "epsilon_proven": "inf" if math.isinf(proven) else proven,
        "epsilon_claimed": stated.get("epsilon_claimed"),
        "largest_provable": perfect(len(coins), headline, confidence),
        "delta": delta,
        "bound": ANY if kept["event"] is None else CURVE,
        "view": first,
        "canaries": len(coins),
        "contributed": int(coins.sum()),
        "kind": kept["kind"],
        "guesses": views[first]["guesses"],
        "correct": views[first]["correct"],
        "one_run": views[first]["one_run"],
        "views": views,
        "canary_clients": _one_shot(kept, coins, delta, confidence, stated),
        "contradicted": views[first]["epsilon_lower"] > proven,
    }


def _one_shot(kept: dict, coins: np.ndarray, delta: float, confidence: float, stated: dict) -> dict[str, object] | None:
    """Andrew et al. 2023; None where canaries have too few coordinates to themselves, or no known null."""
    if not kept.get("cosines") or kept["block"] < canary_clients.FEWEST or not coins.any():
        return None
    scores = canary_clients.scores(np.array(kept["cosines"]), kept["block"])
    shot = canary_clients.one_shot(scores[coins], delta, confidence, gdp=stated.get("accountant") == "gdp")
    return {
        "epsilon_estimate": "inf" if math.isinf(shot.estimate) else shot.estimate,
        "epsilon_lower": shot.lower,
        "mean": shot.mean,
        "deviation": shot.deviation,
    }


def _one_run(delta: float, canaries: int, guesses: int, correct: int, confidence: float) -> float:
    return bounds.one_run(canaries, guesses, correct, delta, confidence)


def _statement(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / "statement.json").read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"the statement of {folder} cannot be read ({error}); restore it, or finish the run.") from None


def _number(value: float | str) -> float:
    return math.inf if value == "inf" else float(value)


def _draw_report(folder: Path) -> None:
    try:
        from sordino.report.run import write_report
    except ImportError:
        return
    write_report(folder)
