"""How well a model does at each client, and how far clients lie apart (DP-FedACN's universality is the SD).

The figures of the shared model are released, so they are measured on public data only: test splits that come with the data set,
or the public test set dealt out with the label shares that a simulated partition gave the clients. Where clients have no public
split nothing is measured here, and a holder looks at its own figures by itself.

Personal models are private. Their figures are written for the person who owns all the data of a simulation, in a file that only
that person can read, and are no part of the report.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sordino.files import write_atomically

if TYPE_CHECKING:
    from torch import nn

    from sordino.federation.population import Federation

PIECE = 1000
PUBLIC = (
    "The test split of each client, on which the figures between clients are measured, is public. In a simulated partition it has "
    "the label shares that the partition gave the client."
)


@dataclass(frozen=True)
class Spread:
    """Accuracy over clients. `smallest` is the size of the smallest split: below some 50 the SD is mostly chance."""

    clients: int
    mean: float
    sd: float  # of the population of clients, not an estimate from a sample
    lowest: float
    tenth: float  # percentile
    smallest: int

    @classmethod
    def of(cls, accuracies: list[float], sizes: list[int]) -> Spread:
        """
        >>> made = Spread.of([0.5, 0.7], [10, 20])
        >>> round(made.mean, 3), round(made.sd, 3), made.lowest, round(made.tenth, 3), made.smallest
        (0.6, 0.1, 0.5, 0.52, 10)
        """
        each = np.array(accuracies, np.float64)
        tenth = float(np.percentile(each, 10))
        return cls(len(each), float(each.mean()), float(each.std()), float(each.min()), tenth, min(sizes))

    def to_json(self) -> dict[str, float]:
        """Each figure by its name, as fairness.json holds it."""
        return asdict(self)


def spread(model: nn.Module, federation: Federation, vector_of: Callable[[int], np.ndarray]) -> Spread | None:
    """Of `vector_of(k)` on client k's public split, for every client that has one; None if nobody has."""
    import torch

    from sordino.clients.threads import one_thread
    from sordino.engines.scoring import judged, right
    from sordino.gradients.flat import Flat

    if not federation.has_local_tests:
        return None
    flat = Flat(copy.deepcopy(model))
    flat.model.eval()
    found, sizes = [], []
    with torch.no_grad(), one_thread():
        for k in range(federation.clients):
            held = federation.local_test(k)
            if held is None or not len(held[1]):
                continue
            flat.load(vector_of(k))
            x, y = (torch.from_numpy(np.ascontiguousarray(part)) for part in held)
            correct = sum(right(flat.model(a), b, federation.task) for a, b in zip(x.split(PIECE), y.split(PIECE)))
            found.append(correct / judged(y, federation.task))
            sizes.append(len(y))
    return Spread.of(found, sizes) if found else None


def write_personal(folder: Path, own: Spread | None) -> None:
    """For the owner's eyes: mode 0600, beside the personal models."""
    if own is not None:
        folder.mkdir(mode=0o700, exist_ok=True)
        text = json.dumps(own.to_json() | {"note": "private: not covered by any guarantee; do not publish"}, indent=2)
        write_atomically(folder / "accuracy.json", text + "\n", private=True, durable=True)
