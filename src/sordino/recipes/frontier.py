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
from sordino.plain import Json
from sordino.preparation import Features
from sordino.privacy import calibration
from sordino.recipes.networks import SHORTEST_SIGNAL, SMALLEST_PICTURE
from sordino.recipes.shares import share_for

NAME = "frontier"
MOMENTUM = 0.9
TIGHT = 2.0  # an epsilon below which noise rules: larger bounds, fewer records in a batch
NOISE = {"colour": 0.78, "grey": 1.2, "signal": 1.3}  # deviation of the noise on a score at the end
ROUNDS = {"colour": 150, "grey": 200, "signal": 200}
LEAST_BATCH = 64
LEAST_SHARE, MOST_SHARE = 0.01, 0.2  # of the budget, for the mean of the features
# Public directions that are kept. Few records teach along few; from so many pictures on all features are better.
SIGNAL_DIRECTIONS, FEW_DIRECTIONS, DIRECTIONS = 200, 300, 1000
FEW_PICTURES, MANY_PICTURES = 3_000, 30_000
COVARIANCES, COVARIANCE_SHARE = 4, 0.2  # of signals: how often they are asked for, and for what part of the budget
# The length of the noise on that mean, where a row has length 1. On 1,500 pictures of MNIST at epsilon 1 a share of 0.03 left
# noise longer than the mean, and accuracy was 50% instead of 87%.
HEARD = 0.35
HEARD_SHORT = 0.1  # the same for rows that are shortened first: few numbers are heard with little
WINS_TO = 8.0  # epsilon


def settings(shape: tuple[int, ...], records: int, epsilon: float, delta: float = 1e-5, pin: bool = True) -> Json:
    """The settings of a plan for records of this shape; `pin` names the filters by digest, which may take half a minute."""
    positive(epsilon=epsilon)
    whole(records=records)
    kind, tight = kind_of(shape), epsilon < TIGHT
    chosen, rounds = preparation(shape, records, epsilon, delta), ROUNDS[kind]
    rate = 0.2 if kind == "colour" and not tight else 0.1
    batch = min(records, max(LEAST_BATCH, round(rate * records)))
    bound = 0.4 if tight else 0.2 if kind == "colour" else 0.3
    z = calibration.multiplier_for(epsilon, delta, rounds, batch / records)
    lr = NOISE[kind] * (1 - MOMENTUM) * batch / (math.sqrt(rounds) * z * bound)
    return {
        "prepare": (chosen.pinned(shape) if pin else chosen).to_json(),
        "model": "head",
        "method": "dp-fedavg",
        "unit": "example",
        "bound": bound,
        "rounds": rounds,
        "batch_size": batch,
        "lr": float(f"{lr:.3g}"),
        "server_optimizer": "momentum",
        "server_momentum": MOMENTUM,
    }


def preparation(shape: tuple[int, ...], units: int, epsilon: float, delta: float) -> Features:
    """Features of records of this shape, their statistics heard by so many units."""
    numbers = Features().stages(shape).length(0)  # refuses what has no features
    least = 3 * LEAST_SHARE if epsilon < TIGHT else LEAST_SHARE
    directions = directions_for(shape, units)
    if not directions:
        return Features(share=share_for(numbers, units, epsilon, delta, HEARD, least, MOST_SHARE))
    kept = Features(directions=directions).stages(shape).length(0)
    share = share_for(kept, units, epsilon, delta, HEARD_SHORT, LEAST_SHARE, MOST_SHARE)
    if kind_of(shape) != "signal":
        return Features(share=share, directions=directions)
    whole = float(f"{share + COVARIANCE_SHARE:.3g}")
    part = float(f"{COVARIANCE_SHARE / whole:.3g}")
    return Features(share=whole, directions=directions, covariances=COVARIANCES, covariance=part)


def directions_for(shape: tuple[int, ...], units: int) -> int:
    """How many public directions are kept; 0: all features."""
    few = FEW_DIRECTIONS if units < FEW_PICTURES else DIRECTIONS if units < MANY_PICTURES else 0
    wanted = SIGNAL_DIRECTIONS if kind_of(shape) == "signal" else few
    try:
        Features(directions=wanted).stages(shape)
    except BadInput:
        return 0  # there are no more than these
    return wanted


def wins(shape: tuple[int, ...], epsilon: float) -> bool:
    """Where it was measured to beat every network here: pictures and signals (docs/regret.md), at a small epsilon.

    Not on pictures of a few pixels or signals of a few steps, of which a linear model learns from fewer records.
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
        f"recipe frontier is for pictures (channels, height, width) and signals (channels, length), not for records of shape "
        f"{tuple(shape)}; leave --recipe out, or add the channel axis."
    )
