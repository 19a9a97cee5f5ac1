"""What a proof allows any reconstruction (Hayes, Mahloujifar and Balle 2023, Bounding Training Data Reconstruction in DP-SGD).

An attacker who knows everything but one record succeeds if it comes near enough to that record. Without the release it succeeds with
probability kappa at most: the share of the prior that the best guess is near to. With the release the probability is at most

    gamma = sup { P(E) : Q(E) <= kappa }

where P and Q are the releases with and without the record (theorem 2 of the paper). By the lemma of Neyman and Pearson that is
the least of ``e^epsilon kappa + delta(epsilon)`` over the whole privacy profile, which the accountants give for every event. For T
Gaussian releases without sampling it is ``Phi(Phi^-1(kappa) + sqrt(T) / multiplier)``.

The bound is for one unit: a record in the example unit; in the client unit all records of a client together.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sordino.attacks.ceilings import Ceiling
from sordino.attacks.inversion.metrics import ssim
from sordino.errors import BadInput
from sordino.privacy import accounting, events
from sordino.privacy.vocabulary import Relation

GRID, FINER = 25, 7  # epsilons that are tried first, and then each time
REFINED = 5  # rounds of looking closer
WIDEST = 12.0  # the largest -epsilon that is tried


def reconstruction_bound(event: events.Event, kappa: float, relation: Relation = Relation.ADD_REMOVE) -> float:
    """The largest probability of success after `event`, from the whole privacy profile; 1 where nothing is proven.

    >>> round(reconstruction_bound(events.gaussian(1.0), 0.1), 3)   # Phi(Phi^-1(0.1) + 1) = Phi(-0.2816)
    0.389
    """
    _check(kappa)
    if events.reasons(event):
        return 1.0
    return bound_from_profile(lambda epsilon: accounting.delta_for(event, epsilon, relation), kappa)


def bound_from_profile(delta: Callable[[float], float], kappa: float) -> float:
    """The least over all thresholds of the likelihood ratio e^epsilon, epsilon of either sign.

    At epsilon the bound is ``e^epsilon kappa + delta(epsilon)``. Below zero the profile follows from the other direction, and the bound is
    ``1 - e^-a (1 - kappa - delta(a))`` with a = -epsilon. Every single value is a valid bound, so that a coarse search is only looser.
    """
    _check(kappa)
    above = _least(lambda epsilon: math.exp(epsilon) * kappa + delta(epsilon), -math.log(kappa))
    below = _least(lambda a: 1 - math.exp(-a) * (1 - kappa - delta(a)), WIDEST)
    return min(1.0, max(kappa, min(above, below)))


def _least(value: Callable[[float], float], most: float) -> float:
    """The least value between 0 and `most`: a grid, and finer ones about its best place."""
    low, high, best, count = 0.0, most, math.inf, GRID
    for _ in range(REFINED):
        places = np.linspace(low, high, count)
        values = [value(float(place)) for place in places]
        at = int(np.argmin(values))
        best = min(best, values[at])
        low, high, count = float(places[max(at - 1, 0)]), float(places[min(at + 1, count - 1)]), FINER
    return best


def bound_from_epsilon(epsilon: float, delta: float, kappa: float) -> float:
    """The same from one (epsilon, delta) only: looser than the profile."""
    _check(kappa)
    return 1.0 if math.isinf(epsilon) else Ceiling(epsilon, delta).found_at(kappa)


def prior_chance(population: np.ndarray, threshold: float, guesses: int = 64) -> float:
    """kappa: the largest share of a population of images that one guess is near to, near meaning SSIM of at least `threshold`.

    Guesses are the mean image and the first `guesses` of the population (each is not counted for itself). The population stands for what
    the attacker knows about images in advance. One hit is always granted (add-one), so that few images never give kappa zero.
    """
    if len(population) < 2:
        raise BadInput(f"a population of {len(population)} images says nothing about chance; give at least 2.")
    candidates: list[tuple[int, np.ndarray]] = [(-1, population.mean(0))]
    candidates += list(enumerate(population[:guesses]))
    most = 0
    for own, guess in candidates:
        most = max(most, sum(ssim(guess, one) >= threshold for i, one in enumerate(population) if i != own))
    return min(1.0, (most + 1) / len(population))


def _check(kappa: float) -> None:
    if not 0 < kappa <= 1:
        raise BadInput(f"kappa must be above 0 and at most 1, not {kappa!r}.")
