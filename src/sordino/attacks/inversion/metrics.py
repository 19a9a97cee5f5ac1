"""How near a reconstruction is to its original: MSE (lower is nearer), PSNR in dB and SSIM (higher is nearer).

Pixels lie between 0 and 1. PSNR is worked out for each image and then averaged, which is at least the PSNR of the mean MSE. SSIM is
scikit-image's with the window of Wang et al. 2004 (Gaussian, deviation 1.5, 11 x 11, K1 0.01, K2 0.03), averaged over channels;
images of less than 11 pixels a side get the widest window that fits, and `window` says so.
"""

from __future__ import annotations

import math
from dataclasses import asdict, astuple, dataclass

import numpy as np

from sordino.attacks.inversion.matching import matched
from sordino.errors import BadInput

SIGMA, WINDOW = 1.5, 11
EXACT = 100.0  # dB; an exact copy has no finite PSNR
DIRECTION = {"mse": "lower is nearer", "psnr": "higher is nearer", "ssim": "higher is nearer"}


@dataclass(frozen=True)
class Likeness:
    """One image and its original."""

    mse: float
    psnr: float
    ssim: float

    def to_json(self) -> dict[str, float]:
        """Each measure by its name."""
        return asdict(self)


def likeness(original: np.ndarray, made: np.ndarray) -> Likeness:
    """Of one image (channel, height, width), pixels between 0 and 1."""
    a, b = (np.asarray(part, np.float64) for part in (original, made))
    if a.shape != b.shape or a.ndim != 3:
        raise BadInput(
            f"an image of shape {a.shape} cannot be compared with one of {b.shape}; both must be of one shape."
        )
    for part in (a, b):
        if not np.isfinite(part).all() or part.min() < 0 or part.max() > 1:
            raise BadInput("pixels must lie between 0 and 1; undo the normalisation first (Victim.pixels).")
    mse = float(np.square(a - b).mean())
    return Likeness(mse, psnr(mse), ssim(a, b))


def psnr(mse: float) -> float:
    """Peak signal to noise ratio of pixels between 0 and 1, at most 100 dB.

    >>> round(psnr(0.01), 6)
    20.0
    """
    return min(EXACT, -10 * math.log10(mse)) if mse > 0 else EXACT


def ssim(a: np.ndarray, b: np.ndarray) -> float:
    """Structural similarity of two images (channel, height, width)."""
    try:
        from skimage.metrics import structural_similarity
    except ImportError:
        raise BadInput("SSIM needs scikit-image, which is not installed; install sordino[attacks].") from None
    if window(a.shape) == WINDOW:
        how = {"gaussian_weights": True, "sigma": SIGMA, "use_sample_covariance": False}
    else:  # scikit-image's Gaussian needs 11 pixels a side
        how = {"win_size": window(a.shape), "use_sample_covariance": False}
    return float(structural_similarity(a, b, channel_axis=0, data_range=1.0, **how))


def window(shape: tuple[int, ...]) -> int:
    """The side of the window for images of this shape: 11, or the widest odd number that fits.

    >>> window((3, 32, 32)), window((1, 8, 8))
    (11, 7)
    """
    side = min(shape[-2:])
    return WINDOW if side >= WINDOW else side - 1 + side % 2


def compare(originals: np.ndarray, made: np.ndarray) -> tuple[list[Likeness], np.ndarray]:
    """Each original with the reconstruction that the assignment gives it, and the rows of those."""
    rows = matched(originals, made)
    return [likeness(a, made[row]) for a, row in zip(originals, rows)], rows


def average(found: list[Likeness]) -> Likeness:
    """The mean of each measure over images."""
    measures = zip(*(astuple(one) for one in found))
    return Likeness(*(float(np.mean(each)) for each in measures))
