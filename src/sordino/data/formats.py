"""The file formats in which data sets are published, from bytes to arrays (images as channel, row, column)."""

from __future__ import annotations

import gzip
import io
import json
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from sordino.data.unpickle import plain
from sordino.errors import BadInput

Pair = tuple[np.ndarray, np.ndarray]


def idx(content: bytes, where: str) -> np.ndarray:
    """The format of MNIST and its kin, gzipped or not: magic number, sizes, bytes."""
    try:
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        zero, kind, dimensions = struct.unpack(">HBB", content[:4])
        sizes = struct.unpack(f">{dimensions}I", content[4 : 4 + 4 * dimensions])
    except (OSError, EOFError, struct.error) as error:
        raise BadInput(f"{where} is not an idx file ({error}): fetch it again.") from error
    if zero != 0 or kind != 8:
        raise BadInput(f"{where} is not an idx file of bytes: fetch it again.")
    body = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions)
    expected = int(np.prod(sizes, dtype=np.int64))
    if len(body) != expected:
        raise BadInput(f"{where} should hold {expected} bytes but has {len(body)}: fetch it again.")
    return body.reshape(sizes)


def idx_pair(images: bytes, labels: bytes, where: str) -> Pair:
    """Images (with their one channel) and labels."""
    x, y = idx(images, f"the images of {where}"), idx(labels, f"the labels of {where}")
    if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
        raise BadInput(f"{where} has images of shape {x.shape} and labels of shape {y.shape}: fetch it again.")
    return x[:, None], y


def cifar_batches(contents: Sequence[bytes], label: bytes, where: str) -> Pair:
    """``data_batch_*`` of CIFAR-10 (label ``b"labels"``) or ``train``/``test`` of CIFAR-100 (``b"fine_labels"``)."""
    images, labels = [], []
    for content in contents:
        batch = plain(content, where)
        if not isinstance(batch, Mapping):
            raise BadInput(f"{where} does not hold a CIFAR batch: fetch it again.")
        fields = {key.encode() if isinstance(key, str) else key: value for key, value in batch.items()}
        if b"data" not in fields or label not in fields:
            raise BadInput(f"{where} has no {label.decode()}: it is not the file it should be.")
        rows = np.asarray(fields[b"data"])
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3072 or len(rows) != len(fields[label]):
            raise BadInput(f"{where} does not hold 32 x 32 colour images with one label each: fetch it again.")
        images.append(rows.reshape(-1, 3, 32, 32))
        labels.append(np.asarray(fields[label], dtype=np.uint8))
    return np.concatenate(images), np.concatenate(labels)


def png_rows(content: bytes, where: str) -> np.ndarray:
    """A picture whose every row is one 32 x 32 colour image."""
    try:
        from PIL import Image
    except ImportError as error:
        raise BadInput("reading CIFAR-10 from its package needs pillow: pip install 'sordino[data]'.") from error
    with Image.open(io.BytesIO(content)) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    if pixels.ndim != 3 or pixels.shape[1:] != (1024, 3):
        raise BadInput(f"{where} has the shape {pixels.shape} instead of rows of 1,024 colour pixels.")
    return np.ascontiguousarray(pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))


def json_labels(content: bytes) -> np.ndarray:
    """A JSON list of labels, perhaps in nested lists."""
    return np.asarray(json.loads(content), dtype=np.uint8).reshape(-1)


def svhn(content: bytes, where: str) -> Pair:
    """``train_32x32.mat`` of SVHN: X is row, column, channel, image; the digit 0 is written as 10."""
    from scipy.io import loadmat

    try:
        fields = loadmat(io.BytesIO(content), variable_names=["X", "y"])
        x, y = fields["X"], fields["y"].reshape(-1)
    except Exception as error:
        raise BadInput(f"{where} cannot be read as a MATLAB file with X and y: fetch it again.") from error
    if x.ndim != 4 or x.shape[:3] != (32, 32, 3) or x.shape[3] != len(y):
        raise BadInput(f"{where} has X of shape {x.shape} and {len(y)} labels: fetch it again.")
    return np.ascontiguousarray(x.transpose(3, 2, 0, 1)), (y % 10).astype(np.uint8)


def ucr(content: bytes, where: str) -> Pair:
    """A UCR archive table: label, then the series; labels become 0, 1, ... in their own order."""
    try:
        table = np.loadtxt(io.StringIO(content.decode()), delimiter="\t", dtype=np.float32, ndmin=2)
    except ValueError as error:
        raise BadInput(f"{where} is not a table of numbers ({error}).") from error
    labels = table[:, 0].astype(np.int64)
    return table[:, None, 1:], np.searchsorted(np.unique(labels), labels).astype(np.uint8)
