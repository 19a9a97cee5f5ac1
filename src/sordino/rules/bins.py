"""Bins that units name their norms in: a log-spaced grid, wide at first and narrow once norms were heard, and counts over a window.

A rule keeps four things in its state: the ends of the grid (`low`, `high`, in natural logarithms), the noisy `counts` of a
window of rounds, how many `units` they stand for and the `variance` of each. All of it is post-processing of released counts.
"""

from __future__ import annotations

import math

import numpy as np

from sordino.errors import BadInput
from sordino.rules.base import State
from sordino.rules.query import Answer, HistogramBin


def reach(bound: float, low: float | None, high: float | None, bins: float) -> tuple[float, float, int]:
    """The ends and the edges of the first grid: six decades on either side of the plan's bound, unless the plan says otherwise."""
    if bins != int(bins):  # options are numbers
        raise BadInput(f"bins must be a whole number, not {bins!r}.")
    return bound * 1e-6 if low is None else low, bound * 1e6 if high is None else high, int(bins)


def first(low: float, high: float, bins: int) -> State:
    """The grid from `low` to `high` before anything was heard."""
    if low >= high:
        raise BadInput(f"low must lie below high, but {low!r} does not lie below {high!r}.")
    return {"low": math.log(low), "high": math.log(high), **unheard(bins)}


def unheard(bins: int) -> State:
    """No counts yet on this grid."""
    return {"counts": [0.0] * (bins + 1), "units": 0.0, "variance": 0.0}


def edges(state: State, bins: int) -> np.ndarray:
    """The edges, in natural logarithms; there is one bin more than edges."""
    return np.linspace(state["low"], state["high"], bins)


def is_wide(state: State, span: float) -> bool:
    """Whether the search still goes on: the grid is wider than the narrow one."""
    return bool(state["high"] - state["low"] > 1.001 * span)


def question(state: State, bins: int, share: float) -> HistogramBin:
    """In which bin is your norm?"""
    return HistogramBin(tuple(np.exp(edges(state, bins)).tolist()), share)


def added(state: State, answer: Answer, keep: float) -> State:
    """The window with these counts; earlier ones fade by the factor `keep`."""
    return {
        **state,
        "counts": (keep * np.asarray(state["counts"]) + answer.total).tolist(),
        "units": keep * state["units"] + answer.units,
        "variance": keep**2 * state["variance"] + answer.std**2,
    }


def faded(noise: float, tolerance: float, longest: float) -> float:
    """The factor for a window as long as noise of this size asks for, in rounds."""
    return 1 - 1 / min(max((noise / tolerance) ** 2, 1), longest)


def laid(middle: float, width: float, low: float, high: float, bins: int) -> State:
    """A new grid around `middle`, never beyond the first one: noise that drowns a model makes its norms grow for ever."""
    start = min(max(middle - width / 2, math.log(low)), math.log(high) - width)
    return {"low": start, "high": start + width, **unheard(bins)}
