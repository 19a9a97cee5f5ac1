"""Canary records, for the example unit pooled: examples that a model can only learn by heart.

`mislabelled` ones are examples of the public test set under a wrong label (another class, every label turned round, or the
number of another example), `random` ones are noise under a random label. They go through the same gradients and the same clipping
as real records. An attacker without access to the rounds looks at how much their loss fell in training (Steinke et al. 2023, black
box); this shows less than a direction does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sordino.audit.canaries import Canaries
from sordino.data.schema import CLASSIFICATION, MULTI_LABEL
from sordino.errors import BadInput
from sordino.privacy.randomness import SERVER, stream
from sordino.schemes.base import RECORD_CANARIES
from sordino.schemes.request import Request

if TYPE_CHECKING:
    from sordino.clients.site import Site
    from sordino.federation.population import Federation
    from sordino.schemes.pooled import PooledGradients

KINDS = RECORD_CANARIES
CANARY_CHUNK = 1 << 40  # a number that no chunk of real records has


@dataclass(frozen=True)
class Records:
    """The canaries' examples, and where the first of them lies in the pooled data."""

    x: np.ndarray
    y: np.ndarray
    first: int

    @classmethod
    def make(cls, canaries: Canaries, kind: str, federation: Federation) -> Records:
        """The records that canaries of this kind insert, drawn from the canaries' secret."""
        if federation.x is None or federation.y is None:
            raise BadInput(f"canaries of kind {kind} need data that is held, and not made on demand; use turning.")
        if federation.by_position:
            raise BadInput(f"canaries of kind {kind} need data with one label per example; use turning.")
        draw = stream(canaries.secret, 0, SERVER, "canary records")
        if kind == "mislabelled":
            x, y = _test_examples(federation, canaries.count, draw)
            y = _wrong(y, federation, draw)
        else:
            x = _noise(federation.x, canaries.count, draw)
            y = _any_label(canaries.count, federation, draw)
        return cls(x, federation.labels(y), len(federation.x))

    def behind(self, federation: Federation) -> Federation:
        """The population with the canaries' records behind those of the clients."""
        return federation.followed_by(self.x, self.y)

    def contribute(self, work: PooledGradients, request: Request, which: np.ndarray, out: np.ndarray) -> None:
        """The clipped gradients of these canaries, by the work that does the same for real records."""
        from sordino.clients.threads import one_thread
        from sordino.schemes.pooled import Chunk

        if len(which):
            with one_thread():
                work.contribute(request, Chunk(self.first + which, CANARY_CHUNK), out)

    def scores(self, site: Site, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """By how much each canary's loss fell."""
        return self._losses(site, start) - self._losses(site, end)

    def _losses(self, site: Site, theta: np.ndarray) -> np.ndarray:
        import torch

        site.flat.load(theta)
        site.flat.model.eval()
        with torch.no_grad():
            x, y = site.rows(self.first + np.arange(len(self.y)))
            losses = site.losses(site.flat.model(x), y)
        site.flat.model.train()
        return losses.cpu().numpy().astype(np.float64)


def _wrong(y: np.ndarray, federation: Federation, draw: np.random.Generator) -> np.ndarray:
    """For each example a label that is not its own."""
    if federation.task == CLASSIFICATION:
        return (y + draw.integers(1, federation.classes, len(y))) % federation.classes
    return 1 - y if federation.task == MULTI_LABEL else np.roll(y, 1 + int(draw.integers(max(1, len(y) - 1))), axis=0)


def _any_label(count: int, federation: Federation, draw: np.random.Generator) -> np.ndarray:
    if federation.task == CLASSIFICATION:
        return draw.integers(federation.classes, size=count)
    shape = (count, federation.classes)
    return draw.integers(2, size=shape) if federation.task == MULTI_LABEL else draw.standard_normal(shape)


def _test_examples(federation: Federation, count: int, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    held = federation.raw_test
    if held is None or len(held[1]) < count:
        have = 0 if held is None else len(held[1])
        raise BadInput(
            f"{count} mislabelled canaries need as many public test examples, and there are {have}; use random."
        )
    rows = draw.choice(len(held[1]), count, replace=False)
    return np.asarray(held[0])[rows], np.asarray(held[1])[rows]


def _noise(like: np.ndarray, count: int, draw: np.random.Generator) -> np.ndarray:
    shape = (count, *like.shape[1:])
    if like.dtype == np.uint8:
        return draw.integers(256, size=shape, dtype=np.uint8)
    if like.dtype.kind != "f":
        raise BadInput("random canaries are for numbers, not for tokens; use turning.")
    return draw.random(shape).astype(like.dtype)
