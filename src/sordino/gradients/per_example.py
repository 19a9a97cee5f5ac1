"""Clipped sums of per-example gradients, for any model, in bounded memory.

    engine = PerExample(model)
    total, norms = engine.clipped_sum(x, y, bounds.Flat(1.0))

`total` is ``sum_i factor_i g_i`` in the order of `sordino.gradients.flat`, where g_i is the gradient of the loss of
example i alone and ``factor_i = bound.factors(|g_i|)``: no example adds more than the bound. An example whose gradient
is not finite adds nothing. How the gradients are computed is the business of `strategies`; the fastest way that fits the
model is chosen at first use, on synthetic input (`select_strategy`), and kept.

What one record adds is a function of this record, the parameters and the bound: batches run in a fixed number of `slots`,
so that neither the number of records nor what the others hold reaches it (`slots`, `independence`). Norms are upper bounds
and sums are taken in double precision (`sums`, `ghost_layers`), so that the sum of n records moves by at most

    C / (1 + SLACK)  +  C n (s + n/s) 2^-52  +  C n s T 2^-41

when one record joins or leaves: its own length, the rounding of a sum of n terms in windows of s slots, and that of layers
whose gradients are not formed (T positions; zero if there are none), where terms are up to 2^11 C long and may cancel.
`SLACK` covers both roundings as long as n <= 2^19 and n s T <= 2^26.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from sordino.errors import BadInput, one_of, whole
from sordino.gradients.flat import Flat
from sordino.gradients.ghost_modules import Unsupported
from sordino.gradients.losses import LOSSES, Loss, cross_entropy, squared_error
from sordino.gradients.select_strategy import Form, select
from sordino.gradients.slots import arranged, windows
from sordino.gradients.strategies import Ghost, Loop, PerExampleGrads, Strategy, Vmap, power_of_two
from sordino.privacy.bounds import Bound, Grouped
from sordino.privacy.randomness import SERVER, stream

__all__ = ["LOSSES", "MODES", "SLACK", "PerExample", "cross_entropy", "squared_error"]

Batch = np.ndarray | Tensor

SLACK = 2.0**-14  # by this share contributions stay under the bound, for the rounding of the sum that they enter
MODES = ("auto", "ghost", "vmap", "loop")
_EVEN = 16  # slots are a multiple of this, so that no window begins inside a vector


class PerExample:
    """Per-example gradients of one model under one loss: a name of `LOSSES`, or a function with one loss per example.

    `mode` forces a strategy; "auto" takes the fastest that fits. `slots` is how many examples run at a time: a public
    number, best near the size of the batches that are to come; by default what fits the memory.
    """

    def __init__(
        self, model: nn.Module | Flat, loss: str | Loss = "cross-entropy", mode: str = "auto", slots: int | None = None
    ) -> None:
        self.flat = model if isinstance(model, Flat) else Flat(model)
        if isinstance(loss, str):
            one_of(LOSSES, loss=loss)
            loss = LOSSES[loss]
        one_of(MODES, mode=mode)
        if slots is not None:
            whole(least=1, slots=slots)
            slots = -(-slots // _EVEN) * _EVEN
        self.loss: Loss = loss
        self._wanted, self._slots = mode, slots
        self._chosen: dict[Form, Strategy] = {}
        self._flags = self._training()
        self._ghost = self._book_keeping()
        # Fixed before any data is seen, so that every worker cuts alike.
        fits = power_of_two(self.flat.size)
        self.chunk = self._ghost.step if self._ghost is not None else fits if slots is None else min(slots, fits)

    @property
    def mode(self) -> str:
        """The strategy in use: `auto` until the first batch."""
        if not self._chosen:
            return self._wanted
        return type(next(reversed(self._chosen.values()))).__name__.lower()

    def assumptions(self) -> tuple[str, ...]:
        """What the bound on one record's share rests on and no proof here covers, for the statement."""
        told = [
            "PyTorch's kernels give each row of a batch of fixed shape bits that depend on this row alone, on one thread; "
            "this was rehearsed on synthetic records."
        ]
        if self.mode in ("vmap", "loop"):
            told = told if self.mode == "vmap" else []
            told.append("The model's and the loss's own code keeps no record outside the model's attributes.")
        elif self._ghost is not None and not any(self._ghost.given is known for known in LOSSES.values()):
            told.append("The loss's own code remembers no record from one call to the next.")
        if any(
            isinstance(m, nn.modules.dropout._DropoutNd) or getattr(m, "dropout", 0) for m in self.flat.model.modules()
        ):
            told.append("What layers draw at random (dropout) stays secret.")
        return tuple(told)

    @property
    def draws(self) -> bool:
        """Whether layers may draw at random, so that a seed matters; softmax regression has none that do."""
        return self._ghost is None or self._ghost.head is None

    def prepare(self, x: Batch, y: Batch) -> str:
        """Choose the strategy for batches of the shapes and types of these; what they hold is not looked at."""
        self._strategy(*self._batch(x, y))
        return self.mode

    def clipped_sum(self, x: Batch, y: Batch, bound: Bound, seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The sum of clipped gradients (float64, flat order) and the norms before clipping.

        With a `seed`, layers that draw at random (dropout) draw the same in every call with this seed.
        """
        total, norms = None, [self._no_norms(bound)]
        for part, lengths in self.clipped_chunks(x, y, bound, seed):
            total = part if total is None else np.add(total, part, out=total)  # the rounding of a sum from zero
            norms.append(lengths)
        return np.zeros(self.flat.size) if total is None else total, np.concatenate(norms)

    def clipped_chunks(
        self, x: Batch, y: Batch, bound: Bound, seed: int | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The same, chunk by chunk: sums (float64) and norms."""
        for passes in self._chunks(x, y, seed):
            yield self._clipped(passes, bound)

    def clipper(self, x: Batch, y: Batch) -> Callable[[Bound], tuple[np.ndarray, np.ndarray]]:
        """`clipped_sum` as a function of the bound: gradients are computed once and clipped as often as it is called.

        All of them are kept at once, so this is for single batches.
        """
        passes = [taken for chunk in self._chunks(x, y, None) for taken in chunk]
        return lambda bound: self._clipped(passes, bound)

    def _clipped(self, passes: Iterable[tuple[PerExampleGrads, int]], bound: Bound) -> tuple[np.ndarray, np.ndarray]:
        clip = self._clip if _by_norm(bound) else self._clip_rows
        parts = [clip(taken, real, bound) for taken, real in passes]
        return sum((part for part, _ in parts[1:]), parts[0][0]), np.concatenate([lengths for _, lengths in parts])

    def norms(self, x: Batch, y: Batch, sizes: Sequence[int] | None = None, seed: int | None = None) -> np.ndarray:
        """Norms of the gradients [n]; given `sizes` of consecutive groups of the flat vector, of each group [n, G]."""
        groups = self._groups(sizes)
        out = [np.zeros((0,) if groups is None else (0, len(sizes or ())))]
        for passes in self._chunks(x, y, seed):
            out += [_norms(taken.squares(), groups)[:real] for taken, real in passes]
        return np.concatenate(out)

    def rows(self, x: Batch, y: Batch, seed: int | None = None) -> np.ndarray:
        """The gradients themselves [n, d] in single precision: for small models."""
        out = [np.zeros((0, self.flat.size), dtype=np.float32)]
        for passes in self._chunks(x, y, seed):
            out += [taken.rows()[:real].numpy(force=True) for taken, real in passes]
        return np.concatenate(out)

    def squared_sums(self, x: Batch, y: Batch) -> np.ndarray:
        """The sum over examples of their squared gradient entries [d]: what a Fisher diagonal is made of.

        An example whose gradient is not finite adds nothing.
        """
        total = np.zeros(self.flat.size)
        for passes in self._chunks(x, y, None):
            for taken, real in passes:
                part = taken.squared_sums(real)
                if not bool(torch.isfinite(part).all()):  # only then norms are needed
                    taken.drop(~torch.isfinite(taken.squares().sum(1)))
                    part = taken.squared_sums(real)
                total += part.numpy(force=True)
        return total

    def _chunks(self, x: Batch, y: Batch, seed: int | None) -> Iterator[Iterator[tuple[PerExampleGrads, int]]]:
        """Chunks in as many passes as the strategy needs, each with the number of its slots that hold examples."""
        x, y = self._batch(x, y)
        if not len(x):
            return
        strategy = self._strategy(x, y)
        for k, start in enumerate(range(0, len(x), self.chunk)):
            window = slice(start, start + self.chunk)
            yield self._passes(strategy, x[window], y[window], None if seed is None else (seed, k))

    def _passes(
        self, strategy: Strategy, x: Tensor, y: Tensor, key: tuple[int, int] | None
    ) -> Iterator[tuple[PerExampleGrads, int]]:
        draws = None if key is None else stream(key[0], key[1], SERVER, "layers")
        for wide_x, wide_y, real in windows(x, y, strategy.step):
            with torch.no_grad(), _seeded(draws), self._unchanged(strategy):
                taken = strategy.run(wide_x, wide_y, real)
            yield taken, real

    def _strategy(self, x: Tensor, y: Tensor) -> Strategy:
        form = Form.of(x, y)
        if self._training() != self._flags:  # a traced model has these flags built in
            self._flags, self._chosen, self._ghost = self._training(), {}, self._book_keeping()
        found = self._chosen.get(form)
        if found is None:
            if self._wanted in ("vmap", "loop"):
                found = (Vmap if self._wanted == "vmap" else Loop)(self.flat, self.loss, self.chunk)
            else:
                found = select(self.flat, self.loss, self._ghost, form, self.chunk, self._wanted == "auto")
            self._chosen[form] = found
        return found

    def _book_keeping(self) -> Ghost | None:
        if self._wanted not in ("auto", "ghost"):
            return None
        try:
            return Ghost(self.flat, self.loss, self._slots)
        except Unsupported as why:
            if self._wanted == "ghost":
                raise BadInput(f"mode 'ghost' does not fit this model ({why}): use mode 'auto'.") from None
            return None

    def _training(self) -> tuple[bool, ...]:
        return tuple(m.training for m in self.flat.model.modules())

    @contextmanager
    def _unchanged(self, strategy: Strategy) -> Iterator[None]:
        """Refuse a model that a pass changes. Book-keeping runs no code of the user's that could."""
        if isinstance(strategy, Ghost):
            yield
            return
        before = self.flat.theta.clone()
        yield
        if not torch.equal(before, self.flat.theta):
            self.flat.theta.copy_(before)
            raise BadInput("the model changes its own weights in the forward pass: leave that to training.")
        self.flat.guard()

    def _clip(self, taken: PerExampleGrads, real: int, bound: Bound) -> tuple[np.ndarray, np.ndarray]:
        groups = self._groups(_sizes(bound))
        lengths = _norms(taken.squares(), groups)
        bad = ~(np.isfinite(lengths) if lengths.ndim == 1 else np.isfinite(lengths).all(1))
        factors = bound.factors(lengths * (1 + SLACK))
        device = self.flat.theta.device
        if bad.any():
            taken.drop(torch.from_numpy(bad).to(device))
            factors[bad] = 0.0
        factors[real:] = 0.0  # free slots
        weights = torch.from_numpy(factors.T.copy()).to(device)
        columns = [weights if groups is None else weights[g] for g in groups or [0] * len(self.flat.slots)]
        return taken.weighted(columns).numpy(force=True), lengths[:real]

    def _clip_rows(self, taken: PerExampleGrads, real: int, bound: Bound) -> tuple[np.ndarray, np.ndarray]:
        """For bounds that are no function of the L2 norm; the norms are of the bound's kind."""
        rows = taken.rows()[:real].numpy(force=True).astype(np.float64)
        total = np.zeros(self.flat.size)
        for row in rows:
            total += bound.clip(row) * (1 - SLACK)
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
        sizes = _sizes(bound)
        return np.zeros((0,) if sizes is None else (0, len(sizes)))

    def _batch(self, x: Batch, y: Batch) -> tuple[Tensor, Tensor]:
        device = self.flat.theta.device
        x, y = torch.as_tensor(x, device=device), torch.as_tensor(y, device=device)
        if len(x) != len(y):
            raise BadInput(f"every example needs one target, but there are {len(x)} examples and {len(y)} targets.")
        return arranged(x), y.contiguous()


def _sizes(bound: Bound) -> tuple[int, ...] | None:
    """The groups of a bound that has some."""
    return bound.sizes if isinstance(bound, Grouped) else None


@contextmanager
def _seeded(draws: np.random.Generator | None) -> Iterator[None]:
    """Layers that draw use torch's global generator: it is seeded for one pass and then put back."""
    if draws is None:
        yield
        return
    generator = torch.default_generator  # torch.manual_seed also visits every accelerator, which takes milliseconds
    state = generator.get_state()
    try:
        generator.manual_seed(int(draws.integers(2**62)))
        yield
    finally:
        generator.set_state(state)


def _by_norm(bound: Bound) -> bool:
    """Whether the bound scales by a function of L2 norms."""
    return bound.norm_kind == "l2" and bound.kind != "coordinates"


def _norms(squares: Tensor, groups: list[int] | None) -> np.ndarray:
    values = squares.numpy(force=True)
    if groups is None:
        return np.sqrt(values.sum(1))
    out = np.zeros((len(values), max(groups) + 1))
    for i, group in enumerate(groups):
        out[:, group] += values[:, i]
    return np.sqrt(out)
