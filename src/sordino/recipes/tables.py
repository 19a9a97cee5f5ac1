"""The recipe `frontier` for tables: columns, cosines of random directions (`preparation.fourier`) and a linear head, in the example unit pooled.

Settings follow from public facts: columns, those that no schema scales, classes, number of records, epsilon and delta. The rate is the one at which
noise on a score has a fixed size at the end, as for pictures and signals (`frontier`). docs/regret.md says on which tables numbers were chosen, and what they
lose on others.
"""

from __future__ import annotations

import math

from sordino.plain import Json
from sordino.preparation import Fourier
from sordino.recipes import frontier
from sordino.recipes.facts import PublicFacts
from sordino.recipes.shares import share_for

NOISE = 1.2  # deviation of the noise on a score at the end
ROUNDS, RATE, LEAST_BATCH = 400, 0.1, 64  # rounds of a tenth of the records: 40 passes
BOUND = 0.3  # of rows of length 1
# Records times epsilon for each class, from which on a run tells whether it has settled (`federation.averaging`). With fewer the signal adds up
# unheard, and a mean of iterates has less of it: it lost up to 14 points on tables of 15 classes. From here on it moves a table by -0.5 to +1.3 (docs/regret.md).
SETTLES_FROM = 250
WHY_SETTLED = "where classes overlap, late rounds add nothing but noise, which the mean takes out"
# Cosines of all columns, of one, of two, below so many records times epsilon: more are heard where noise is less.
COSINES = ((5_000, (80, 60, 60)), (16_000, (160, 120, 120)), (math.inf, (320, 240, 240)))
# Where columns are fewer than these, classes lie in more pieces along each of them, and cosines turn faster, up to twice as fast.
USUAL_COLUMNS, FASTEST = 16, 2.0
MOST_NUMBERS = 2**28  # in all rows together: a gigabyte
# The noise on the scale of a table's columns, and the share of the budget that they take. Even where they are hardly heard
# (120 records times epsilon) a table that was not scaled did worse.
HEARD, LEAST_SHARE, MOST_SHARE = 0.04, 0.05, 0.2
HEARD_MEAN = 0.1  # the noise on the mean of rows of length 1


def wins(facts: PublicFacts, epsilon: float) -> bool:
    """Where it was measured to beat cosines that are trained (docs/regret.md), and rows fit into memory."""
    fits = facts.records * (facts.features + sum(cosines(facts.records, epsilon))) <= MOST_NUMBERS
    return facts.table and epsilon <= frontier.WINS_TO and fits


def settings(facts: PublicFacts, epsilon: float, delta: float, unscaled: int, pin: bool = True) -> Json:
    """The settings of a plan for records in one sum; `unscaled` columns have scales of their own."""
    batch = min(facts.records, max(LEAST_BATCH, round(RATE * facts.records)))
    made = preparation(facts, facts.records, epsilon, delta, unscaled)
    made = made.pinned(facts.shape) if pin else made
    found = frontier.head(made, facts.records, epsilon, NOISE, ROUNDS, batch, BOUND)
    return found | ({"average": "settled"} if facts.records * epsilon >= SETTLES_FROM * facts.classes else {})


def preparation(facts: PublicFacts, units: int, epsilon: float, delta: float, unscaled: int) -> Fourier:
    """Columns and cosines, flattened where so many units can be asked for a covariance."""
    dense, singles, pairs = cosines(units, epsilon)
    numbers = facts.features + dense + singles + pairs
    scaling = scale_share(unscaled, units, epsilon, delta) if unscaled else 0.0
    mean = share_for(numbers, units, epsilon, delta, HEARD_MEAN, frontier.LEAST_SHARE, frontier.MOST_SHORT)
    covariance = frontier.COVARIANCE_SHARE if frontier.can_flatten(numbers, units, epsilon, delta) else 0.0
    share = float(f"{scaling + mean + covariance:.3g}")
    return Fourier(
        share,
        dense,
        singles,
        pairs,
        frequency=float(f"{min(max(1.0, math.sqrt(USUAL_COLUMNS / facts.features)), FASTEST):.3g}"),
        scaling=float(f"{scaling / share:.3g}"),
        covariances=frontier.COVARIANCES if covariance else 0,
        covariance=float(f"{covariance / share:.3g}"),
    )


def cosines(units: int, epsilon: float) -> tuple[int, int, int]:
    """Of all columns, of one, of two."""
    return next(found for below, found in COSINES if units * epsilon < below)


def scale_share(columns: int, units: float, epsilon: float, delta: float) -> float:
    """The part of the budget that finds the scale of columns: as much as few units ask for."""
    return share_for(columns, units, epsilon, delta, HEARD, LEAST_SHARE, MOST_SHARE)
