"""What an attacker holds: one message, and what is public about who sent it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from sordino.errors import BadInput, one_of, positive, whole

if TYPE_CHECKING:
    from torch import nn

    from sordino.federation.population import Federation

Kind = Literal["gradient", "model-update", "sum"]
Clipped = Literal["", "record", "update"]
Make = Callable[[int], "nn.Module"]


@dataclass(frozen=True, eq=False)
class ObservedMessage:
    """One message after clipping, noise and defence, decoded into the order of `gradients.flat.Flat`.

    A gradient is the mean over `batch` records. A model update is new minus old weights after `local_steps` steps of SGD at
    rate `lr`. A sum is the sum of such updates over `clients` clients, which is all that secure aggregation shows.
    """

    update: np.ndarray
    kind: Kind
    theta: np.ndarray  # the model that the clients started from
    batch: int  # records behind the message
    bound: float | None = None  # None: nothing was clipped
    multiplier: float | None = None  # None: no noise
    local_steps: int = 1
    lr: float = 1.0
    clients: int = 1
    clipped: Clipped = ""  # what the bound is for: each record's gradient, or the whole update
    step_batch: int = 0  # records in one local step; 0: all of them in each
    momentum: float = 0.0  # of the local steps
    defence: str = ""  # the heuristic defence that the plan names

    def __post_init__(self) -> None:
        one_of(("gradient", "model-update", "sum"), kind=self.kind)
        whole(1, batch=self.batch, local_steps=self.local_steps, clients=self.clients)
        positive(lr=self.lr)
        if self.update.shape != self.theta.shape or self.update.ndim != 1:
            raise BadInput(
                f"the message has shape {self.update.shape} and the model {self.theta.shape}; both must be one vector."
            )
        if not np.isfinite(self.update).all():
            raise BadInput(
                "the message holds numbers that are not finite; attack a message of a run that has not diverged."
            )

    @property
    def gradient(self) -> np.ndarray:
        """The message on the scale of one mean gradient; over several local steps, their mean."""
        if self.kind == "gradient":
            return self.update
        return -self.update / (self.lr * self.local_steps * self.clients)

    @property
    def limit(self) -> float | None:
        """The bound on that scale."""
        if self.bound is None or self.kind == "gradient" or self.clipped == "record":
            return self.bound
        return self.bound / (self.lr * self.local_steps * self.clients)


@dataclass(frozen=True, eq=False)
class Victim:
    """What is public about the model and its inputs: the network, the shape of an image, the classes, the range of pixels."""

    make: Make
    shape: tuple[int, int, int]  # channel, height, width
    classes: int
    low: np.ndarray  # smallest model input, by channel [channel, 1, 1]
    high: np.ndarray
    seed: int = 0

    @classmethod
    def of(cls, federation: Federation, make: Make, seed: int = 0) -> Victim:
        """From a population of images; anything else is refused."""
        shape = federation.input_shape
        normalise = federation.normalise
        if len(shape) != 3 or (normalise is not None and normalise.tokens):
            raise BadInput(
                f"the records of {federation.name} have shape {shape}; inversion draws pictures and needs (channel, height, width)."
            )
        raw = federation.x if federation.x is not None else federation.raw(0)[0]
        first, last = (0, 255) if raw.dtype == np.uint8 else _range(federation)
        ends = np.stack([np.full(shape, end, raw.dtype) for end in (first, last)])
        low, high = federation.prepare(ends)[:, :, :1, :1]
        return cls(make, (shape[0], shape[1], shape[2]), federation.classes, low, high, seed)

    @property
    def span(self) -> float:
        """From the smallest to the largest model input, the mean over channels."""
        return float(np.mean(self.high - self.low))

    def pixels(self, x: np.ndarray) -> np.ndarray:
        """Model input as pixels between 0 and 1; what lies outside is cut off."""
        return np.clip((np.asarray(x, np.float64) - self.low) / (self.high - self.low), 0.0, 1.0)


def _range(federation: Federation) -> tuple[float, float]:
    """Of pixels that are stored as numbers: that of the test split, which is public; without one [0, 1], by custom."""
    test = federation.raw_test
    if test is None or not len(test[0]):
        return 0.0, 1.0
    first, last = float(np.min(test[0])), float(np.max(test[0]))
    return (first, last) if last > first else (first, first + 1.0)


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """What an attack made of a message."""

    images: np.ndarray  # model input [batch, channel, height, width]
    labels: np.ndarray
    loss: float  # of the attack itself, by which it chose among its restarts
    steps: int
    seconds: float  # of processor time, also those before an interruption
    notes: tuple[str, ...] = ()
