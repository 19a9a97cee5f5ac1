"""Real data with real owners: smart-watch exercises by subject, pupils by school.

Each is published as a pickle inside a package whose hash is pinned; it is read once, by `sordino.data.unpickle`, which
can build arrays and nothing else. Scalings are round numbers chosen beforehand, not statistics of the data. The last
fifth of what an owner has is held out; owners of fewer than five examples hold out none.
"""

from __future__ import annotations

import io
import lzma

import numpy as np

from sordino.data.dataset import Dataset
from sordino.data.unpickle import plain, table

WINDOW = 128
"""Samples of a smart watch: 2.56 seconds at 50 Hz."""


def watch(content: bytes) -> Dataset:
    """Seven shoulder exercises of ten subjects (Burns et al. 2018): six channels in windows that do not overlap."""
    file = io.BytesIO(content)
    np.lib.format.read_magic(file)
    np.lib.format.read_array_header_1_0(file)
    fields = plain(file.read(), "the watch data").item()
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("x", "y", "owner", "held")}
    for recording, kind, subject in zip(fields["X"], fields["y"], fields["subject"]):
        count = len(recording) // WINDOW
        windows = (
            np.asarray(recording[: count * WINDOW], dtype=np.float32).reshape(count, WINDOW, -1).transpose(0, 2, 1)
        )
        parts["x"].append(windows)
        parts["y"].append(np.full(count, int(kind)))
        parts["owner"].append(np.full(count, int(subject)))
        parts["held"].append(
            np.arange(count) >= count - count // 5
        )  # of every recording, so that each exercise is in it
    pooled = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    return _owned("watch", pooled["x"], pooled["y"], 7, pooled["owner"], "subject", pooled["held"])


def chem97(content: bytes) -> Dataset:
    """The A-level chemistry grade (six) of 31,022 pupils in 2,410 schools, from sex, age and their marks before."""
    columns = table(lzma.decompress(content), "the table of Chem97")
    female = (columns["gender"] == "F").astype(np.float32)
    age, before = columns["age"].astype(np.float32) / 6, columns["gcsescore"].astype(np.float32) - 6
    x = np.column_stack([female, age, before, before**2])
    return _owned("chem97", x, columns["score"].astype(np.int64) // 2, 6, columns["school"], "school")


def _owned(
    name: str, x: np.ndarray, y: np.ndarray, classes: int, owner: np.ndarray, word: str, held: np.ndarray | None = None
) -> Dataset:
    """In order of owners, with the last fifth of each held out."""
    order = np.argsort(owner, kind="stable")
    names, number = np.unique(owner[order], return_inverse=True)
    if held is None:
        sizes = np.bincount(number)
        place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        held = (place >= sizes[number] - sizes[number] // 5)[np.argsort(order)]
    apart = held[order]
    x, y, number = np.ascontiguousarray(x[order], dtype=np.float32), y[order], number.astype(np.int32)
    return Dataset(
        name=name,
        x=x[~apart],
        y=y[~apart],
        test_x=x[apart],
        test_y=y[apart],
        classes=classes,
        groups=number[~apart],
        group_names=tuple(f"{word} {one}" for one in names),
        test_groups=number[apart],
    )
