"""The recipe `frontier`: features that need no data and a linear head, for pictures and signals in the example unit pooled.

    settings = frontier.settings(shape=(3, 32, 32), records=50_000, epsilon=4.0)
    plan = Plan(data="cifar10", epsilon=4.0, **settings)

Settings follow from public facts: shape, number of records, epsilon and delta. Rows have unit length, so noise of deviation s on each
weight moves every score by s, whatever the dimension. After T steps of momentum m that noise is lr / (1 - m) sqrt(T) z C / B for
a bound C and a batch of B. The learning rate is the one at which it is `NOISE`: how much noise on scores paid off on the
training data of CIFAR-10, MNIST and Fashion-MNIST (docs/features.md), and about the same at every epsilon that was tried.
"""

from __future__ import annotations

import math

from sordino.errors import BadInput, positive, whole
from sordino.plain import Json
from sordino.preparation import Features
from sordino.privacy import calibration

NAME = "frontier"
MOMENTUM = 0.9
TIGHT = 2.0  # an epsilon below which noise rules: larger bounds, fewer records in a batch
NOISE = {"colour": 0.78, "grey": 1.2, "signal": 1.0}  # deviation of the noise on a score at the end
ROUNDS = {"colour": 150, "grey": 200, "signal": 200}
LEAST_BATCH = 64
WINS_FROM, WINS_TO = 20_000, 8.0  # records and epsilon


def settings(shape: tuple[int, ...], records: int, epsilon: float, delta: float = 1e-5, pin: bool = True) -> Json:
    """The settings of a plan for records of this shape; `pin` names the filters by digest, which may take half a minute."""
    positive(epsilon=epsilon)
    whole(records=records)
    chosen, kind = Features(share=0.03 if epsilon < TIGHT else 0.01), kind_of(shape)
    chosen.stages(shape)  # refuses what has no features
    tight, rounds = epsilon < TIGHT, ROUNDS[kind]
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


def wins(shape: tuple[int, ...], records: int, epsilon: float) -> bool:
    """Where it was measured to beat every network here: pictures of at least 16 pixels a side, many of them, at a small epsilon.

    On a few thousand records a small network does as well or better (digits), and signals were not compared yet.
    """
    return len(shape) == 3 and min(shape[1:]) >= 16 and records >= WINS_FROM and epsilon <= WINS_TO


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
