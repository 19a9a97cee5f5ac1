"""LiRA, the likelihood ratio attack (Carlini et al. 2022): `lira` (online) and `lira-offline`.

The log-odds of the true label are about normal over models that were trained with a record, and over models that were
not. Reference models give both normals, or only the second.

    online    log N(phi; mean_in, std_in) - log N(phi; mean_out, std_out)
    offline   Pr[N(mean_out, std_out) < phi], one-sided: an answer that is unusually *bad* is no sign of membership

Means are medians over the reference models. With few of them each record's deviation is too rough, and one common
deviation, separately for in and out, takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.attacks import features
from sordino.attacks.game import Game, Guess, Reach, on_trial
from sordino.attacks.metrics import best_threshold
from sordino.attacks.target import References

ENOUGH = 16  # models on a side, from which on each record has a deviation of its own
_LEAST = 1e-6  # a deviation below this comes of equal models


@dataclass(frozen=True)
class Lira:
    """`models` reference models; each record is in half of them."""

    online: bool = True
    models: int = 16
    reach = frozenset({Reach.QUERIES, Reach.SHADOWS})

    def guess(self, game: Game) -> Guess:
        """Judge each record by how likely its output is among models with it and among models without it."""
        references = game.references(self.models)
        phi, known = statistics(game.outputs(), references, game.labels)
        score = online if self.online else offline
        scores = score(phi, known, references.inside)
        # The attacker's own threshold: where it would best have told the sides of one of its own models.
        threshold = 0.0
        if not self.online:
            some = on_trial(references.inside)
            if some is None:
                threshold = 1.0
            else:
                trial = score(known[0][some], known[1:, some], references.inside[1:, some])
                threshold = best_threshold(trial, references.inside[0, some])
        return Guess(scores[game.judged], threshold)


def statistics(logits: np.ndarray, references: References, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds under the target [n], and under each reference model [k, n]."""
    known = np.stack([features.log_odds(each, labels) for each in references.logits])
    return features.log_odds(logits, labels), known


def online(phi: np.ndarray, known: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The log-likelihood ratio of in against out."""
    mean_in, std_in = normal(known, inside)
    mean_out, std_out = normal(known, ~inside)
    return _log_density(phi, mean_in, std_in) - _log_density(phi, mean_out, std_out)


def offline(phi: np.ndarray, known: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """How far out in the upper tail of "not a member" the target's answer lies, as a normal deviate.

    The deviate orders records as the probability itself does, without rounding to 1.
    """
    mean_out, std_out = normal(known, ~inside)
    return (phi - mean_out) / std_out


def normal(known: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Median and deviation of each record over the models that are `chosen` for it [k, n]."""
    counts = chosen.sum(0)
    if counts.min(initial=len(known)) < 1:
        from sordino.errors import BadInput

        raise BadInput(
            f"{len(known)} reference models leave some records without a model on one side; train at least 2."
        )
    held = np.where(chosen, known, np.nan)
    mean = np.nanmedian(held, 0)
    if counts.min() >= ENOUGH:
        std = np.nanstd(held, 0)
    else:
        # Freedom lost to each record's own centre is given back, or two models would seem to agree too well.
        free = np.maximum(counts.sum() - (counts > 1).sum(), 1)
        squares = np.nansum((held - np.nanmean(held, 0)) ** 2)
        std = np.full(len(mean), np.sqrt(squares / free)) if counts.max() > 1 else np.full(len(mean), np.std(mean))
    return mean, np.maximum(std, _LEAST)


def _log_density(phi: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    return -0.5 * ((phi - mean) / std) ** 2 - np.log(std)
