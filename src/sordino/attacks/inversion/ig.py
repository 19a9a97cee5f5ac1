"""IG (Geiping et al. 2020, Inverting Gradients): cosine distance and total variation, Adam on the sign of the gradient.

Labels come from the last layer, unless they are given. Updates of several local steps are matched by unrolling SGD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sordino.attacks.inversion.gradient import Matcher, cosine
from sordino.attacks.inversion.labels import infer_labels
from sordino.attacks.inversion.observed import ObservedMessage, Reconstruction, Victim
from sordino.attacks.inversion.priors import total_variation
from sordino.attacks.inversion.progress import Progress, digest
from sordino.attacks.inversion.search import Course, Say, chosen, search


@dataclass(frozen=True)
class IG:
    """The paper runs 24,000 steps on a graphics card; the loss has settled long before on small images."""

    steps: int = 1200
    restarts: int = 2
    lr: float = 0.1  # in pixel ranges
    variation: float = 1e-1
    patience: float = 0.4  # give up when this share of the run brought nothing; the rate first falls after 3/8
    seed: int = 0

    name = "ig"

    def __call__(
        self,
        victim: Victim,
        message: ObservedMessage,
        progress: Progress | None = None,
        labels: np.ndarray | None = None,
        public: np.ndarray | None = None,
        say: Say = lambda *_: None,
    ) -> Reconstruction:
        """`labels`: what is known of them; `public` images are not used by this attack."""
        progress = progress or Progress()
        progress.key = digest(message, self)
        matcher = Matcher(victim, message)
        found = infer_labels(matcher, self.seed) if labels is None else np.sort(np.asarray(labels, np.int64))
        span = float(np.mean(victim.high - victim.low))
        course = Course(self.steps, lambda part: self.lr * span * decay(part), math.ceil(self.patience * self.steps))
        priors = [(self.variation / span, total_variation)]
        result = search(
            matcher,
            found,
            self.restarts,
            cosine(matcher.target),
            priors,
            course,
            self.seed,
            progress,
            name=self.name,
            say=say,
        )
        return chosen(result[0], result[1], found, *result[2:])


def decay(part: float) -> float:
    """Steps of the rate at 3/8, 5/8 and 7/8 of the run.

    >>> [decay(part) for part in (0.0, 0.5, 0.7, 0.9)]
    [1.0, 0.1, 0.01, 0.001]
    """
    return 10.0 ** -sum(part >= edge for edge in (0.375, 0.625, 0.875))
