"""FedMAP's quantities that steer nothing: equations 10, 13 and 18, from released values and public numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sordino.rules.claims import classical
from sordino.schemes.fedmap.rule import PrintedLedger


def largest_claim(sigma: float, rate: float, rounds: int, delta: float) -> float:
    """Equation 10: the most that the paper's server can print, if no client's sigma is below this and each takes part in all rounds.

    The cost of a round is that of the server's table: interpolation makes it up to one part in a hundred larger than the formula.

    >>> largest_claim(2.36, 0.1, 23, 1e-5) < 1.05 < largest_claim(2.36, 0.1, 150, 1e-5)
    True
    """
    book = PrintedLedger(1, rate, delta)
    book.rho = rounds * book.costs(np.array([sigma]))
    return book.epsilon()


def proxy(bound: float, sigma: float, delta: float) -> float:
    """Equation 11: the heuristic epsilon of one step, C/sigma sqrt(2 ln(1.25/delta))."""
    return classical(sigma / bound, delta)


def deviation(proxies: Sequence[float], target: float) -> float:
    """Equation 13: gamma, the mean distance of the proxies of a window from the target. Their sum is within T' (target +- gamma).

    >>> deviation([1.0, 4.0], 2.0)
    1.5
    """
    return float(np.mean(np.abs(np.asarray(proxies) - target)))


def surrogate(
    bias: float, sigma: float, dimension: int, spread: float, batch: int, smoothness: float = 1.0, rate: float = 0.01
) -> float:
    """Equation 18: U = L |b(C)|^2 + L eta (sigma_g^2 / B + d sigma^2), with sigma on the mean of a batch.

    The clipping bias |b| and the spread sigma_g^2 have to be known from elsewhere.

    >>> surrogate(bias=2.0, sigma=0.5, dimension=4, spread=8.0, batch=8, smoothness=1.0, rate=0.5)
    5.0
    """
    return smoothness * bias**2 + smoothness * rate * (spread / batch + dimension * sigma**2)
