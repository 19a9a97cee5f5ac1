"""Rail defects from accelerometers: the pipeline of AdaCT-DPFL (section 5), for your own CSV recordings.

Outliers are removed, signals normalised and cut into fixed windows; a track section is a client; each client keeps 8 of
10 windows for training, and the rest of all of them together is the global test set.

The paper cleans and normalises a whole recording and then cuts it. Here each window is cut first and then treated by
itself. An example then depends on nothing but its own samples, which a guarantee for each example needs: with the mean
and deviation of a section, one changed record would change all the others. Windows do not overlap, for the same reason.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sordino.data.dataset import Dataset
from sordino.errors import BadInput, between, positive, whole
from sordino.privacy.randomness import stream

DEFECTS = ("corrugation", "fish-scale", "spalling")
_NOT_SIGNAL = ("label", "section", "time")


@dataclass(frozen=True)
class Pipeline:
    """How recordings become examples."""

    window: int = 512
    outlier: float = 6.0
    """How many (robust) deviations from its six neighbours' median a sample may lie."""
    held_out: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        whole(least=16, window=self.window)
        positive(outlier=self.outlier)
        between(0, 1, held_out=self.held_out)

    def examples(self, windows: np.ndarray) -> np.ndarray:
        """Raw windows (n, channels, samples) as model input."""
        return normalised(without_outliers(windows, self.outlier))

    def split(self, examples: int, section: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows for training and for the test of one section; both have at least one if there are two."""
        order = stream(self.seed, 0, section, "rail-split").permutation(examples)
        held = min(max(1, round(self.held_out * examples)), examples - 1)
        return np.sort(order[held:]), np.sort(order[:held])


def without_outliers(windows: np.ndarray, limit: float) -> np.ndarray:
    """Replace lone wild samples by the median of their surroundings (a Hampel filter of seven samples).

    The scale is the local median deviation: within the ringing after a real impact all samples are large, so the impact
    stays, and only a glitch that its neighbours know nothing of goes.
    """
    padded = np.pad(windows, [(0, 0)] * (windows.ndim - 1) + [(3, 3)], mode="reflect")
    around = np.lib.stride_tricks.sliding_window_view(padded, 7, axis=-1)
    middle = _median7(around)
    scale = 1.4826 * _median7(np.abs(around - middle[..., None]))
    floor = 1e-3 * windows.std(axis=-1, keepdims=True)
    return np.where(np.abs(windows - middle) > limit * np.maximum(scale, floor), middle, windows)


def _median7(values: np.ndarray) -> np.ndarray:
    return np.partition(values, 3, axis=-1)[..., 3]


def normalised(windows: np.ndarray) -> np.ndarray:
    """Mean 0 and deviation 1 in every window and channel; a dead channel stays 0."""
    centred = windows - windows.mean(axis=-1, keepdims=True)
    deviation = centred.std(axis=-1, keepdims=True)
    return np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0).astype(np.float32)


def assemble(
    name: str, sections: dict[str, tuple[np.ndarray, np.ndarray]], pipeline: Pipeline, about: str, **notes: object
) -> Dataset:
    """Raw windows and labels by section as a natural federation with a global test set."""
    fields = ("x", "y", "groups", "test_x", "test_y", "test_groups")
    parts: dict[str, list[np.ndarray]] = {field: [] for field in fields}
    for number, (section, (windows, labels)) in enumerate(sections.items()):
        if len(labels) < 2:
            raise BadInput(f"the section {section} has {len(labels)} windows and needs 2: leave it out or record more.")
        examples = pipeline.examples(windows)
        for prefix, rows in zip(("", "test_"), pipeline.split(len(labels), number)):
            parts[prefix + "x"].append(examples[rows])
            parts[prefix + "y"].append(labels[rows])
            parts[prefix + "groups"].append(np.full(len(rows), number, dtype=np.int32))
    return Dataset(
        name=name,
        x=np.concatenate(parts["x"]),
        y=np.concatenate(parts["y"]),
        test_x=np.concatenate(parts["test_x"]),
        test_y=np.concatenate(parts["test_y"]),
        classes=len(DEFECTS),
        about=about,
        groups=np.concatenate(parts["groups"]),
        group_names=tuple(sections),
        test_groups=np.concatenate(parts["test_groups"]),
        notes=dict(notes),
    )


def read(folder: Path, pipeline: Pipeline | None = None) -> Dataset:
    """One CSV per section, or a column `section`; a row per sample.

    The column `label` holds a number or the name of a defect; every other column but `time` is a channel.
    """
    pipeline = pipeline or Pipeline()
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise BadInput(f"{folder} has no CSV files: put one per track section there.")
    found: dict[str, list[tuple[np.ndarray, int]]] = {}
    for file in files:
        for section, windows, label in _windows(file, pipeline.window):
            found.setdefault(section, []).append((windows, label))
    if not found:
        raise BadInput(f"no recording in {folder} is as long as a window of {pipeline.window} samples.")
    sections = {}
    for section, runs in found.items():
        labels = np.concatenate([np.full(len(windows), label, dtype=np.int64) for windows, label in runs])
        sections[section] = np.concatenate([windows for windows, _ in runs]), labels
    return assemble("rail", sections, pipeline, "rail vibration from your own recordings")


def _windows(file: Path, length: int) -> list[tuple[str, np.ndarray, int]]:
    """Whole windows of every stretch of one section with one label; what is left at its end is dropped."""
    with file.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.reader(lines)
        header = [field.strip().lower() for field in next(reader, [])]
        rows = [row for row in reader if row]
    channels = [i for i, field in enumerate(header) if field not in _NOT_SIGNAL]
    if "label" not in header or not channels:
        raise BadInput(f"{file} needs a heading with `label` and at least one column of acceleration.")
    at, owner = header.index("label"), header.index("section") if "section" in header else None
    try:
        signal = np.array([[float(row[i]) for i in channels] for row in rows]).reshape(-1, len(channels))
        labels = [_label(row[at].strip(), file) for row in rows]
        sections = [file.stem if owner is None else row[owner].strip() for row in rows]
    except (ValueError, IndexError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{file} has a row that is not numbers under its heading ({error}): put it right.") from error
    if not np.isfinite(signal).all():
        raise BadInput(f"{file} has samples that are NaN or infinite: fill them in or cut them out.")
    changes = [i for i in range(1, len(rows)) if (labels[i], sections[i]) != (labels[i - 1], sections[i - 1])]
    found = []
    for start, end in zip([0, *changes], [*changes, len(rows)]):
        count = (end - start) // length
        if count:
            stretch = signal[start : start + count * length].reshape(count, length, len(channels))
            found.append((sections[start], stretch.transpose(0, 2, 1), labels[start]))
    return found


def _label(text: str, file: Path) -> int:
    if text.lower() in DEFECTS:
        return DEFECTS.index(text.lower())
    if text.isdigit() and int(text) < len(DEFECTS):
        return int(text)
    raise BadInput(f"{file} has the label {text!r}: write 0, 1, 2 or {', '.join(DEFECTS)}.")
