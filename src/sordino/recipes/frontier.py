"""The recipe `frontier`: features that need no data and a linear head, for pictures and signals in the example unit pooled.

    settings = frontier.settings(shape=(3, 32, 32), records=50_000, epsilon=4.0)
    plan = Plan(data="cifar10", epsilon=4.0, **settings)

Settings follow from public facts: shape, number of records, epsilon and delta. Rows have unit length, so noise of deviation s on each
weight moves every score by s, whatever the dimension. After T steps of momentum m that noise is lr / (1 - m) sqrt(T) z C / B for
a bound C and a batch of B. The learning rate is the one at which it is `NOISE`: how much noise on scores paid off on the
training data of CIFAR-10, MNIST and Fashion-MNIST (docs/features.md), for signals on 23 sets (docs/regret.md), and about the same at
every epsilon that was tried.

Signals of one kind are much alike, each kind in its own way. Their rows are shortened to public directions, and the data is asked with a fifth of
the budget along which of these it varies most (`features.flatten`).
"""

from __future__ import annotations

import math

from sordino.errors import BadInput, positive, whole
from sordino.features import flatten
from sordino.plain import Json
from sordino.preparation import Features, Preparation
from sordino.privacy import calibration
from sordino.recipes.shares import share_for

NAME = "frontier"
MOMENTUM = 0.9
DELTA = 1e-5  # rates suit the usual one, also where another is given
TIGHT = 2.0  # an epsilon below which noise rules: other bounds, fewer records in a batch
NOISE = {"colour": 0.78, "grey": 1.2, "signal": 1.2}  # deviation of the noise on a score at the end
ROUNDS = {"colour": 150, "grey": 200, "signal": 200}
LEAST_BATCH = 64
LEAST_SHARE, MOST_SHARE = 0.01, 0.2  # of the budget, for the mean of the features
# Public directions that are kept below so many records times epsilon: little can be learnt along many through much noise. Above the last
# number of pictures all features are better (docs/features.md).
DIRECTIONS = {
    "picture": ((10_000, 300), (40_000, 1000), (math.inf, 0)),
    "signal": ((5_000, 200), (15_000, 400), (math.inf, 800)),
}
SHORT = 200  # directions for whole clients, who are few
COVARIANCES, COVARIANCE_SHARE = 4, 0.2  # how often they are asked for, and for what part of the budget
# Variance along a direction that noise alone makes (`flatten.floor`), where a row has length 1. Above it covariances find nothing.
IN_VAIN = 0.3
WIDEST = 2_000  # numbers of a row, above which two million products of them take too much time and memory
# The length of the noise on that mean, where a row has length 1. On 1,500 pictures of MNIST at epsilon 1 a share of 0.03 left
# noise longer than the mean, and accuracy was 50% instead of 87%.
HEARD = 0.35
HEARD_SHORT = 0.2  # the same for rows that are shortened first, over how far they lie from synthetic ones
MOST_SHORT = 0.05  # of the budget for that mean, where covariances may be asked for too: what is off in it is flattened
WINS_TO = 50.0  # epsilon
SMALLEST_PICTURE, SHORTEST_SIGNAL = 8, 32  # pixels a side, and steps, that were tried
# Records times epsilon, from which on a round's histogram of norms is heard well enough for the bound to follow it (`adact`). Rows have
# length 1, so that a bound is known to begin with, and fewer records keep it.
HEARD_BY = 4_000


def settings(shape: tuple[int, ...], records: int, epsilon: float, delta: float = 1e-5, pin: bool = True) -> Json:
    """The settings of a plan for records of this shape; `pin` names the filters by digest, which may take half a minute."""
    positive(epsilon=epsilon)
    whole(records=records)
    kind, tight = kind_of(shape), epsilon < TIGHT
    chosen, rounds = preparation(shape, records, epsilon, delta), ROUNDS[kind]
    rate = 0.2 if kind == "colour" and not tight else 0.1
    batch = min(records, max(LEAST_BATCH, round(rate * records)))
    bound = _bound(kind, tight, short=chosen.directions > 0)
    made = chosen.pinned(shape) if pin else chosen
    return head(made, records, epsilon, NOISE[kind], rounds, batch, bound)


def _bound(kind: str, tight: bool, short: bool) -> float:
    """Of rows of length 1, to begin with. Short rows were no worse, and mostly better, at 0.2 through much noise (docs/regret.md)."""
    if tight:
        return 0.2 if short else 0.4
    return 0.2 if kind == "colour" else 0.3


def head(
    prepare: Preparation, records: int, epsilon: float, noise: float, rounds: int, batch: int, bound: float
) -> Json:
    """A linear head over such rows, at the rate at which `noise` is on a score at the end. Steps go along mean / bound: the rate is for any bound."""
    z = calibration.multiplier_for(epsilon, DELTA, rounds, batch / records)
    lr = noise * (1 - MOMENTUM) * batch / (math.sqrt(rounds) * z)
    return {
        "prepare": prepare.to_json(),
        "model": "head",
        "method": "adact" if records * epsilon >= HEARD_BY else "dp-fedavg",
        "unit": "example",
        "bound": bound,
        "steps": "scaled",
        "rounds": rounds,
        "batch_size": batch,
        "lr": float(f"{lr:.3g}"),
        "server_optimizer": "momentum",
        "server_momentum": MOMENTUM,
    }


def preparation(shape: tuple[int, ...], records: int, epsilon: float, delta: float) -> Features:
    """Features for records in one sum."""
    kind = "signal" if kind_of(shape) == "signal" else "picture"
    count = _at_most(shape, next(count for below, count in DIRECTIONS[kind] if records * epsilon < below))
    if kind == "signal":
        return flattened(shape, count, records, epsilon, delta)
    least = 3 * LEAST_SHARE if epsilon < TIGHT else LEAST_SHARE
    numbers, heard = Features(directions=count).stages(shape).length(0), HEARD_SHORT if count else HEARD
    return Features(share=share_for(numbers, records, epsilon, delta, heard, least, MOST_SHARE), directions=count)


def flattened(shape: tuple[int, ...], directions: int, units: int, epsilon: float, delta: float) -> Features:
    """Features along few directions, flattened where so many units can be asked for a covariance."""
    count = _at_most(shape, directions)
    numbers = Features(directions=count).stages(shape).length(0)
    share = share_for(numbers, units, epsilon, delta, HEARD_SHORT, LEAST_SHARE, MOST_SHORT)
    if not count or not can_flatten(numbers, units, epsilon, delta):
        return Features(share=share, directions=count)
    whole = float(f"{share + COVARIANCE_SHARE:.3g}")
    part = float(f"{COVARIANCE_SHARE / whole:.3g}")
    return Features(share=whole, directions=count, covariances=COVARIANCES, covariance=part)


def can_flatten(numbers: int, units: int, epsilon: float, delta: float) -> bool:
    """Whether covariances of rows of so many numbers are heard from so many units, and can be computed."""
    z = calibration.multiplier_for(epsilon, delta, 1, 1.0) / math.sqrt(COVARIANCE_SHARE / COVARIANCES)
    return numbers <= WIDEST and flatten.floor(numbers, z / units) <= IN_VAIN


def _at_most(shape: tuple[int, ...], count: int) -> int:
    """So many directions; 0 (all features) where there are no more than these."""
    try:
        Features(directions=count).stages(shape)
    except BadInput:
        Features().stages(shape)  # refuses what has no features
        return 0
    return count


def wins(shape: tuple[int, ...], epsilon: float) -> bool:
    """Where it was measured to beat every network here: pictures and signals (docs/regret.md), up to the largest epsilon that was tried.

    Not on signals of a few steps, nor on pictures of a few pixels.
    """
    small = min(shape[1:], default=0) < (SMALLEST_PICTURE if len(shape) == 3 else SHORTEST_SIGNAL)
    return epsilon <= WINS_TO and not small and _has_features(shape)


def _has_features(shape: tuple[int, ...]) -> bool:
    """Short signals have none."""
    try:
        Features().stages(shape)
    except BadInput:
        return False
    return True


def kind_of(shape: tuple[int, ...]) -> str:
    """colour, grey or signal; anything else has no features."""
    if len(shape) == 2:
        return "signal"
    if len(shape) == 3:
        return "grey" if shape[0] == 1 else "colour"
    raise BadInput(
        f"recipe frontier is for pictures (channels, height, width), signals (channels, length) and tables (columns), not for texts, nor for "
        f"records of shape {tuple(shape)}; leave --recipe out, or add the channel axis."
    )
