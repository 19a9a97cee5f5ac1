"""The feature map: responses of filters, thresholded on both sides and pooled. A function of one picture and public arrays.

For a block with filters f, threshold t and G x G cells, a picture gives for each filter and cell the averages of
max(0, z - t) and of max(0, -z - t) over the positions of the cell, where z is the response (`filters`). If the block
mirrors, each filter is averaged with its mirror image on the mirrored cell: a picture and its mirror image then have the
same features. A block may look at the picture shrunk by a whole factor.

It is done as matrix products: patches (positions x pixels) by filters, in pieces of filters that stay in the cache, then
cells (cells x positions) by what is left above the threshold. Since max(0, z - t) = max(z, t) - t, nothing but two clamps
happens between the products.

Each picture is computed by itself with one thread and arrays of fixed sizes. Its features therefore have the same bits
whatever else is computed beside it, in one process, in several, or at each holder of data.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from sordino.errors import BadInput
from sordino.features import levels
from sordino.features.blocks import Block, picture_shape, sizes
from sordino.features.filters import FilterBank

_PIECE = 200  # filters at a time: 729 positions of them are 580 kB


class BlockMap:
    """One block for pictures of one shape. Calling it on (C, H, W) floats from 0 to 1 gives its features."""

    def __init__(self, block: Block, bank: FilterBank, shape: tuple[int, int, int]) -> None:
        self.block, self.shape = block, shape
        _, self.height, self.width = block.seen(shape)
        self.window, self.grid = block.window(shape), block.grid(shape)
        if bank.channels != shape[0] or bank.patch != self.window or len(bank) != block.filters:
            raise BadInput(
                f"{len(bank)} filters for {bank.channels} channels and patches of {bank.patch} do not fit a block of "
                f"{block.filters} for {shape[0]} channels and patches of {self.window}; build the filters for this block."
            )
        self.floor = bank.floor
        rows = (self.height - self.window[0]) // block.stride + 1
        columns = (self.width - self.window[1]) // block.stride + 1
        self.positions = rows * columns
        pool = torch.kron(_cells(rows, self.grid[0], block.soft), _cells(columns, self.grid[1], block.soft))
        turned = pool.reshape(*self.grid, -1).flip(1).reshape(pool.shape)
        banks = [(bank, pool)]
        if block.mirror:
            banks = [(bank, pool / 2), (bank.mirrored(), turned / 2)]
        self._banks = [(*_columns(part), cells.contiguous()) for part, cells in banks]

    def __call__(self, picture: torch.Tensor, out: torch.Tensor) -> None:
        """Features of one picture, added to `out` of shape (2, cells, filters); `out` must be zero."""
        patches = self._patches(picture)
        t = self.block.threshold
        for weights, bias, pool in self._banks:
            for start in range(0, weights.shape[1], _PIECE):
                stop = start + _PIECE
                z = torch.addmm(bias[start:stop], patches, weights[:, start:stop])
                out[0, :, start:stop].addmm_(pool, torch.clamp(z, min=t))
                out[1, :, start:stop].addmm_(pool, z.clamp_(max=-t), alpha=-1)
        out.sub_(t).clamp_(min=0)  # each cell's weights add up to 1; rounding may leave a hair below 0

    def _patches(self, picture: torch.Tensor) -> torch.Tensor:
        """Positions x pixels, each patch without its mean and divided by its deviation."""
        factor = self.block.shrink
        if factor > 1:
            window = (1 if self.shape[1] == 1 else factor, factor)
            picture = torch.nn.functional.avg_pool2d(picture[None], window)[0]
        high, wide = self.window
        step = self.block.stride
        views = picture.unfold(1, high, step).unfold(2, wide, step)  # C x rows x columns x high x wide
        p = views.permute(1, 2, 0, 3, 4).reshape(self.positions, -1)
        p = p - p.mean(dim=1, keepdim=True)
        return p.mul_(torch.rsqrt(p.square().mean(dim=1, keepdim=True).add_(self.floor)))


def _columns(bank: FilterBank) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(np.ascontiguousarray(bank.weights.T)), torch.from_numpy(bank.bias.copy())


def _cells(positions: int, cells: int, soft: int = 0) -> torch.Tensor:
    """Rows of averages over even stretches; a position on a border belongs to both sides by its parts.

    With `soft` a row is the average of such rows moved by up to so many positions; what would lie outside is repeated from the border.
    """
    edges = np.linspace(0, positions, cells + 1)
    left, right = np.arange(positions), np.arange(1, positions + 1)
    share = np.clip(np.minimum(right, edges[1:, None]) - np.maximum(left, edges[:-1, None]), 0, None)
    places = np.clip(left[:, None] + np.arange(-soft, soft + 1), 0, positions - 1)
    share = share[:, places].mean(axis=2)
    return torch.from_numpy((share / share.sum(axis=1, keepdims=True)).astype(np.float32))


class FeatureMap:
    """All blocks for pictures of one shape, or for signals: as pictures of height 1, and with their `levels` behind the blocks."""

    def __init__(self, shape: tuple[int, ...], blocks: Sequence[Block], banks: Sequence[FilterBank]) -> None:
        self.given = tuple(shape)
        self.shape = picture_shape(shape)
        self.parts = [BlockMap(block, bank, self.shape) for block, bank in zip(blocks, banks, strict=True)]
        self.sizes, self.banks = sizes(shape, blocks), tuple(banks)

    def __call__(self, x: np.ndarray, threads: int = 1) -> np.ndarray:
        """Features (n, sum of sizes) of pictures (n, C, H, W) or signals (n, C, L)."""
        x = np.asarray(x)
        if x.ndim != len(self.given) + 1 or tuple(x.shape[1:]) != self.given:
            raise BadInput(
                f"These features are for pictures of shape {self.given}, not {tuple(x.shape[1:])}: build the map for them."
            )
        out = np.zeros((len(x), sum(self.sizes)), np.float32)
        before = torch.get_num_threads()
        torch.set_num_threads(1)  # more would change the order of additions, and be slower at this size
        try:
            if threads == 1:
                self._some(x, out, 0, len(x))
            else:
                edges = np.linspace(0, len(x), 8 * threads + 1).astype(int)
                with ThreadPoolExecutor(threads) as pool:
                    list(pool.map(lambda lo, hi: self._some(x, out, lo, hi), edges[:-1], edges[1:]))
        finally:
            torch.set_num_threads(before)
        return out

    @torch.no_grad()
    def _some(self, x: np.ndarray, out: np.ndarray, start: int, stop: int) -> None:
        for i in range(start, stop):
            if len(self.given) == 2:
                signal, out[i, -self.sizes[-1] :] = levels.standardised(x[i])
                picture = torch.from_numpy(signal).reshape(self.shape)
            else:
                picture = pixels(x[i])
            row, at = torch.from_numpy(out[i]), 0
            for part, size in zip(self.parts, self.sizes):
                part(picture, row[at : at + size].view(2, -1, part.block.filters))
                at += size


USUAL = 0.25  # the deviation of the pixels of a picture, from 0 to 1
_LIGHT = 1 / 8  # the least largest value of a picture whose floats go from 0 to 1


def pixels(x: np.ndarray) -> torch.Tensor:
    """Pixels from 0 to 1: bytes are divided by 255. Floats of any other range are brought to the usual deviation, each picture by itself."""
    if x.dtype == np.uint8:
        return torch.from_numpy(np.array(x, np.float32)).div_(255)
    if x.min() >= 0 and _LIGHT <= x.max() <= 1:
        return torch.from_numpy(np.array(x, np.float32))
    scaled, _ = levels.standardised(x.reshape(1, -1))
    return torch.from_numpy(scaled).mul_(USUAL).reshape(x.shape)
