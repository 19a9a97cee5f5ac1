"""One contiguous vector behind a model: what is clipped, summed, sent and noised.

Every trainable parameter becomes a view into one float32 buffer `theta`, and its gradient a view into `grad`, so that
an update, its norm and an optimiser step are single operations on one vector, and loading a model is one copy.

The order of the vector is part of the protocol and depends on the model alone, never on the device or the machine:
parameters in the order of ``model.named_parameters()``, trainable ones only, each in row-major order of its shape,
except that the weight of a two-dimensional convolution is stored (out, height, width, in). That is the physical order
of PyTorch's channels-last format: the weight *is* channels-last while the vector stays contiguous, and on processors
channels-last convolutions and poolings are several times faster. Nothing else notices: ``state_dict`` and the shapes
stay as they were.

Only this vector is ever protected. Anything else that data can change while training, such as the running statistics
of BatchNorm, would stay in the client's model without noise. `check` refuses such models and names the remedy, `Flat.guard`
refuses to go on once it happened, and `Flat.restore` puts back all but the vector. Models are looked at on a copy and with
synthetic input: a layer that initialises itself from its first batch must not see a record.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sordino.errors import BadInput, in_short
from sordino.gradients.state import State
from sordino.privacy.randomness import SERVER, stream

_CHANNELS_LAST = (nn.Conv2d, nn.ConvTranspose2d)


@dataclass(frozen=True)
class Slot:
    """Where one parameter lies in the vector."""

    name: str
    layer: str  # the module that owns it; weight and bias of one module share a layer
    offset: int
    size: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def view(self, vector: Tensor) -> Tensor:
        """The parameter-shaped window of `vector` (no copy)."""
        return vector.as_strided(self.shape, self.strides, vector.storage_offset() + self.offset)


def check(model: nn.Module, shape: tuple[int, ...] | None = None, dtype: torch.dtype = torch.float32) -> None:
    """Refuse a model whose state would leave the client unprotected, or that has nothing to train.

    With the `shape` of one example, a copy of the model is also run on synthetic input to find state that training changes.
    """
    for name, module in model.named_modules():
        kind = type(module).__name__
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise BadInput(
                f"layer {name!r} is {kind}, which mixes examples and keeps statistics of private data without noise: "
                "use GroupNorm or LayerNorm instead."
            )
        if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:
            raise BadInput(
                f"layer {name!r} is {kind} with running statistics, which would leave the client without noise: "
                "use GroupNorm, or track_running_stats=False."
            )
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.max_norm is not None:
            raise BadInput(
                f"layer {name!r} is {kind} with max_norm, which changes weights in the forward pass, before clipping: "
                "leave max_norm out."
            )
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.UninitializedParameter):
            raise BadInput(f"parameter {name!r} has no shape yet: run the model on one batch before training.")
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise BadInput(f"parameter {name!r} is {parameter.dtype}: call model.float(), training is in float32.")
    if not any(p.requires_grad for p in model.parameters()):
        raise BadInput(f"the model {type(model).__name__} has no trainable parameters: set requires_grad on some.")
    if shape is not None:
        _check_state(model, shape, dtype)


def check_output(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, classes: int, positions: tuple[int, ...] = ()
) -> Tensor:
    """Refuse a model that does not take examples of this shape or does not give `classes` outputs. It is not changed.

    `positions`: the shape of an example's labels, where it has more than one. The result is what the model gives for two made-up
    examples.
    """
    check(model)  # layers that no run may have are named before one of them fails on a single example
    trial = copy.deepcopy(model).train()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            out = trial(made_up(trial, shape, dtype, 2))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise BadInput(
            f"the model does not take examples of shape {tuple(shape)} ({in_short(error)}); choose one that fits."
        ) from None
    if not isinstance(out, Tensor):
        raise BadInput(
            f"the model gives a {type(out).__name__}; it must give a tensor of {classes} scores per example."
        )
    if out.ndim < 2 or tuple(out.shape[1:-1]) != positions or out.shape[-1] < classes:
        where = f" at each of {positions[0]} positions" if positions else ""
        wanted = f"outputs of shape {(*positions, classes)}" if positions else f"{classes} outputs"
        raise BadInput(
            f"the model gives outputs of shape {tuple(out.shape[1:])} and the data has {classes} classes{where}; give it {wanted}."
        )
    return out


def made_up(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, n: int) -> Tensor:
    """Synthetic examples: standard normal numbers, or whole numbers that every embedding of the model has room for."""
    rng = stream(0, 0, SERVER, "synthetic")
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    if dtype.is_floating_point or dtype.is_complex:
        return torch.from_numpy(rng.standard_normal((n, *shape), np.float32)).to(device, dtype)
    rooms = [m.num_embeddings for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))]
    return torch.from_numpy(rng.integers(0, min(rooms, default=2), (n, *shape))).to(device, dtype)


def _check_state(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    trial = copy.deepcopy(model).train()
    before = State(trial, ())
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        trial(made_up(trial, shape, dtype, 2))
    name = before.changed()
    if name is not None:
        raise BadInput(_changes(trial, name, "changes"))


def _changes(model: nn.Module, name: str, verb: str) -> str:
    kind = (
        "buffer"
        if name in dict(model.named_buffers())
        else "parameter"
        if name in dict(model.named_parameters())
        else "attribute"
    )
    return (
        f"{kind} {name!r} {verb} while training and would leave the client without noise: "
        "use a layer without such state (GroupNorm instead of BatchNorm)."
    )


class Flat:
    """A model whose trainable parameters live in one vector.

    `theta` and `grad` are contiguous float32 tensors; parameters and their ``.grad`` are views into them. A buffer
    may be passed in as `theta` (for instance in memory shared between processes); its content is replaced by the
    model's values.
    """

    def __init__(self, model: nn.Module, theta: Tensor | None = None) -> None:
        check(model)
        self.model = model
        self.slots = layout(model)
        self.size = sum(s.size for s in self.slots)
        trainable = [p for p in model.parameters() if p.requires_grad]
        device = trainable[0].device
        if any(p.device != device for p in trainable):
            raise BadInput("the model's parameters lie on several devices: move it to one with model.to(device).")
        if theta is None:
            theta = torch.empty(self.size, dtype=torch.float32, device=device)
        elif theta.dtype != torch.float32 or theta.shape != (self.size,) or not theta.is_contiguous():
            raise BadInput(f"theta must be a contiguous float32 vector of {self.size}, not {list(theta.shape)}.")
        self.theta = theta
        self.grad = torch.zeros(self.size, dtype=torch.float32, device=theta.device)
        self.parameters = trainable
        for parameter, window in zip(trainable, self.split(self.theta)):
            window.copy_(parameter.detach())
            parameter.data = window
        self.bind_grad()
        self._state = State(model, trainable)

    def bind_grad(self) -> None:
        """Point every ``.grad`` at its window of `grad` (again, should something have set them to None)."""
        for parameter, window in zip(self.parameters, self.split(self.grad)):
            parameter.grad = window

    def load(self, vector: Tensor | np.ndarray) -> None:
        """Set all parameters: one copy."""
        source = torch.as_tensor(vector)
        if source.shape != (self.size,):
            raise BadInput(f"the model has {self.size} parameters to train, the vector has shape {list(source.shape)}.")
        self.theta.copy_(source)

    def vector(self) -> Tensor:
        """A copy of all parameters."""
        return self.theta.clone()

    def split(self, vector: Tensor) -> list[Tensor]:
        """Parameter-shaped windows of any vector in this order (no copy)."""
        return [slot.view(vector) for slot in self.slots]

    def named(self, vector: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Pairs of parameter name and window of `vector`."""
        for slot in self.slots:
            yield slot.name, slot.view(vector)

    @property
    def names(self) -> list[str]:
        return [s.name for s in self.slots]

    @property
    def sizes(self) -> list[int]:
        """Entries of each parameter tensor, in order."""
        return [s.size for s in self.slots]

    def layer_sizes(self) -> list[int]:
        """Entries of each layer (a module's own parameters together), in order: the groups of grouped clipping."""
        return [sum(s.size for s in self.slots if s.layer == layer) for layer in self._layers()]

    def layer_of(self) -> list[int]:
        """For each parameter tensor, the index of its layer."""
        layers = self._layers()
        return [layers.index(s.layer) for s in self.slots]

    def _layers(self) -> list[str]:
        return list(dict.fromkeys(s.layer for s in self.slots))

    def guard(self) -> None:
        """Refuse to go on if training changed anything but `theta`: it would be private and without noise.

        Frozen parameters, buffers and the attributes of modules are compared with what they were when this was made.
        """
        for parameter, slot in zip(self.parameters, self.slots):
            if parameter.data_ptr() != self.theta.data_ptr() + 4 * slot.offset:
                raise BadInput(f"parameter {slot.name!r} was replaced while training: change parameters in place.")
        name = self._state.changed()
        if name is not None:
            raise BadInput(_changes(self.model, name, "changed"))

    def restore(self) -> None:
        """Put everything but `theta` back to what it was when this was made, so that no more than `theta` is saved."""
        for parameter, window in zip(self.parameters, self.split(self.theta)):
            if parameter.data_ptr() != window.data_ptr():
                parameter.data = window
        self._state.restore()


def layout(model: nn.Module) -> list[Slot]:
    """The vector's layout: a function of the model's structure alone."""
    reordered = {
        id(m.weight) for m in model.modules() if isinstance(m, _CHANNELS_LAST) and isinstance(m.weight, nn.Parameter)
    }
    slots: list[Slot] = []
    offset = 0
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        shape = tuple(parameter.shape)
        size = math.prod(shape)
        strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
        if id(parameter) in reordered:
            _, i, h, w = shape
            strides = (i * h * w, 1, w * i, i)
        slots.append(Slot(name, name.rpartition(".")[0], offset, size, shape, strides))
        offset += size
    return slots
