"""Synthetic pictures and signals: dead leaves. They are made by a public procedure from a seed, and no data is looked at.

A picture is painted from back to front with opaque leaves: ellipses, rectangles and triangles whose radii follow a power
law, so that there are edges at every scale, as in photographs (Lee, Mumford and Huang 2001; Baradad et al. 2021 pre-train
networks on such pictures). Each picture has its own palette. Leaves are mildly shaded, some are striped, and half of the
pictures are blurred. A picture is painted at twice its size and averaged down.

A signal is the same in one dimension: opaque intervals of power-law lengths, each with a level, a slope and for some an
oscillation, painted over one another.

Picture number i of a seed is a function of (seed, i), whatever else is drawn. Values are bytes, so that the last bits of
an exponential on one machine or another do not show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sordino.errors import BadInput, whole
from sordino.privacy.randomness import stream

_FINE = 2  # a picture is painted at this many times its size


@dataclass(frozen=True)
class Leaves:
    """How pictures are painted. Radii are fractions of the picture's longer side."""

    leaves: int = 60
    least: float = 0.05
    largest: float = 0.6
    power: float = 1.0
    """The number of leaves of at least radius r falls as r to the minus this."""
    colours: int = 8
    striped: float = 0.2
    blurred: float = 0.5

    def __post_init__(self) -> None:
        whole(1, leaves=self.leaves, colours=self.colours)
        if not 0 < self.least < self.largest:
            raise BadInput(
                f"The least radius must lie above 0 and below the largest, not {self.least} of {self.largest}."
            )


def images(count: int, shape: tuple[int, ...], seed: int, settings: Leaves | None = None, first: int = 0) -> np.ndarray:
    """Pictures `first` to `first + count` of this seed: bytes of shape (count, channels, height, width).

    A shape (channels, length) gives signals.

    >>> images(2, (3, 8, 8), seed=1).shape
    (2, 3, 8, 8)
    >>> bool((images(2, (3, 8, 8), seed=1)[1] == images(1, (3, 8, 8), seed=1, first=1)[0]).all())
    True
    """
    settings = settings or Leaves()
    if len(shape) not in (2, 3) or any(isinstance(n, bool) or int(n) != n or n < 1 for n in shape):
        raise BadInput(f"A picture has a shape (channels, height, width), a signal (channels, length), not {shape!r}.")
    paint = _picture if len(shape) == 3 else _signal
    out = np.empty((count, *shape), np.uint8)
    for i in range(count):
        out[i] = paint(shape, settings, stream(seed, first + i, 0, "synthetic picture"))
    return out


def _picture(shape: tuple[int, ...], settings: Leaves, rng: np.random.Generator) -> np.ndarray:
    channels, height, width = shape
    h, w = _FINE * height, _FINE * width
    long = max(h, w)
    n = settings.leaves
    palette = _palette(channels, settings.colours, rng)
    canvas = np.broadcast_to(palette[0][:, None, None], (channels, h, w)).astype(np.float64)
    x, y = rng.uniform(-0.1, 1.1, n) * w, rng.uniform(-0.1, 1.1, n) * h
    radius = _radii(settings, n, rng) * long
    aspect, angle = rng.uniform(0.3, 1.0, n), rng.uniform(0, 2 * math.pi, n)
    kind, colour = rng.integers(0, 3, n), rng.integers(0, settings.colours, n)
    jitter = rng.normal(0, 0.04, (n, channels))
    shade, stripes = rng.normal(0, 0.08, n), rng.random(n) < settings.striped
    period, depth, phase = rng.uniform(2, 12, n), rng.uniform(0.05, 0.25, n), rng.uniform(0, 2 * math.pi, n)
    for i in range(n):
        # Only the box that the leaf can touch is looked at: most leaves are small.
        top, bottom = max(0, math.floor(y[i] - 1.5 * radius[i])), min(h, math.ceil(y[i] + 1.5 * radius[i]) + 1)
        left, right = max(0, math.floor(x[i] - 1.5 * radius[i])), min(w, math.ceil(x[i] + 1.5 * radius[i]) + 1)
        if top >= bottom or left >= right:
            continue
        dy, dx = np.arange(top, bottom)[:, None] - y[i], np.arange(left, right)[None, :] - x[i]
        cos, sin = math.cos(angle[i]), math.sin(angle[i])
        u, v = (cos * dx + sin * dy) / radius[i], (cos * dy - sin * dx) / (radius[i] * aspect[i])
        inside = _INSIDE[kind[i]](u, v)
        light = shade[i] * u
        if stripes[i]:
            light = light + depth[i] * np.sin(u * (2 * math.pi * radius[i] / period[i]) + phase[i])
        leaf = (palette[colour[i]] + jitter[i])[:, None, None] + light
        np.copyto(canvas[:, top:bottom, left:right], leaf, where=inside)
    small = canvas.reshape(channels, height, _FINE, width, _FINE).mean(axis=(2, 4))
    if rng.random() < settings.blurred:
        spread = rng.uniform(0.4, 1.2)
        small = _blur(_blur(small, spread, 1), spread, 2)
    return _bytes(small + rng.normal(0, 0.01, small.shape))


def _signal(shape: tuple[int, ...], settings: Leaves, rng: np.random.Generator) -> np.ndarray:
    channels, length = shape
    fine = _FINE * length
    n = settings.leaves
    palette = _palette(channels, settings.colours, rng)
    canvas = np.broadcast_to(palette[0][:, None], (channels, fine)).astype(np.float64)
    centre, radius = rng.uniform(-0.1, 1.1, n) * fine, _radii(settings, n, rng) * fine
    colour, jitter = rng.integers(0, settings.colours, n), rng.normal(0, 0.04, (n, channels))
    shade, wave = rng.normal(0, 0.2, (n, channels)), rng.random(n) < 2 * settings.striped
    period, depth = np.exp(rng.uniform(math.log(4), math.log(fine / 2 + 5), n)), rng.normal(0, 0.2, (n, channels))
    phase = rng.uniform(0, 2 * math.pi, n)
    for i in range(n):
        left, right = max(0, math.floor(centre[i] - radius[i])), min(fine, math.ceil(centre[i] + radius[i]) + 1)
        if left >= right:
            continue
        u = np.arange(left, right) - centre[i]
        leaf = (palette[colour[i]] + jitter[i])[:, None] + shade[i][:, None] * (u / radius[i])
        if wave[i]:
            leaf = leaf + depth[i][:, None] * np.sin(u * (2 * math.pi / period[i]) + phase[i])
        canvas[:, left:right] = leaf
    small = canvas.reshape(channels, length, _FINE).mean(axis=2)
    if rng.random() < settings.blurred:
        small = _blur(small, rng.uniform(0.4, 3.0), 1)
    return _bytes(small + rng.normal(0, 0.01, small.shape))


def _palette(channels: int, colours: int, rng: np.random.Generator) -> np.ndarray:
    """Colours of one picture: mostly light and dark, with a tint that is the picture's own and one for each colour."""
    light = rng.uniform(0.05, 0.95, (colours, 1))
    tint = rng.normal(0, 0.08, channels) + rng.normal(0, 1, (colours, channels)) * abs(rng.normal(0, 0.15))
    return np.clip(light + tint if channels > 1 else light, 0, 1) + np.zeros((colours, channels))


def _radii(settings: Leaves, n: int, rng: np.random.Generator) -> np.ndarray:
    """Radii of a power law, cut at both ends."""
    tail = (settings.least / settings.largest) ** settings.power
    return settings.least * (1 - rng.random(n) * (1 - tail)) ** (-1 / settings.power)


_INSIDE = (
    lambda u, v: u * u + v * v < 1,
    lambda u, v: (np.abs(u) < 0.9) & (np.abs(v) < 0.9),
    lambda u, v: (v > -0.7) & (v < 1.1 - 1.8 * np.abs(u)),
)


def _blur(x: np.ndarray, spread: float, axis: int) -> np.ndarray:
    """A Gaussian of this standard deviation in pixels along one axis; the border pixel is repeated."""
    reach = max(1, math.ceil(3 * spread))
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / spread) ** 2)
    weights /= weights.sum()
    edges = [(0, 0)] * x.ndim
    edges[axis] = (reach, reach)
    wide = np.pad(x, edges, mode="edge")
    size = x.shape[axis]
    return sum(wt * np.take(wide, range(k, k + size), axis=axis) for k, wt in enumerate(weights))


def _bytes(x: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(x, 0, 1) * 255).astype(np.uint8)
