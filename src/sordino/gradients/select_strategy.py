"""Which way to per-example gradients fits a model. Chosen once, from the model and public shapes, on synthetic input.

Private values decide nothing: neither the strategy nor the kernels that run may depend on what the records hold or how many
there are. A batch runs in *slots*, a fixed number of them, the free ones filled with blanks, so that every library sees the
same shapes in every call. Three conditions for a strategy that runs many examples at a time:

1. By construction no example touches another: book-keeping needs a proof (`independence`); `torch.func.vmap` runs a function
   of one example, which has no access to the others. What has neither runs one example at a time.
2. Gradients are those of single backward passes, compared on three examples.
3. A *rehearsal*: the same examples in other slots and with other neighbours give the same norms, to the last bit of a float.
   Libraries do not promise this. Where it fails on this machine, examples run one at a time.

All of it runs on a copy of the model, with weights moved by a little, so that no layer that starts at zero hides another.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sordino.errors import BadInput
from sordino.gradients.flat import Flat, made_up
from sordino.gradients.ghost_modules import Unsupported
from sordino.gradients.independence import Mixes, prove
from sordino.gradients.losses import Loss, OneByOne
from sordino.gradients.slots import arranged
from sordino.gradients.strategies import Ghost, Loop, Strategy, Vmap
from sordino.machine import give_back_memory
from sordino.privacy.randomness import SERVER, stream

_TOLERANCE = 1e-3  # a wrong gradient is wrong by far more, rounding by far less
_MOVED = 0.02  # how far weights are moved for the trial
_SAME = 2.0**-44  # norms are doubles: one last bit of one float in a million would show
_LARGE = 1 << 20  # entries of a model from which its trial copy is worth looking for
_SHIFT = 5  # slots that examples move in the rehearsal: to another place in every vector of 4, 6, 8 or 16


@dataclass(frozen=True)
class Form:
    """What is public of a batch: shapes of one example and its target, and their types."""

    x: tuple[int, ...]
    x_type: torch.dtype
    y: tuple[int, ...]
    y_type: torch.dtype

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> Form:
        return cls(tuple(x.shape[1:]), x.dtype, tuple(y.shape[1:]), y.dtype)


def select(flat: Flat, loss: Loss, ghost: Ghost | None, form: Form, slots: int, others: bool = True) -> Strategy:
    """The fastest strategy that meets the conditions above; without `others` book-keeping or a refusal."""
    try:
        return _select(flat, loss, ghost, form, slots, others)
    finally:
        if flat.size >= _LARGE:
            give_back_memory()


def _select(flat: Flat, loss: Loss, ghost: Ghost | None, form: Form, slots: int, others: bool) -> Strategy:
    trial = Flat(copy.deepcopy(flat.model))
    rng = stream(0, 0, SERVER, "rehearsal")
    _move(trial, rng)
    why = "a layer has no adapter"
    if ghost is not None:
        try:
            return _book_keeping(trial, ghost, form, rng)
        except BadInput:
            raise
        except (Mixes, Unsupported, RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
            why = str(error).split("\n")[0]
    if not others:
        raise BadInput(f"mode 'ghost' does not fit this model ({why}): use mode 'auto'.")
    vmap = Vmap(trial, loss, slots)
    try:
        x, y = synthetic(trial.model, form, vmap.step, rng)
        with _steady(trial.model):
            _refuse_mixing(trial.model, x)
            _rehearse(vmap, x, y)
        return Vmap(flat, loss, slots)
    except BadInput:
        raise
    except Exception:  # whatever torch.func cannot trace, a loop can
        return Loop(flat, loss, slots)


def _move(trial: Flat, rng: np.random.Generator) -> None:
    moves = torch.from_numpy(rng.standard_normal(trial.size, np.float32)).to(trial.theta.device)
    with torch.no_grad():
        trial.theta.add_(moves, alpha=_MOVED)


def _book_keeping(trial: Flat, ghost: Ghost, form: Form, rng: np.random.Generator) -> Ghost:
    x, y = synthetic(trial.model, form, ghost.step, rng)
    twin = Ghost(trial, ghost.given, ghost.step)
    with _steady(trial.model):
        prove(twin.plain, x)
        if isinstance(twin.loss, OneByOne) and isinstance(ghost.loss, OneByOne):
            with torch.no_grad():
                twin.loss.settle(twin.net(x), y)
            ghost.loss.loops = twin.loss.loops
        if not _agrees(twin, x, y):
            raise Unsupported("gradients differ from those of single backward passes")
        try:
            _rehearse(twin, x, y)
        except Unsupported:  # zeros that make products even are a remedy
            twin.tape.even = True
            _rehearse(twin, x, y)
    ghost.tape.even = twin.tape.even
    return ghost


def _refuse_mixing(model: nn.Module, x: Tensor) -> None:
    """Examples would run one at a time, which keeps them apart; but a model that wants them together is better refused."""
    x = x[:3]
    with torch.no_grad():
        together, again = model(x), model(x)
        alone = torch.cat([model(x[i : i + 1]) for i in range(len(x))])
    if torch.equal(together, again) and not torch.allclose(together, alone, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise BadInput(
            "the model mixes the examples of a batch (the output of one changes with the others), so no example can be "
            "protected: replace what works across the batch, for instance by GroupNorm."
        )


def _agrees(ghost: Ghost, x: Tensor, y: Tensor) -> bool:
    """Whether norms and a weighted sum of three examples are those of three backward passes of the model as it is."""
    taken = ghost.run(x, y)
    weights = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    weights[: min(3, len(x))] = torch.tensor([1.0, -0.5, 0.25], dtype=torch.float64)[: len(x)]
    squares = taken.squares()[:3].sum(1)
    taken.drop(weights == 0)
    apart = taken.weighted([weights] * len(ghost.flat.slots))
    del taken
    alone, wanted = Loop(ghost.flat, ghost.given), torch.zeros_like(squares)
    # One at a time, tensor by tensor: in a large model a single gradient fills much memory.
    for i in range(len(squares)):
        one = alone.run(x[i : i + 1], y[i : i + 1])
        wanted[i] = one.squares().sum()
        for record, slots in one.parts:
            for slot, row in zip(slots, record.rows()):
                window = ghost.flat.slots[slot]
                apart[window.offset : window.offset + window.size].sub_(row[0], alpha=float(weights[i]))
        del one, record, row
    limit = _TOLERANCE * wanted.sqrt().max().clamp_min(1e-12)
    close = (squares.sqrt() - wanted.sqrt()).abs() <= limit
    return bool(close.all() and apart.norm() <= limit)


def _rehearse(strategy: Strategy, x: Tensor, y: Tensor) -> None:
    """Raise `Unsupported` unless examples give the same bits in other slots, beside blanks, and beside free slots."""
    moved_x, moved_y = x.roll(_SHIFT, 0), y.roll(_SHIFT, 0)
    moved_x[1::2], moved_y[1::2] = 0, 0
    few_x, few_y, few = x.clone(), y.clone(), (len(x) + 1) // 2
    few_x[few:], few_y[few:] = 0, 0
    with torch.no_grad():
        first, second = strategy.run(x, y).squares(), strategy.run(moved_x, moved_y).squares()
        third = strategy.run(few_x, few_y, few).squares()
    same = [(first.roll(_SHIFT, 0)[::2], second[::2]), (first[:few], third[:few])]
    if not all(bool(((one - other).abs() <= _SAME * one).all()) for one, other in same):
        raise Unsupported("a library gives an example other bits in another slot")


def synthetic(model: nn.Module, form: Form, n: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Examples that no one holds, of the right shapes, and targets that the model can have."""
    x = arranged(made_up(model, form.x, form.x_type, n))
    if not form.y_type.is_floating_point:
        with torch.no_grad(), _steady(model):
            out = model(x[:2])
        classes = out.shape[-1] if out.dim() > 1 else 2
        return x, torch.from_numpy(rng.integers(0, max(1, classes), (n, *form.y))).to(x.device, form.y_type)
    return x, torch.from_numpy(rng.standard_normal((n, *form.y), np.float32)).to(x.device, form.y_type)


_DRAWS = {"dropout", "alpha_dropout", "feature_alpha_dropout", "feature_dropout", "native_dropout"}
_DRAWS |= {"dropout1d", "dropout2d", "dropout3d"}


class _NoDropout(TorchFunctionMode):
    """Dropout passes everything on: its draws belong to slots, and examples change theirs in a rehearsal."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "").rstrip("_") in _DRAWS and args and isinstance(args[0], Tensor):
            return args[0] * 1
        return func(*args, **(kwargs or {}))


@contextmanager
def _steady(model: nn.Module) -> Iterator[None]:
    """Without dropout, and the generator left as it was."""
    state = torch.random.get_rng_state()
    stacks = [(m, m.dropout) for m in model.modules() if isinstance(m, nn.RNNBase)]
    for stack, _ in stacks:
        stack.dropout = 0.0
    try:
        with _NoDropout():
            yield
    finally:
        torch.random.set_rng_state(state)
        for stack, rate in stacks:
            stack.dropout = rate
