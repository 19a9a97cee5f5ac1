"""GI (Yin et al. 2021, See through Gradients): squared distance, image priors, and agreement over several seeds.

The paper's prior compares features with the running statistics of BatchNorm. Sordino refuses BatchNorm, so an attacker has no such
statistics; with public images it takes the same statistics of those (`feature_prior`). All seeds move in one pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from sordino.attacks.inversion.gradient import Matcher, cosine, feature_prior, squared
from sordino.attacks.inversion.labels import infer_labels
from sordino.attacks.inversion.matching import matched
from sordino.attacks.inversion.observed import ObservedMessage, Reconstruction, Victim
from sordino.attacks.inversion.priors import consensus, energy, total_variation
from sordino.attacks.inversion.progress import Progress, digest
from sordino.attacks.inversion.search import Course, Say, search


@dataclass(frozen=True)
class GI:
    """Weights for losses that are normalised by size; chosen on images that no table judges."""

    steps: int = 1200
    seeds: int = 4
    lr: float = 0.1
    variation: float = 1e-1
    energy: float = 1e-6
    features: float = 1e-3
    group: float = 1e-2
    langevin: float = 0.01
    patience: float = 0.4
    direction: bool = True  # compare directions, as IG does; False: squared distance, as published
    seed: int = 0

    name = "gi"

    def __call__(
        self,
        victim: Victim,
        message: ObservedMessage,
        progress: Progress | None = None,
        labels: np.ndarray | None = None,
        public: np.ndarray | None = None,
        say: Say = lambda *_: None,
    ) -> Reconstruction:
        progress = progress or Progress()
        progress.key = digest(message, self)
        matcher = Matcher(victim, message)
        found = infer_labels(matcher, self.seed) if labels is None else np.sort(np.asarray(labels, np.int64))
        span = float(np.mean(victim.high - victim.low))
        course = Course(
            self.steps,
            lambda part: self.lr * span * warmed(part),
            math.ceil(self.patience * self.steps),
            True,
            self.langevin,
        )
        priors = [(self.variation / span, total_variation), (self.energy, energy), (self.group / span**2, consensus)]
        prior = None if public is None else feature_prior(matcher, public, self.features)
        distance = (cosine if self.direction else squared)(matcher.target)
        result = search(
            matcher, found, self.seeds, distance, priors, course, self.seed, progress, prior, name=self.name, say=say
        )
        return agreed(result[0], result[1], found, *result[2:])


def agreed(best: Tensor, least: Tensor, labels: np.ndarray, steps: int, seconds: float) -> Reconstruction:
    """The mean over the seeds, each brought into the order of the seed with the least loss.

    Errors of different seeds differ, so that their mean is about one decibel nearer than the best of them.
    """
    one = int(least.argmin())
    images = [seed.numpy() for seed in best]
    lead = images[one]
    mean = np.mean([image[matched(lead, image)] for image in images], axis=0)
    return Reconstruction(mean.astype(np.float32), labels, float(least[one]), steps, seconds)


def warmed(part: float, warm: float = 0.025) -> float:
    """A short linear rise, then a cosine down to nothing."""
    return part / warm if part < warm else 0.5 * (1 + math.cos(math.pi * (part - warm) / (1 - warm)))
