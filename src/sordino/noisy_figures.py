"""How good a model is on held-out private records: what each record adds to one noisy sum, and what the sum says.

A record adds a vector of length at most 1, whatever it holds:

    classification   (+-1, cell) / sqrt 2    +1 if the model is right, else -1; a 1 in the cell (true class, right or wrong)
    multi-label      2 r - 1                 r: the share of its labels that are right
    regression       (2 e - 1, 2 t - 1) / sqrt 2   e: the absolute error, t: that of naming the middle; both over the public span

Centred numbers cost half the noise of counts: without the record its entry is 0, which lies in the middle. `read` divides by
the number of records (or clients) that are held out, which is public, and never by a count of the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from sordino.data.schema import CLASSIFICATION, MULTI_LABEL, Scale
from sordino.errors import BadInput
from sordino.noisy_spread import HALF, NoisySpread, Spreading

SURE = 10.0  # a class is judged if its count stands out of the noise by so many deviations: its recall is then off by a tenth
FAR = 4.0  # deviations from the mean at which a target without a range is cut off


@dataclass(frozen=True)
class ClassFigure:
    """One class among the held-out records; both numbers carry noise."""

    name: str
    recall: float | None  # None: too few records of it to tell
    share: float


@dataclass(frozen=True)
class NoisyFigures:
    """Figures on `tested` held-out units, with noise. `noise` is the deviation of the noise in `accuracy` (or `mae`)."""

    task: str
    unit: str
    tested: int
    noise: float
    interval: tuple[float, float]  # of the first figure: noise and chance of the draw together, 95%
    accuracy: float | None = None
    majority: float | None = None
    majority_class: str | None = None
    balanced_accuracy: float | None = None
    classes: tuple[ClassFigure, ...] = ()
    mae: float | None = None
    mae_of_middle: float | None = None  # of always naming the middle of the declared range, or the declared mean
    between: NoisySpread | None = None  # how far clients lie apart, where the plan asks for it
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The figures that there are, by name."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}


class Measure:
    """What is measured for one task; plain settings, the same at every holder."""

    def __init__(
        self, task: str, names: Sequence[str], scale: Scale | None = None, spreading: Spreading | None = None
    ) -> None:
        self.task, self.names, self.scale, self.spreading = task, tuple(names), scale, spreading
        if spreading is not None and task not in (CLASSIFICATION, MULTI_LABEL):
            raise BadInput(
                f"fairness noisy compares the accuracies of clients, and {task} has none; leave fairness out."
            )
        if task not in (CLASSIFICATION, MULTI_LABEL) and self.limit is None:
            raise BadInput(
                "a held-out error needs a public span of the label, which bounds what one record adds: declare label_scale in the "
                "schema (range, or mean and std), or give a public test file."
            )

    @property
    def limit(self) -> float | None:
        """How far from the middle a target counts, in the model's units."""
        if self.scale is None or self.scale.as_is:
            return None
        return 1.0 if self.scale.range is not None else FAR

    @property
    def length(self) -> int:
        """How many numbers each tested unit adds to the sum."""
        return self._base + (0 if self.spreading is None else self.spreading.length)

    @property
    def _base(self) -> int:
        if self.task == CLASSIFICATION:
            return 1 + 2 * len(self.names)
        return 1 if self.task == MULTI_LABEL else 2

    def contributions(self, scores: np.ndarray, y: np.ndarray, client: int = 0) -> np.ndarray:
        """A row of at most length 1 for each record of a client. In the example unit row i follows from row i of both arguments."""
        rows = self._rows(scores, y)
        return rows if self.spreading is None else self.spreading.widened(rows, rows[:, 0] / self._first, client)

    @property
    def _first(self) -> float:
        """What the first entry of a row is, if the record is right."""
        return 1.0 if self.task == MULTI_LABEL else HALF

    def _rows(self, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
        n = len(y)
        rows = np.zeros((n, self._base))
        if n == 0:
            return rows
        if self.task == CLASSIFICATION:
            right = scores.argmax(1) == y  # of scores that are not finite the first one: no record is left out
            rows[:, 0] = np.where(right, HALF, -HALF)
            rows[np.arange(n), 1 + 2 * np.asarray(y) + right] = HALF
        elif self.task == MULTI_LABEL:
            rows[:, 0] = 2 * ((scores > 0) == (y > 0.5)).mean(1) - 1
        else:
            rows[:] = self._errors(np.asarray(scores, np.float64), np.asarray(y, np.float64)) * HALF
        return rows

    def _errors(self, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
        limit = self.limit
        assert limit is not None
        y = np.clip(y.reshape(len(y), -1), -limit, limit)
        guess = np.clip(np.nan_to_num(scores.reshape(len(y), -1)[:, : y.shape[1]], nan=limit), -limit, limit)
        off, middle = np.abs(guess - y).mean(1) / (2 * limit), np.abs(y).mean(1) / limit
        return np.stack([2 * off - 1, 2 * middle - 1], axis=1)

    # ---- what the noisy mean says ------------------------------------------------------------------------------------------

    def read(self, mean: np.ndarray, noise: float, tested: int, unit: str) -> NoisyFigures:
        """From the noisy mean contribution; `noise`: the deviation of the noise in each of its entries."""
        if self.spreading is not None:
            mean, noise = mean / HALF, noise / HALF
            base, more = mean[: self._base], mean[self._base :]
            found = self._read(base, noise, tested, unit)
            first = float(base[0]) / self._first, noise / self._first
            return replace(found, between=self.spreading.read(*first, more, noise, tested))
        return self._read(mean, noise, tested, unit)

    def _read(self, mean: np.ndarray, noise: float, tested: int, unit: str) -> NoisyFigures:
        if self.task == CLASSIFICATION:
            return self._classes(mean / HALF, noise / HALF, tested, unit)
        if self.task == MULTI_LABEL:
            accuracy = _within((1 + mean[0]) / 2)
            return NoisyFigures(self.task, unit, tested, noise / 2, _interval(accuracy, noise / 2, tested), accuracy)
        return self._numbers(mean / HALF, noise / HALF, tested, unit)

    def _classes(self, mean: np.ndarray, noise: float, tested: int, unit: str) -> NoisyFigures:
        accuracy, off = _within((1 + mean[0]) / 2), noise / 2
        wrong, right = mean[1::2], mean[2::2]
        shares = wrong + right
        sure = shares > SURE * noise * math.sqrt(2)
        each = tuple(
            ClassFigure(name, _within(right[c] / shares[c]) if sure[c] else None, _within(shares[c]))
            for c, name in enumerate(self.names)
        )
        recalls = [one.recall for one in each if one.recall is not None]
        commonest = int(shares.argmax())
        majority = _within(shares[commonest])
        said = []
        if sure[commonest] and accuracy - majority <= 0:
            said.append(
                f"the model is right in about {accuracy:.1%} of the held-out records, and a model that "
                f"always names {self.names[commonest]} is right in about {majority:.1%}."
            )
        return NoisyFigures(
            self.task,
            unit,
            tested,
            off,
            _interval(accuracy, off, tested),
            accuracy,
            majority if sure[commonest] else None,
            self.names[commonest] if sure[commonest] else None,
            float(np.mean(recalls)) if len(recalls) == len(each) else None,
            each,
            warnings=tuple(said),
        )

    def _numbers(self, mean: np.ndarray, noise: float, tested: int, unit: str) -> NoisyFigures:
        limit, scale = self.limit, self.scale
        assert limit is not None and scale is not None
        width = float(
            scale.back(np.array(2 * limit)) - scale.back(np.array(0.0))
        )  # the public span, in the table's units
        share, off = _within((1 + mean[0]) / 2), noise / 2
        mae, middle = width * share, width / 2 * _within((1 + mean[1]) / 2)
        said = []
        if mae >= middle:
            said.append(
                f"the model is off by about {mae:.4g} on the held-out records, and a model that always names the middle is off by {middle:.4g}."
            )
        low, high = _interval(share, off, tested)
        return NoisyFigures(
            self.task,
            unit,
            tested,
            width * off,
            (width * low, width * high),
            mae=mae,
            mae_of_middle=middle,
            warnings=tuple(said),
        )


def _within(share: float) -> float:
    return float(np.clip(share, 0.0, 1.0))


def _interval(share: float, noise: float, tested: int) -> tuple[float, float]:
    """95%, from the noise and from the draw of so many records; a share of anything within 0 and 1 varies no more."""
    chance = max(share * (1 - share), 1 / (4 * (tested + 1))) / max(tested, 1)
    far = 1.96 * math.sqrt(noise**2 + chance)
    return max(0.0, share - far), min(1.0, share + far)
