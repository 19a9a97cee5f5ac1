"""How good a model is on public test data, beyond its accuracy: what a guess would reach, and how each class fares.

All figures are functions of the released model and of public examples, so they cost nothing. A model that is no better than
naming the most frequent class, or that names one class only, is called so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from sordino.data.dataset import NO_LABEL
from sordino.data.schema import CLASSIFICATION, MULTI_LABEL, Scale

NAME = "evaluation.json"
BINS = 10  # of the calibration error


@dataclass(frozen=True)
class ClassScore:
    """One class, or one of several labels."""

    name: str
    precision: float | None  # None: it was never predicted
    recall: float | None  # None: the test set has none of it
    examples: int
    predicted: int


@dataclass(frozen=True)
class Figures:
    """Figures on `examples` public test examples. What a task does not have is None."""

    task: str
    examples: int
    accuracy: float | None = None
    majority: float | None = None  # accuracy of always naming the most frequent class
    majority_class: str | None = None
    balanced_accuracy: float | None = None
    calibration_error: float | None = None
    classes: tuple[ClassScore, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()  # rows: true class; columns: predicted
    rmse: float | None = None
    mae: float | None = None
    r2: float | None = None
    rmse_of_mean: float | None = None  # of always naming the mean
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The figures that there are, by name."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}


def evaluate(scores: np.ndarray, y: np.ndarray, task: str, names: Sequence[str], scale: Scale | None = None) -> Figures:
    """`scores`: what the model gives for each example; `y`: labels as the loss takes them.

    Of sequences with a label at every position each labelled position counts like an example of its own.
    """
    if task == CLASSIFICATION and np.ndim(y) > 1:
        known = np.asarray(y) != NO_LABEL
        found = _classes(np.asarray(scores[known], np.float64), np.asarray(y)[known], names, "positions")
        return replace(found, examples=len(y))
    scores = np.asarray(scores, np.float64)
    if task == CLASSIFICATION:
        return _classes(scores, np.asarray(y), names)
    return _labels(scores, np.asarray(y), names) if task == MULTI_LABEL else _numbers(scores, np.asarray(y), scale)


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Softmax of each row."""
    shifted = np.exp(scores - scores.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def _classes(scores: np.ndarray, y: np.ndarray, names: Sequence[str], each_one: str = "examples") -> Figures:
    k = len(names)
    guess = scores.argmax(1)
    counts = np.zeros((k, max(k, scores.shape[1])), np.int64)
    np.add.at(counts, (y, guess), 1)
    true, predicted, right = counts.sum(1), counts.sum(0), counts.diagonal()
    each = tuple(
        ClassScore(
            str(names[c]), _share(right[c], predicted[c]), _share(right[c], true[c]), int(true[c]), int(predicted[c])
        )
        for c in range(k)
    )
    recalls = [one.recall for one in each if one.recall is not None]
    accuracy, commonest = float(right.sum() / len(y)), int(true.argmax())
    majority = float(true.max() / len(y))
    said = []
    if len(np.unique(guess)) == 1 and len(y) > 1:
        said.append(
            f"the model names one class only ({names[int(guess[0])] if guess[0] < k else guess[0]}): it has learned nothing."
        )
    elif accuracy <= majority:
        said.append(
            f"the model is right in {accuracy:.1%} of the test {each_one}, and always naming {names[commonest]} would be in {majority:.1%}."
        )
    return Figures(
        CLASSIFICATION,
        len(y),
        accuracy,
        majority,
        str(names[commonest]),
        float(np.mean(recalls)),
        _calibration(probabilities(scores), guess == y),
        each,
        tuple(tuple(int(n) for n in row) for row in counts),
        warnings=tuple(said),
    )


def _labels(scores: np.ndarray, y: np.ndarray, names: Sequence[str]) -> Figures:
    guess, true = scores > 0, y > 0.5
    each = tuple(
        ClassScore(
            str(name),
            _share((guess[:, c] & true[:, c]).sum(), guess[:, c].sum()),
            _share((guess[:, c] & true[:, c]).sum(), true[:, c].sum()),
            int(true[:, c].sum()),
            int(guess[:, c].sum()),
        )
        for c, name in enumerate(names)
    )
    accuracy = float((guess == true).mean())
    majority = float(np.maximum(true.mean(0), 1 - true.mean(0)).mean())
    said = []
    if accuracy <= majority:
        said.append(
            f"the model has {accuracy:.1%} of all labels right, and a model that always names the more frequent value has {majority:.1%} right."
        )
    return Figures(MULTI_LABEL, len(y), accuracy, majority, classes=each, warnings=tuple(said))


def _numbers(scores: np.ndarray, y: np.ndarray, scale: Scale | None) -> Figures:
    """In the units of the table, where the schema scales the target."""
    y = y.reshape(len(y), -1)
    scores = scores.reshape(len(y), -1)[:, : y.shape[1]]
    if scale is not None:
        scores, y = scale.back(scores), scale.back(y.astype(np.float64))
    wrong = scores - y
    rmse, spread = math.sqrt(float(np.square(wrong).mean())), math.sqrt(float(y.var(0).mean()))
    said = []
    if rmse >= spread:
        said.append(
            f"the model is off by {rmse:.4g} (root mean square), and a model that always names the mean is off by {spread:.4g}."
        )
    r2 = 1 - (rmse / spread) ** 2 if spread > 0 else None
    mae = float(np.abs(wrong).mean())
    return Figures("regression", len(y), rmse=rmse, mae=mae, r2=r2, rmse_of_mean=spread, warnings=tuple(said))


def _calibration(chances: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error: how far confidence is from accuracy, over bins of confidence (Guo et al. 2017)."""
    sure = chances.max(1)
    bins = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    total = 0.0
    for b in range(BINS):
        here = bins == b
        if here.any():
            total += here.mean() * abs(float(sure[here].mean()) - float(right[here].mean()))
    return float(total)


def _share(part: int, whole: int) -> float | None:
    return float(part / whole) if whole else None
