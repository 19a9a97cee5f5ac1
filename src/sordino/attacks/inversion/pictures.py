"""Originals and reconstructions side by side, as PNG. Written with zlib alone, so that no image library is needed.

The pictures show private records. They belong to the owner of the data, who attacks a simulation of its own run, and are kept only where
that owner asked for them.
"""

from __future__ import annotations

import base64
import struct
import zlib

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


def strip(images: np.ndarray) -> np.ndarray:
    """Images (channel, height, width) in one row: one image."""
    spaced = [np.pad(image, ((0, 0), (0, 0), (0, GAP)), constant_values=1.0) for image in images]
    return np.concatenate(spaced, axis=2)[:, :, :-GAP]


def side_by_side(originals: np.ndarray, made: np.ndarray) -> np.ndarray:
    """Originals in the upper row, reconstructions in the lower: one image (channel, height, width)."""
    above, below = strip(originals), strip(made)
    return np.concatenate([above, np.ones((above.shape[0], GAP, above.shape[2])), below], axis=1)


def encoded(**rows: np.ndarray) -> dict[str, str]:
    """Rows of images as strips of base64 PNG, as a report takes them: `original`, `drawn` and `undefended`."""
    return {name: base64.b64encode(png(strip(images))).decode("ascii") for name, images in rows.items()}
