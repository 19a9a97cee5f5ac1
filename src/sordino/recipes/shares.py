"""How much of a budget to spend on public statistics of the data before training begins."""

from __future__ import annotations

from sordino.privacy import calibration


def share_for(
    numbers: int, records: float, epsilon: float, delta: float, heard: float, least: float, most: float
) -> float:
    """The share that brings the length of the noise on a mean of so many numbers down to `heard`, within limits.

    A record moves the sum by 1 at most. With the multiplier z of one release that takes the whole budget, a share s of it leaves
    noise of length z sqrt(numbers / s) / records.
    """
    z = calibration.multiplier_for(epsilon, delta, 1, 1.0)
    return float(f"{min(max(numbers * (z / (records * heard)) ** 2, least), most):.2g}")
