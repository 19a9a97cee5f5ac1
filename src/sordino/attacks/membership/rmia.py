"""RMIA, the robust attack (Zarifzadeh et al. 2024): `rmia`.

A record's ratio is the target's probability of its label over the average such probability. Its score is the share of
population records z whose ratio it exceeds:

    ratio(x) = p_target(x) / p_bar(x),   p_bar(x) = ((1 + a) mean_out(x) + (1 - a)) / 2
    score(x) = share of z with ratio(x) / ratio(z) > gamma

mean_out is over reference models that were not trained on x; `a` stands in for models that were, and is chosen by
attacking one of the attacker's own models (a pair of models is too few for that, and a usual value is taken).
Population records are in no model. One to four reference models suffice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.attacks import features
from sordino.attacks.game import Game, Guess, Reach, on_trial
from sordino.attacks.metrics import auc, best_threshold
from sordino.errors import BadInput

GRID = tuple(i / 10 for i in range(11))
USUAL = 0.3
_LEAST = 1e-300


@dataclass(frozen=True)
class Rmia:
    """`models` reference models; each record is out of half of them."""

    models: int = 4
    gamma: float = 1.0
    reach = frozenset({Reach.QUERIES, Reach.SHADOWS})

    def guess(self, game: Game) -> Guess:
        """Judge each record by how often its likelihood ratio beats that of population records."""
        if len(game.population_labels) < 10:
            raise BadInput(
                "rmia compares with population records, and fewer than 10 are left; use a larger test split."
            )
        if self.models < 2:
            raise BadInput(f"{self.models} reference model leaves half of the records without one; train at least 2.")
        references = game.references(self.models)
        known = np.stack([features.confidence(each, game.labels) for each in references.logits])
        around = np.stack([features.confidence(each, game.population_labels) for each in references.population])
        p_target = features.confidence(game.outputs(), game.labels)
        p_population = features.confidence(game.population_outputs(), game.population_labels)

        a, threshold = self._choose(known, around, references.inside)
        mine = mean_out(known, references.inside)
        scores = score(p_target, mine, p_population, around.mean(0), a, self.gamma)
        return Guess(scores[game.judged], threshold, notes=(f"a = {a:g}",))

    def _choose(self, known: np.ndarray, around: np.ndarray, inside: np.ndarray) -> tuple[float, float]:
        """The `a` that best tells the sides of the first reference model from the others, and the best threshold."""
        some = on_trial(inside)
        if some is None:
            return USUAL, 0.5
        others = mean_out(known[1:], inside[1:])[some]
        target, crowd, crowd_others = known[0][some], around[0], around[1:].mean(0)
        trials = {a: score(target, others, crowd, crowd_others, a, self.gamma) for a in GRID}
        best = max(GRID, key=lambda a: auc(trials[a], inside[0][some]))
        return best, best_threshold(trials[best], inside[0][some])


def mean_out(known: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The mean probability over models that a record was not in."""
    counts = (~inside).sum(0)
    total = np.where(inside, 0.0, known).sum(0)
    return total / np.maximum(counts, 1)


def ratio(p: np.ndarray, out: np.ndarray, a: float) -> np.ndarray:
    """How much likelier the attacked model makes a record than the mean of models with and without it does."""
    return np.maximum(p, _LEAST) / np.maximum(((1 + a) * out + (1 - a)) / 2, _LEAST)


def score(
    p: np.ndarray, out: np.ndarray, p_population: np.ndarray, out_population: np.ndarray, a: float, gamma: float = 1.0
) -> np.ndarray:
    """The share of population records that each record dominates, by binary search among their sorted ratios.

    The share grows with the record's own ratio, which therefore orders records of equal share.
    """
    crowd = np.sort(ratio(p_population, out_population, a) * gamma)
    mine = ratio(p, out, a)
    return (np.searchsorted(crowd, mine, "left") + mine / (1 + mine)) / (len(crowd) + 1)
