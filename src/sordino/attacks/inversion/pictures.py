"""Originals and reconstructions side by side, as PNG. Written with zlib alone, so that no image library is needed.

The pictures show private records. They belong to the owner of the data, who attacks a simulation of its own run.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

GAP = 2  # pixels between pictures


def png(pixels: np.ndarray) -> bytes:
    """A PNG of an image (channel, height, width) with pixels between 0 and 1; one channel is grey, three are colours."""
    levels = np.round(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
    if len(levels) not in (1, 3):
        levels = levels[:1]
    rows = levels.transpose(1, 2, 0).reshape(levels.shape[1], -1)
    lines = b"".join(b"\0" + row.tobytes() for row in rows)  # each line begins with its filter: none
    head = struct.pack(">IIBBBBB", levels.shape[2], levels.shape[1], 8, 2 if len(levels) == 3 else 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    chunks = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def side_by_side(originals: np.ndarray, made: np.ndarray) -> np.ndarray:
    """Originals in the upper row, reconstructions in the lower: one image (channel, height, width)."""
    rows = []
    for line in (originals, made):
        spaced = [np.pad(image, ((0, 0), (0, 0), (0, GAP)), constant_values=1.0) for image in line]
        rows.append(np.concatenate(spaced, axis=2)[:, :, :-GAP])
    return np.concatenate([rows[0], np.ones((rows[0].shape[0], GAP, rows[0].shape[2])), rows[1]], axis=1)


def encoded(pixels: np.ndarray) -> str:
    """The PNG as base64, for an `img` of a page: ``data:image/png;base64,...``."""
    return base64.b64encode(png(pixels)).decode("ascii")


def report_rows(folder: str | Path) -> dict[str, Any] | None:
    """What a report shows of the inversion of a run: `rows` as plain data, each with its `picture` (base64 PNG) where there is one,
    the `verdict` and the `refused` attacks. None if the run was not attacked this way."""
    try:
        table = json.loads((Path(folder) / "inversion.json").read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(table, dict) or not isinstance(table.get("results"), list):
        return None
    return {"rows": table["results"], "verdict": table.get("verdict", ""), "refused": table.get("refused", [])}
