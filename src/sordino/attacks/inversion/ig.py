"""IG (Geiping et al. 2020, Inverting Gradients): cosine distance and total variation, Adam on the sign of the gradient.

Labels come from the last layer, unless they are given. Updates of several local steps are matched by unrolling SGD.
"""

from __future__ import annotations

from dataclasses import dataclass

from sordino.attacks.inversion.attack import Task
from sordino.attacks.inversion.gradient import cosine
from sordino.attacks.inversion.observed import Reconstruction
from sordino.attacks.inversion.search import Found, SearchAttack


@dataclass(frozen=True)
class IG(SearchAttack):
    """The paper runs 24,000 steps on a graphics card; the loss has settled long before on small images."""

    restarts: int = 2

    name = "ig"

    def draw(self, task: Task) -> Reconstruction:
        found = self.search(task, self.restarts, self.distance(task, cosine), decay)
        return chosen(found)


def chosen(found: Found) -> Reconstruction:
    """The restart with the least loss."""
    one = int(found.least.argmin())
    return found.reconstruction(found.best[one].numpy().copy())


def decay(part: float) -> float:
    """Steps of the rate at 3/8, 5/8 and 7/8 of the run.

    >>> [decay(part) for part in (0.0, 0.5, 0.7, 0.9)]
    [1.0, 0.1, 0.01, 0.001]
    """
    return 10.0 ** -sum(part >= edge for edge in (0.375, 0.625, 0.875))
