"""Batches in a fixed number of slots, so that every library call sees one shape, one order of memory and one alignment.

How many examples there are is private (each takes part or not by a secret coin), and kernels may be chosen by it: at
another number of rows the last bits of every row may differ, and a kink turns a bit into a whole gradient. So examples are
cut into windows of as many as there are slots, and what the last one lacks is filled with zeros. A library's kernels compute
all slots. Our own (`fused`) take one example after the other, so they may skip the free slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

ALIGNED = 64  # bytes: what PyTorch's own memory begins at


def windows(x: Tensor, y: Tensor, slots: int) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Examples and targets in `slots` rows each, and how many of the rows are examples."""
    for start in range(0, len(x), slots):
        yield _filled(x, start, slots), _filled(y, start, slots), min(slots, len(x) - start)


def arranged(x: Tensor) -> Tensor:
    """The same numbers in the order of memory that is used here: channels last for images, rows otherwise."""
    if x.dim() != 4:
        return x.contiguous()
    x = x.contiguous(memory_format=torch.channels_last)
    return x.as_strided(x.shape, _strides(x))  # strides of dimensions of one entry may be anything


def _strides(x: Tensor) -> tuple[int, ...]:
    _, c, h, w = x.shape
    return (c * h * w, 1, w * c, c)


def _filled(x: Tensor, start: int, slots: int) -> Tensor:
    part = x[start : start + slots]
    if len(part) == slots and part.data_ptr() % ALIGNED == 0:
        return part
    room = torch.zeros(slots * math.prod(x.shape[1:]), dtype=x.dtype, device=x.device)
    shape = (slots, *x.shape[1:])
    room = room.as_strided(shape, _strides(x)) if x.dim() == 4 else room.view(shape)
    room[: len(part)] = part
    return room
