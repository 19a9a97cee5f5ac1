"""Clipped sums of per-example gradients, for any model, in bounded memory.

    engine = PerExample(model)
    total, norms = engine.clipped_sum(x, y, bounds.Flat(1.0))

`total` is ``sum_i factor_i g_i`` in the order of `sordino.gradients.flat`, where g_i is the gradient of the loss of
example i alone and ``factor_i = bound.factors(|g_i|)``: no example adds more than the bound. An example whose gradient
is not finite adds nothing. How the gradients come about is `strategies`' business; the fastest way that fits the model
is settled at first use (`trial`).

Batches are cut evenly into chunks of about `chunk` examples, a number that depends on the model alone. What a call
returns is a function of its arguments and the parameters, so that work may be shared out in pieces of a fixed size
without changing a bit of the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sordino.errors import BadInput, one_of
from sordino.gradients.flat import Flat
from sordino.gradients.ghost_modules import Unsupported
from sordino.gradients.select_strategy import settle
from sordino.gradients.strategies import Ghost, Loop, Loss, PerExampleGrads, Strategy, Vmap, power_of_two

if TYPE_CHECKING:
    from sordino.privacy.bounds import Bound

_SLACK = 1 + 2.0**-18  # norms come from single precision; this much keeps the clipped length under the bound


def cross_entropy(out: Tensor, y: Tensor) -> Tensor:
    """For scores [n, classes], or [n, positions, classes] averaged over positions."""
    if out.dim() > 2:
        return F.cross_entropy(out.flatten(0, -2), y.flatten(), reduction="none").view(len(out), -1).mean(1)
    return F.cross_entropy(out, y, reduction="none")


def squared_error(out: Tensor, y: Tensor) -> Tensor:
    """Half the squared distance to the target."""
    return 0.5 * (out.flatten(1) - y.reshape(len(out), -1)).square().sum(1)


LOSSES: dict[str, Loss] = {"cross-entropy": cross_entropy, "squared-error": squared_error}
MODES = ("auto", "ghost", "vmap", "loop")


class PerExample:
    """Per-example gradients of one model under one loss: a name of `LOSSES`, or a function with one loss per example.

    `mode` forces a strategy; "auto" takes the fastest that fits.
    """

    def __init__(self, model: nn.Module | Flat, loss: str | Loss = "cross-entropy", mode: str = "auto") -> None:
        self.flat = model if isinstance(model, Flat) else Flat(model)
        if isinstance(loss, str):
            one_of(LOSSES, loss=loss)
            loss = LOSSES[loss]
        one_of(MODES, mode=mode)
        self.loss: Loss = loss
        self._strategy: Strategy | None = None
        self._ghost: Ghost | None = None
        if mode in ("auto", "ghost"):
            try:
                self._ghost = Ghost(self.flat, loss)
            except Unsupported as why:
                if mode == "ghost":
                    raise BadInput(f"mode 'ghost' does not fit this model ({why}): use mode 'auto'.") from None
        if mode != "auto":
            self._strategy = {"ghost": self._ghost, "vmap": Vmap(self.flat, loss), "loop": Loop(self.flat, loss)}[mode]
        # Fixed before any data is seen, so that every worker cuts alike.
        self.chunk = self._ghost.step if self._ghost is not None else power_of_two(self.flat.size)

    @property
    def mode(self) -> str:
        """The strategy in use: `auto` until the first batch."""
        return "auto" if self._strategy is None else type(self._strategy).__name__.lower()

    def clipped_sum(self, x: Any, y: Any, bound: Bound) -> tuple[np.ndarray, np.ndarray]:
        """The sum of clipped gradients (float64, flat order) and the norms before clipping."""
        total, norms = np.zeros(self.flat.size), [self._no_norms(bound)]
        for part, lengths in self.clipped_chunks(x, y, bound):
            total += part
            norms.append(lengths)
        return total, np.concatenate(norms)

    def clipped_chunks(self, x: Any, y: Any, bound: Bound) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The same, chunk by chunk: sums (float32 or float64) and norms."""
        x, y = self._batch(x, y)
        clip = self._clip if _by_norm(bound) else self._clip_rows
        for window in _cut(len(x), self.chunk):
            parts = [clip(taken, bound) for taken in self._passes(x[window], y[window])]
            if len(parts) == 1:
                yield parts[0]
            else:
                sums, lengths = zip(*parts)
                yield np.stack(sums).sum(0, dtype=np.float64), np.concatenate(lengths)

    def norms(self, x: Any, y: Any, sizes: Sequence[int] | None = None) -> np.ndarray:
        """Norms of the gradients [n]; given `sizes` of consecutive groups of the flat vector, of each group [n, G]."""
        x, y = self._batch(x, y)
        groups = self._groups(sizes)
        out = [np.zeros((0,) if groups is None else (0, len(sizes or ())))]
        for window in _cut(len(x), self.chunk):
            out += [_norms(taken.squares(), groups) for taken in self._passes(x[window], y[window])]
        return np.concatenate(out)

    def rows(self, x: Any, y: Any) -> np.ndarray:
        """The gradients themselves [n, d] in single precision: for small models."""
        x, y = self._batch(x, y)
        out = [np.zeros((0, self.flat.size), dtype=np.float32)]
        for window in _cut(len(x), self.chunk):
            out += [taken.rows().numpy(force=True) for taken in self._passes(x[window], y[window])]
        return np.concatenate(out)

    def _passes(self, x: Tensor, y: Tensor) -> Iterator[PerExampleGrads]:
        """One chunk in as many passes as its strategy needs."""
        if self._strategy is None:
            self._strategy = settle(self.flat, self.loss, self._ghost, x, y)
        strategy = self._strategy
        with torch.no_grad():
            for part in _cut(len(x), strategy.step):
                try:
                    yield strategy.run(x[part], y[part])
                except Unsupported:  # a use of a layer that the first batch did not show
                    yield Loop(self.flat, self.loss).run(x[part], y[part])

    def _clip(self, taken: PerExampleGrads, bound: Bound) -> tuple[np.ndarray, np.ndarray]:
        groups = self._groups(getattr(bound, "sizes", None))
        lengths = _norms(taken.squares(), groups)
        bad = ~(np.isfinite(lengths) if lengths.ndim == 1 else np.isfinite(lengths).all(1))
        factors = bound.factors(lengths * _SLACK)
        device = self.flat.theta.device
        if bad.any():
            taken.drop(torch.from_numpy(bad).to(device))
            factors[bad] = 0.0
        weights = torch.from_numpy(factors.T.copy()).to(device)
        columns = [weights if groups is None else weights[g] for g in groups or [0] * len(self.flat.slots)]
        return taken.weighted(columns).numpy(force=True), lengths

    def _clip_rows(self, taken: PerExampleGrads, bound: Bound) -> tuple[np.ndarray, np.ndarray]:
        """For bounds that are no function of the L2 norm; the norms are of the bound's kind."""
        rows = taken.rows().numpy(force=True).astype(np.float64)
        total = np.zeros(self.flat.size)
        for row in rows:
            total += bound.clip(row)
        return total, np.linalg.norm(rows, ord=1 if bound.norm_kind == "l1" else 2, axis=1)

    def _groups(self, sizes: Sequence[int] | None) -> list[int] | None:
        """For each parameter tensor the group it lies in; groups must not cut a tensor."""
        if sizes is None:
            return None
        ends = np.cumsum(sizes)
        last = np.cumsum(self.flat.sizes)
        if ends[-1] != self.flat.size or not set(ends) <= set(last):
            raise BadInput(
                f"groups of sizes {list(sizes)} do not fall on the model's tensors of sizes {self.flat.sizes}: "
                "join whole tensors, as Flat.layer_sizes() does."
            )
        return [int(np.searchsorted(ends, end)) for end in last]

    def _no_norms(self, bound: Bound) -> np.ndarray:
        sizes = getattr(bound, "sizes", None)
        return np.zeros((0,) if sizes is None else (0, len(sizes)))

    def _batch(self, x: Any, y: Any) -> tuple[Tensor, Tensor]:
        device = self.flat.theta.device
        x, y = torch.as_tensor(x, device=device), torch.as_tensor(y, device=device)
        if len(x) != len(y):
            raise BadInput(f"every example needs one target, but there are {len(x)} examples and {len(y)} targets.")
        return x, y


def _by_norm(bound: Bound) -> bool:
    """Whether the bound scales by a function of L2 norms."""
    return bound.norm_kind == "l2" and bound.kind != "coordinates"


def _cut(examples: int, size: int) -> Iterator[slice]:
    """Even slices of about `size`: a short last one would cost nearly as much as a full one."""
    count = max(1, round(examples / size)) if examples else 0
    ends = [examples * i // count for i in range(count + 1)] if count else [0]
    return (slice(a, b) for a, b in zip(ends, ends[1:]))


def _norms(squares: Tensor, groups: list[int] | None) -> np.ndarray:
    values = squares.numpy(force=True)
    if groups is None:
        return np.sqrt(values.sum(1))
    out = np.zeros((len(values), max(groups) + 1))
    for i, group in enumerate(groups):
        out[:, group] += values[:, i]
    return np.sqrt(out)
