"""Bounds: the object that clips is the object that says how much noise is due.

A bound limits what one unit can add to a sum. It clips a contribution, knows the sensitivity of the sum (C under
add-remove and zero-out, 2C under replace-one), and gives the standard deviation that a noise multiplier z stands for: z
times the bound, whatever the relation. Accounting charges replace-one for its doubled sensitivity.

    Flat         v min(1, C/|v|)                       Abadi et al. 2016
    Automatic    v C/(|v| + gamma)                      Bu et al. 2023: every unit at nearly the same length
    Grouped      each public group of coordinates to its own C_g, noise split so that its total energy is least
    Coordinates  w = (v - a)/b clipped to length 1      Pichapati et al. 2019 (AdaCliP), section 4
    L1           v min(1, C/|v|_1)                      for Laplace noise

Clipping is exact (`clipping`): no norm exceeds its bound, as computed. A contribution that is not finite counts as zero.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sordino.errors import BadInput, positive, whole
from sordino.privacy.clipping import flat_factors, flat_vector, in_double, shrink
from sordino.privacy.vocabulary import Relation


class Bound(ABC):
    """What every bound can do. Immutable; two bounds are equal when they clip alike."""

    kind: ClassVar[str]
    norm_kind: ClassVar[str] = "l2"
    honest: ClassVar[bool] = (
        True  # False: its noise does not match its clipping, as some papers print it; never private
    )

    @property
    @abstractmethod
    def size(self) -> float:
        """The longest one contribution can be: the threshold C_t of logs and plans."""

    @abstractmethod
    def clip(self, v: np.ndarray) -> np.ndarray:
        """A new float64 vector within the bound. Not finite: zeros."""

    @abstractmethod
    def factors(self, norms: np.ndarray) -> np.ndarray:
        """The weight of each unit whose gradient has this norm; 0 where the norm is not finite."""

    def sensitivity(self, relation: Relation) -> float:
        """How far the clipped sum moves between neighbours."""
        return self.size * (2.0 if Relation(relation) is Relation.REPLACE_ONE else 1.0)

    def std(self, multiplier: float) -> float | np.ndarray:
        """Standard deviation of the noise on the sum, for every coordinate or for each."""
        return multiplier * self.size

    def decode(self, noisy_mean: np.ndarray) -> np.ndarray:
        """From the space in which the sum was taken back to the space of updates."""
        return noisy_mean

    @abstractmethod
    def to_json(self) -> dict[str, object]:
        """Plain data, for logs and for the wire."""


@dataclass(frozen=True)
class Flat(Bound):
    """The L2 norm of the whole vector."""

    bound: float
    kind: ClassVar[str] = "flat"

    def __post_init__(self) -> None:
        positive(bound=_number(self, "bound"))

    @property
    def size(self) -> float:
        return self.bound

    def clip(self, v: np.ndarray) -> np.ndarray:
        return shrink(v, lambda norm: flat_factors(norm, self.bound))

    def factors(self, norms: np.ndarray) -> np.ndarray:
        return flat_factors(norms, self.bound)

    def to_json(self) -> dict[str, object]:
        return {"kind": self.kind, "bound": self.bound}


@dataclass(frozen=True)
class Automatic(Bound):
    """Automatic clipping: every contribution is scaled to a length just under the bound."""

    bound: float = 1.0
    gamma: float = 0.01
    kind: ClassVar[str] = "automatic"

    def __post_init__(self) -> None:
        positive(bound=_number(self, "bound"), gamma=_number(self, "gamma"))

    @property
    def size(self) -> float:
        return self.bound

    def clip(self, v: np.ndarray) -> np.ndarray:
        return shrink(v, self.factors)

    def factors(self, norms: np.ndarray) -> np.ndarray:
        norms, hair = in_double(norms)
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(norms), hair * self.bound / (norms + self.gamma), 0.0)

    def to_json(self) -> dict[str, object]:
        return {"kind": self.kind, "bound": self.bound, "gamma": self.gamma}


@dataclass(frozen=True)
class Grouped(Bound):
    """Public groups of consecutive coordinates (layers, say), each with its own bound."""

    sizes: tuple[int, ...]
    bounds: tuple[float, ...]
    kind: ClassVar[str] = "grouped"

    def __post_init__(self) -> None:
        sizes, bounds = (tuple(x.tolist() if isinstance(x, np.ndarray) else x) for x in (self.sizes, self.bounds))
        if not sizes or len(sizes) != len(bounds):
            raise BadInput(f"Grouped clipping needs one bound for each group, not {len(bounds)} for {len(sizes)}.")
        for length, bound in zip(sizes, bounds):
            whole(size=length)  # type: ignore[arg-type]
            positive(bound=bound)
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "bounds", tuple(map(float, bounds)))

    @property
    def size(self) -> float:
        return math.hypot(*self.bounds)

    def clip(self, v: np.ndarray) -> np.ndarray:
        v = flat_vector(v, sum(self.sizes))
        if not np.isfinite(v).all():
            return np.zeros_like(v)
        parts = np.split(v, np.cumsum(self.sizes)[:-1])
        return np.concatenate([Flat(bound).clip(part) for part, bound in zip(parts, self.bounds)])

    def factors(self, norms: np.ndarray) -> np.ndarray:
        """From norms of shape [units, groups]. A unit with one norm that is not finite counts as zero in all groups."""
        if np.ndim(norms) < 1 or np.shape(norms)[-1] != len(self.bounds):
            raise BadInput(f"Grouped clipping needs {len(self.bounds)} norms per unit, not shape {np.shape(norms)}.")
        factors = flat_factors(norms, np.array(self.bounds))
        return factors * np.isfinite(norms).all(axis=-1, keepdims=True)

    def std(self, multiplier: float) -> np.ndarray:
        """The split with sum (C_g/sigma_g)^2 = z^-2 and least sum d_g sigma_g^2: sigma_g^2 ~ C_g/sqrt(d_g)."""
        sizes, bounds = np.array(self.sizes, dtype=float), np.array(self.bounds)
        sigma = multiplier * np.sqrt(np.sum(bounds * np.sqrt(sizes)) * bounds / np.sqrt(sizes))
        return np.repeat(sigma, self.sizes)

    def to_json(self) -> dict[str, object]:
        return {"kind": self.kind, "sizes": list(self.sizes), "bounds": list(self.bounds)}


@dataclass(frozen=True)
class EvenlyNoised(Grouped):
    """Groups that are clipped apart and noised alike: their joint norm is at most `size`, and so is that of a flat bound."""

    kind: ClassVar[str] = "evenly-noised"

    def std(self, multiplier: float) -> np.ndarray:
        return np.full(sum(self.sizes), multiplier * self.size)


@dataclass(frozen=True, eq=False)
class Coordinates(Bound):
    """A public centre and a public scale for each coordinate; sums and noise live in the scaled space, where C = 1."""

    mean: np.ndarray
    scale: np.ndarray
    kind: ClassVar[str] = "coordinates"

    def __post_init__(self) -> None:
        mean, scale = (np.array(x, dtype=np.float64) for x in (self.mean, self.scale))
        if mean.ndim != 1 or mean.shape != scale.shape or not mean.size:
            raise BadInput(f"Each coordinate needs a centre and a scale, not shapes {mean.shape} and {scale.shape}.")
        if not (np.isfinite(mean).all() and np.isfinite(scale).all() and (scale > 0).all()):
            raise BadInput("Centres must be finite and scales finite and above 0.")
        for name, array in (("mean", mean), ("scale", scale)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def size(self) -> float:
        return 1.0

    def clip(self, v: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            w = (flat_vector(v, self.mean.size) - self.mean) / self.scale
        return Flat(1.0).clip(w)

    def factors(self, norms: np.ndarray) -> np.ndarray:
        raise BadInput("Clipping after a change of coordinates is no function of the norm; clip whole vectors instead.")

    def decode(self, noisy_mean: np.ndarray) -> np.ndarray:
        return self.scale * noisy_mean + self.mean

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Coordinates):
            return NotImplemented
        return np.array_equal(self.mean, other.mean) and np.array_equal(self.scale, other.scale)

    def __hash__(self) -> int:
        return hash((self.mean.tobytes(), self.scale.tobytes()))

    def to_json(self) -> dict[str, object]:
        return {"kind": self.kind, "mean": self.mean.tolist(), "scale": self.scale.tolist()}


@dataclass(frozen=True)
class L1(Bound):
    """The sum of absolute values: the norm that Laplace noise protects."""

    bound: float
    kind: ClassVar[str] = "l1"
    norm_kind: ClassVar[str] = "l1"

    def __post_init__(self) -> None:
        positive(bound=_number(self, "bound"))

    @property
    def size(self) -> float:
        return self.bound

    def clip(self, v: np.ndarray) -> np.ndarray:
        return shrink(v, self.factors, order=1)

    def factors(self, norms: np.ndarray) -> np.ndarray:
        """From L1 norms."""
        return flat_factors(norms, self.bound)

    def scale(self, multiplier: float) -> float:
        """The scale b of the Laplace noise."""
        return multiplier * self.bound

    def std(self, multiplier: float) -> float:
        """The standard deviation of Laplace noise of that scale: b times the root of 2."""
        return math.sqrt(2.0) * self.scale(multiplier)

    def to_json(self) -> dict[str, object]:
        return {"kind": self.kind, "bound": self.bound}


def from_json(data: dict[str, object]) -> Bound:
    """The bound that `to_json` described."""
    kinds = _kinds(Bound)  # type: ignore[type-abstract]
    kind, fields = data.get("kind"), {name: value for name, value in data.items() if name != "kind"}
    if kind not in kinds:
        raise BadInput(f"kind of bound must be one of {', '.join(kinds)}, not {kind!r}.")
    try:
        return kinds[kind](**fields)
    except TypeError:
        raise BadInput(f"A bound of kind {kind} cannot have the fields {', '.join(fields)}.") from None


def _kinds(family: type[Bound]) -> dict[str, type[Bound]]:
    """Every kind of bound there is, those of single rules included."""
    found: dict[str, type[Bound]] = {}
    for made in family.__subclasses__():
        if "kind" in vars(made):  # a subclass that gives itself no name stands for nothing that is sent or stored
            found[made.kind] = made
        found |= _kinds(made)
    return found


def _number(bound: Bound, name: str) -> float:
    """The field as a Python float; bounds come from numpy as often as not."""
    value = getattr(bound, name)
    if isinstance(value, (np.floating, np.integer)) or (isinstance(value, int) and not isinstance(value, bool)):
        value = float(value)
        object.__setattr__(bound, name, value)
    return value
