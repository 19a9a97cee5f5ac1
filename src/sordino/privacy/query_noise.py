"""Noise on the small answers to queries, when clients add it themselves.

`mechanisms.release_query` is for the server's noise. Here a client adds its share of a query's noise, and the sum of such
answers is let out once it is certain that enough shares are in it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sordino.errors import NotPrivate, positive, whole
from sordino.privacy.randomness import Source
from sordino.privacy.release import Private, Released, _open


def query_share(std: float, survivors: int, source: Source, length: int) -> np.ndarray:
    """One client's part of noise of standard deviation `std`, when `survivors` such parts make the whole."""
    positive(std=std)
    whole(survivors=survivors)
    return std / math.sqrt(survivors) * source.standard_normal(length)


def open_answer(
    total: Private[np.ndarray], sensitivity: float, std: float, shares: int, survivors: int
) -> tuple[Released[np.ndarray], Any]:
    """A summed answer with `shares` shares of noise in it; event gaussian(std/sensitivity)."""
    from sordino.privacy import events

    positive(sensitivity=sensitivity, std=std)
    if shares < survivors:
        raise NotPrivate(
            f"only {shares} shares of noise are in this answer, and it takes {survivors}: drop the round, "
            "or cut the shares for fewer survivors."
        )
    how = f"Gaussian noise in shares, standard deviation {std:g} for sensitivity {sensitivity:g}"
    return Released(_open(total), how), events.gaussian(std / sensitivity)
