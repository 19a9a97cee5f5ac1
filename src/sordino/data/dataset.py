"""One data set: training and test arrays, what is done to the numbers before a model sees them, and whose they are.

Arrays are kept as small as they come (bytes for pixels and characters) and may be memory-mapped; `Normalise` is the
public, fixed transformation that turns a batch of them into model input. Its constants are chosen in advance (published
means and deviations), never computed from the private data of a run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sordino.errors import BadInput


@dataclass(frozen=True)
class Normalise:
    """``(x * scale - mean) / std`` with one mean and deviation per channel (axis 1); ``tokens`` only widens to int64.

    With ``fill`` a number that is missing (NaN) becomes 0, after everything else.

    >>> Normalise(scale=0.5, mean=(1.0,), std=(2.0,))(np.full((1, 1, 2), 6, dtype=np.uint8)).tolist()
    [[[1.0, 1.0]]]
    """

    scale: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    tokens: bool = False
    fill: bool = False

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std):
            raise BadInput(f"mean and std need one number per channel, not {len(self.mean)} and {len(self.std)}.")
        if any(not value > 0 for value in self.std):
            raise BadInput(f"every std must be above 0, not {self.std!r}.")

    def __call__(self, x: np.ndarray) -> np.ndarray:
        if self.tokens:
            return np.asarray(x).astype(np.int64)
        out = np.asarray(x).astype(np.float32)
        if self.scale != 1.0:
            out *= np.float32(self.scale)
        if self.mean:
            shape = (1, len(self.mean)) + (1,) * (out.ndim - 2)
            out -= np.asarray(self.mean, dtype=np.float32).reshape(shape)
            out /= np.asarray(self.std, dtype=np.float32).reshape(shape)
        return np.where(np.isnan(out), np.float32(0), out) if self.fill else out

    def to_json(self) -> dict:
        """The steps as plain data, for fingerprints and for the wire."""
        said = {"scale": self.scale, "mean": list(self.mean), "std": list(self.std), "tokens": self.tokens}
        return said | {"fill": True} if self.fill else said

    @classmethod
    def from_json(cls, fields: dict) -> Normalise:
        """The steps that `to_json` described."""
        mean, std = tuple(fields["mean"]), tuple(fields["std"])
        return cls(float(fields["scale"]), mean, std, bool(fields["tokens"]), bool(fields.get("fill", False)))


NO_LABEL = -1
"""Where an example has a label at every position of a sequence: at this one it has none, and nothing is asked of a model."""

PIXELS = Normalise(scale=1 / 255)
TOKENS = Normalise(tokens=True)
GAPS = Normalise(fill=True)  # of a table in which numbers may be missing


def usual(dtype: np.dtype) -> Normalise | None:
    """What arrays of this type are taken to be when nothing is said: bytes are pixels, wider integers are tokens."""
    if dtype == np.uint8:
        return PIXELS
    if dtype.kind in "iu":
        return TOKENS
    return None if dtype == np.float32 else Normalise()


@dataclass(frozen=True)
class Dataset:
    """Training and test data under one name. ``groups`` (one id per training row) makes it a natural federation."""

    name: str
    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray | None
    test_y: np.ndarray | None
    classes: int
    about: str = ""
    normalise: Normalise | None = None
    groups: np.ndarray | None = None
    group_names: tuple[str, ...] | None = None
    test_groups: np.ndarray | None = None
    notes: dict = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.y)
