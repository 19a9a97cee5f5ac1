"""Looking at records through a model: its outputs, and, for an attacker who has the weights, its gradients.

The gradient of the last dense layer is the outer product of what goes into that layer and the error ``p - onehot(y)``,
so those two factors are kept instead of the product. Norms of the gradient are taken for each layer, and so is its cosine
with the move that the model made next: a member had a part in that move.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sordino.attacks import features
from sordino.errors import BadInput
from sordino.machine import cores

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sordino.gradients.per_example import PerExample

BATCH = 500
NUDGE = np.float32(0.05)  # of a move, to either side: small against its curvature, large against float32


@dataclass(frozen=True, eq=False)
class Observation:
    """What one model shows of the attacked records. Only `logits` without the weights."""

    round: int
    logits: np.ndarray  # [n, classes]
    hidden: np.ndarray | None = None  # [n, width], input of the last dense layer
    norms: np.ndarray | None = None  # [n, layers], of the gradients
    update_cosines: np.ndarray | None = (
        None  # [n, layers], cosine of the gradient at the model before with the move to this one
    )


class ModelProbe:
    """One network, through which the weights of many models are looked at in turn."""

    def __init__(self, module: nn.Module) -> None:
        from sordino.gradients.flat import Flat

        self.flat = Flat(module.eval())

    def logits(self, theta: np.ndarray, x: np.ndarray, ordered: bool = False) -> np.ndarray:
        """The model's answers. Batches go side by side, each in one thread: the same bits on any number of cores."""
        import torch

        from sordino.clients.threads import one_thread

        self.flat.load(theta)
        self.flat.model.eval()

        def ask(start: int) -> np.ndarray:
            with torch.no_grad():
                return self.flat.model(_part(x, start)).numpy()

        starts = range(0, len(x), BATCH)
        with one_thread(), ThreadPoolExecutor(1 if ordered else cores()) as pool:
            parts = list(pool.map(ask, starts))
        return np.concatenate(parts).astype(np.float64)

    def look(
        self, theta: np.ndarray, x: np.ndarray, y: np.ndarray, t: int, before: np.ndarray | None = None
    ) -> Observation:
        """Outputs; with the model `before` this one also what the weights of both give away."""
        if before is None:
            return Observation(t, self.logits(theta, x))
        update_cosines = self._pulls(before, theta - before, x, y)
        caught: list[np.ndarray] = []
        hook = self._last().register_forward_pre_hook(lambda _, given: caught.append(given[0].detach().numpy().copy()))
        try:
            logits = self.logits(theta, x, ordered=True)
        finally:
            hook.remove()
        hidden = np.concatenate([np.atleast_2d(part).reshape(len(part), -1) for part in caught])
        if len(hidden) != len(x):
            raise BadInput(
                "the last dense layer of this model does not see one row per record; white-box does not fit it."
            )
        return Observation(t, logits, hidden.astype(np.float64), self._norms(x, y), update_cosines)

    def _pulls(self, theta: np.ndarray, move: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Cosine of each record's gradient with the move, by layer. Differences of outputs stand in for a derivative."""
        logits = self.logits(theta, x)
        error = features.softmax(logits) - np.eye(logits.shape[1])[y]
        norms = self._norms(x, y)
        out, start = np.zeros_like(norms), 0
        for layer, size in enumerate(self.flat.layer_sizes()):
            step = np.zeros_like(move)
            step[start : start + size] = move[start : start + size]
            start += size
            ahead, behind = self.logits(theta + NUDGE * step, x), self.logits(theta - NUDGE * step, x)
            slope = (error * (ahead - behind)).sum(1) / (2 * NUDGE)
            out[:, layer] = slope / (norms[:, layer] * np.linalg.norm(step) + 1e-20)
        return out

    def _norms(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        import torch

        from sordino.clients.threads import one_thread

        with one_thread():
            norms = self._per_example.norms(torch.from_numpy(x), torch.from_numpy(y), self.flat.layer_sizes())
        return np.asarray(norms, np.float64)

    @cached_property
    def _per_example(self) -> PerExample:
        """One strategy for good: the fastest is found by timing, and last digits would depend on what it finds."""
        from sordino.gradients.per_example import PerExample

        return PerExample(self.flat)

    def gradient(self, theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Of the mean loss on these records, as one vector."""
        import torch
        from torch.nn import functional

        from sordino.clients.threads import one_thread

        self.flat.load(theta)
        self.flat.model.eval()
        self.flat.bind_grad()
        self.flat.grad.zero_()
        labels = torch.from_numpy(y)
        with one_thread():
            for start in range(0, len(x), BATCH):
                outputs = self.flat.model(_part(x, start))
                loss = functional.cross_entropy(outputs, labels[start : start + BATCH], reduction="sum")
                (loss / len(x)).backward()
        return self.flat.grad.numpy().copy()

    def _last(self) -> nn.Module:
        from torch import nn

        dense = [m for m in self.flat.model.modules() if isinstance(m, nn.Linear)]
        if not dense:
            raise BadInput("this model has no dense layer whose gradients could be read; white-box does not fit it.")
        return dense[-1]


def joined(total: int, parts: list[tuple[np.ndarray, Observation]]) -> Observation:
    """One sight of all records from sights of some of them each."""
    first = parts[0][1]

    def scatter(of: Callable[[Observation], np.ndarray | None]) -> np.ndarray | None:
        one = of(first)
        if one is None:
            return None
        out = np.empty((total, one.shape[1]))
        for rows, sight in parts:
            out[rows] = of(sight)
        return out

    logits = scatter(lambda sight: sight.logits)
    assert logits is not None
    hidden, norms = scatter(lambda sight: sight.hidden), scatter(lambda sight: sight.norms)
    return Observation(first.round, logits, hidden, norms, scatter(lambda sight: sight.update_cosines))


def _part(x: np.ndarray, start: int) -> Tensor:
    import torch

    part = torch.from_numpy(np.array(x[start : start + BATCH]))
    return part.contiguous(memory_format=torch.channels_last) if part.dim() == 4 else part
