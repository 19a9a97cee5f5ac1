"""Small files in the formats in which the data sets are published."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np

IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def numbers(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def idx_files(train: int = 20, test: int = 10) -> dict[str, bytes]:
    """The four files of an MNIST with few images; image i is filled with i."""
    files = {}
    for prefix, count in (("train", train), ("t10k", test)):
        pixels = np.repeat(np.arange(count, dtype=np.uint8), 28 * 28).reshape(count, 28, 28)
        files[f"{prefix}-images-idx3-ubyte"] = idx(pixels)
        files[f"{prefix}-labels-idx1-ubyte"] = idx((np.arange(count) % 10).astype(np.uint8))
    return files


def write(folder: Path, files: dict[str, bytes], zipped: bool = False) -> None:
    for name, content in files.items():
        place = folder / (name + ".gz" if zipped else name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(gzip.compress(content) if zipped else content)


def cifar_batch(count: int, label: bytes, classes: int, seed: int = 0) -> tuple[bytes, np.ndarray, list[int]]:
    """As Python 2 wrote them: protocol 2, keys of bytes."""
    rows = numbers(seed).integers(0, 256, size=(count, 3072), dtype=np.uint8)
    labels = [int(i) for i in numbers(seed + 1).integers(0, classes, size=count)]
    return pickle.dumps({b"data": rows, label: labels, b"batch_label": b"x"}, protocol=2), rows, labels


def tar(files: dict[str, bytes], path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def leaf(folder: Path, users: dict[str, tuple[list, list]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    (folder / "all_data.json").write_text(json.dumps(content))


PLAY = """A PLAY

DRAMATIS PERSONAE

KING, of nowhere.

ACT I.

SCENE I. A room.

[Enter KING and FOOL.]

KING.
Who is it that so late disturbs our rest?
Speak, or be silent evermore.

FOOL. [Aside]
Nothing, nuncle.

[Exit KING.]

Nothing at all.
QUEEN. I thank your Grace,
and bid good night.

THESEUS
Go, Philostrate.

Ber.
Who's there?

Fran.
Nay, answer me.

Ber.
Long live the king!

Farewell.
It is too late.

Ber.
Well, good night.

Fran.
I am sick at heart.

Fran.
Stand, ho!

SCENE II. Another.

These words belong to nobody.

KING.
Enough.
"""
