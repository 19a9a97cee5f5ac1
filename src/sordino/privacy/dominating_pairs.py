"""Dominating pairs of distributions, and their privacy losses on a grid.

A mechanism is at least as private as its pair is hard to tell apart (Zhu, Dong, Wang 2022). The loss log(P/Q) of each
pair here rises with x, so that the cells of a grid of losses are intervals of x with known probabilities. The dots are
then connected (Doroshenko et al. 2022): the mass of a cell goes to its two ends so that its probability under both
distributions is kept, which never lowers delta at any epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_NOTHING = 1e-290  # probability, below which floating point gets into trouble


@dataclass(frozen=True)
class Cells:
    """The masses of P and Q whose loss lies from grid point ``low + i`` to the next, and what lies outside."""

    step: float
    low: int
    p: Floats
    q: Floats
    p_above: float = 0.0
    q_above: float = 0.0
    p_below: float = 0.0
    q_below: float = 0.0

    def turned(self) -> Cells:
        """The other direction: Q against P, losses with the other sign."""
        return Cells(
            self.step,
            -(self.low + len(self.p)),
            self.q[::-1],
            self.p[::-1],
            p_above=self.q_below,
            q_above=self.p_below,
            p_below=self.q_above,
            q_below=self.p_above,
        )

    def dots(self) -> Dots:
        """The masses moved to the grid points."""
        floor = self.step * (self.low + np.arange(len(self.p)))
        # Unknowns: down + up = p and down e^-floor + up e^-(floor+step) = q. Where q is too small for floating point,
        # all goes up, which is on the private side.
        known = self.q * np.exp(np.minimum(floor, 600.0)) * (floor < 600)
        up = np.clip((self.p - known) / -math.expm1(-self.step), 0.0, self.p)
        mass = np.zeros(len(self.p) + 1)
        mass[1:] = up
        mass[:-1] += self.p - up
        mass[0] += self.p_below
        # Next to nothing lies at either end: it is moved up, on the right to infinity.
        left, right = np.cumsum(mass), np.cumsum(mass[::-1])
        first, last = int(np.searchsorted(left, _NOTHING)), len(mass) - int(np.searchsorted(right, _NOTHING))
        mass = mass[first:last]
        mass[0] += left[first - 1] if first else 0.0
        spilt = right[len(right) - last - 1] if last < len(right) else 0.0
        return Dots(self.step, self.low + first, mass, self.p_above + float(spilt))


@dataclass(frozen=True)
class Dots:
    """A loss on grid points ``low + i``; `infinite` is the mass of an unbounded loss."""

    step: float
    low: int
    mass: Floats
    infinite: float

    @cached_property
    def losses(self) -> Floats:
        """The grid points."""
        return self.step * (self.low + np.arange(len(self.mass), dtype=np.float64))

    def log_moment(self, tilt: float) -> float:
        """log E[exp(tilt * loss)] of the finite part."""
        exponent = tilt * self.losses
        top = exponent.max()
        return float(np.log(dot(self.mass, np.exp(exponent - top))) + top)


class Pair(Protocol):
    """A dominating pair: cells of its loss, the deviation of it (roughly, to choose a grid) and its largest value."""

    @property
    def symmetric(self) -> bool:
        """Whether both directions have the same losses."""

    @property
    def deviation(self) -> float:
        """About the standard deviation of the loss: what the grid is laid out for."""

    @property
    def most(self) -> float:
        """The largest loss."""

    def cells(self, step: float, tail: float) -> Cells:
        """The masses on a grid of this step, with at most about `tail` outside."""


# --- the pairs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SampledGaussian:
    """(1-q) N(0, z^2) + q N(1, z^2) against N(0, z^2): Zhu, Dong, Wang 2022. A rate of 1 is the plain Gaussian."""

    rate: float
    multiplier: float
    most = math.inf

    @property
    def symmetric(self) -> bool:
        """Whether both directions have the same loss: without sampling they do."""
        return self.rate == 1

    @property
    def deviation(self) -> float:
        # sqrt(log(1 + chi^2)): exact for the plain Gaussian, the right order of magnitude for the others.
        power = self.multiplier**-2
        if power < 500:
            return math.sqrt(math.log1p(self.rate**2 * math.expm1(power)))
        return math.sqrt(max(power + 2 * math.log(self.rate), 1.0))

    def cells(self, step: float, tail: float) -> Cells:
        z, q = self.multiplier, self.rate
        reach = _normal_quantile(tail)
        top = float(np.logaddexp(_log1p(-q), math.log(q) + ((1 + reach * z) - 0.5) / z**2))
        bottom = _log1p(-q) if q < 1 else (-reach * z - 0.5) / z**2
        low, high = math.floor(bottom / step), math.ceil(top / step)
        edges = step * np.arange(low, high + 1)
        with np.errstate(all="ignore"):
            # x at which the loss is l: e^l = 1-q + q e^((2x-1)/2z^2)
            x = z * (edges + np.log1p((1 - q) * -np.exp(-edges)) - math.log(q)) + 0.5 / z
        x = np.where(np.isnan(x), -np.inf, x)  # below log(1-q) there is no loss
        base, base_below, base_above = _normal_masses(x)
        moved, moved_below, moved_above = _normal_masses(x - 1 / z)
        return Cells(
            step,
            low,
            (1 - q) * base + q * moved,
            base,
            p_above=(1 - q) * base_above + q * moved_above,
            q_above=base_above,
            p_below=(1 - q) * base_below + q * moved_below,
            q_below=base_below,
        )


@dataclass(frozen=True)
class ReplacedGaussian:
    """(1-q) N(0, z^2) + q N(1, z^2) against (1-q) N(0, z^2) + q N(-1, z^2): a unit that may be sampled is another."""

    rate: float
    multiplier: float
    symmetric = True
    most = math.inf

    @property
    def deviation(self) -> float:
        return 2 * SampledGaussian(self.rate, self.multiplier).deviation

    def cells(self, step: float, tail: float) -> Cells:
        z, q = self.multiplier, self.rate
        reach = _normal_quantile(tail)
        x_top = 1 + reach * z
        log_q, log_rest = math.log(q), _log1p(-q)
        top = np.logaddexp(log_rest, log_q + (2 * x_top - 1) / (2 * z**2))
        top -= np.logaddexp(log_rest, log_q - (2 * x_top + 1) / (2 * z**2))
        half = math.ceil(float(top) / step)
        losses = step * np.arange(1, half + 1)
        # 2 sinh(v) q/(1-q) e^(-1/2z^2) = 2 sinh(l/2), x = z^2 (v + l/2); in logarithms, as sinh(l/2) may be huge
        log_y = losses / 2 + np.log(-np.expm1(-losses) / 2) + 1 / (2 * z**2) + log_rest - log_q
        v = np.logaddexp(log_y, np.logaddexp(0, 2 * log_y) / 2)
        v = np.where(log_y < -1, np.arcsinh(np.exp(np.minimum(log_y, 0))), v)
        right = z * (v + losses / 2)
        x = np.concatenate([-right[::-1], [0.0], right])
        base, base_out, _ = _normal_masses(x)
        moved, moved_below, moved_above = _normal_masses(x - 1 / z)
        p = (1 - q) * base + q * moved
        far, near = (1 - q) * base_out + q * moved_above, (1 - q) * base_out + q * moved_below
        # Mirrored at 0, P is Q: what P has above, Q has below.
        return Cells(step, -half, p, p[::-1], p_above=far, q_above=near, p_below=near, q_below=far)


@dataclass(frozen=True)
class SampledLaplace:
    """(1-q) Laplace(0) + q Laplace(1) against Laplace(0), scale b. The loss is constant left of 0 and right of 1."""

    rate: float
    multiplier: float

    @property
    def symmetric(self) -> bool:
        return self.rate == 1

    @property
    def deviation(self) -> float:
        return min(self.most, self.rate / self.multiplier) if self.multiplier > 1 else self.most / 2

    @property
    def most(self) -> float:
        return float(np.logaddexp(_log1p(-self.rate), math.log(self.rate) + 1 / self.multiplier))

    def cells(self, step: float, tail: float) -> Cells:
        b, q = self.multiplier, self.rate
        bottom, top = float(np.logaddexp(_log1p(-q), math.log(q) - 1 / b)), self.most
        low, high = math.floor(bottom / step), math.ceil(top / step)
        high += high * step <= top  # the atom at the top belongs inside a cell
        edges = step * np.arange(low, high + 1)
        with np.errstate(all="ignore"):
            plain = edges + np.log1p((1 - q) * -np.exp(-edges)) - math.log(q)  # loss without sampling, (2x-1)/b
        x = np.where(edges <= bottom, -np.inf, np.where(edges > top, np.inf, np.clip((plain * b + 1) / 2, 0, 1)))
        base, moved = _laplace_masses(x / b), _laplace_masses((x - 1) / b)
        return Cells(step, low, (1 - q) * base + q * moved, base)


@dataclass(frozen=True)
class Pure:
    """Randomised response: dominates every mechanism that is epsilon-DP outright (Kairouz, Oh, Viswanath 2015)."""

    epsilon: float
    symmetric = True

    @property
    def deviation(self) -> float:
        return self.epsilon

    @property
    def most(self) -> float:
        return self.epsilon

    def cells(self, step: float, tail: float) -> Cells:
        half = math.floor(self.epsilon / step) + 1
        p, q = np.zeros(2 * half), np.zeros(2 * half)
        likely, unlikely = 1 / (1 + math.exp(-self.epsilon)), 1 / (1 + math.exp(min(self.epsilon, 700.0)))
        p[-1] = q[0] = likely
        p[0] = q[-1] = unlikely
        return Cells(step, -half, p, q)


# --- small helpers ----------------------------------------------------------------------------------------------------


def dot(a: Floats, b: Floats) -> float:
    """The sum of products, pairwise and in this thread: more exact than BLAS, and at ease on a busy machine."""
    return float(np.sum(a * b))


def _log1p(x: float) -> float:
    return math.log1p(x) if x > -1 else -math.inf


def _normal_quantile(tail: float) -> float:
    """x with P(N > x) <= tail."""
    from scipy.special import ndtri

    return -float(ndtri(max(tail, 1e-300)))


def _normal_masses(x: Floats) -> tuple[Floats, float, float]:
    """The standard normal mass between neighbours of `x` (ascending), below the first and above the last."""
    from scipy.special import ndtr

    small = ndtr(-np.abs(x))
    left, right = small[:-1], small[1:]
    masses = np.where(x[:-1] >= 0, left - right, np.where(x[1:] <= 0, right - left, 1 - left - right))
    below = small[0] if x[0] < 0 else 1 - small[0]
    above = small[-1] if x[-1] > 0 else 1 - small[-1]
    return np.maximum(masses, 0.0), float(below), float(above)


def _laplace_masses(x: Floats) -> Floats:
    """The standard Laplace mass between neighbours of `x`."""
    small = np.exp(-np.abs(x)) / 2
    left, right = small[:-1], small[1:]
    masses = np.where(x[:-1] >= 0, left - right, np.where(x[1:] <= 0, right - left, 1 - left - right))
    return np.maximum(masses, 0.0)
