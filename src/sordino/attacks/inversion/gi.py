"""GI (Yin et al. 2021, See through Gradients): squared distance, image priors, and agreement over several seeds.

The paper's prior compares features with the running statistics of BatchNorm. Sordino refuses BatchNorm, so an attacker has no such
statistics; with public images it takes the same statistics of those (`feature_prior`). All seeds move in one pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sordino.attacks.inversion.attack import Task
from sordino.attacks.inversion.gradient import cosine, feature_prior, squared
from sordino.attacks.inversion.matching import matched
from sordino.attacks.inversion.observed import Reconstruction
from sordino.attacks.inversion.priors import consensus, energy
from sordino.attacks.inversion.search import Found, SearchAttack


@dataclass(frozen=True)
class GI(SearchAttack):
    """Weights for losses that are normalised by size; chosen on images that no table judges."""

    seeds: int = 4
    energy: float = 1e-6
    features: float = 1e-3
    group: float = 1e-2
    langevin: float = 0.01
    direction: bool = True  # compare directions, as IG does; False: squared distance, as published

    name = "gi"

    def draw(self, task: Task) -> Reconstruction:
        prior = None if task.public is None else feature_prior(task.matcher, task.public, self.features)
        distance = self.distance(task, cosine if self.direction else squared)
        priors = [(self.energy, energy), (self.group / task.victim.span**2, consensus)]
        return agreed(self.search(task, self.seeds, distance, warmed, priors, prior, self.langevin))


def agreed(found: Found) -> Reconstruction:
    """The mean over the seeds, each brought into the order of the seed with the least loss.

    Errors of different seeds differ, so that their mean is about one decibel nearer than the best of them.
    """
    images = [seed.numpy() for seed in found.best]
    lead = images[int(found.least.argmin())]
    mean = np.mean([image[matched(lead, image)] for image in images], axis=0)
    return found.reconstruction(mean.astype(np.float32))


def warmed(part: float, warm: float = 0.025) -> float:
    """A short linear rise, then a cosine down to nothing."""
    return part / warm if part < warm else 0.5 * (1 + math.cos(math.pi * (part - warm) / (1 - warm)))
