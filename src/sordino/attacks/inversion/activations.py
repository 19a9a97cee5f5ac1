"""Activations as layers with four passes: a function of each number, with its first and second derivative."""

from __future__ import annotations

import torch
from torch import Tensor

from sordino.attacks.inversion.layers import Layer


class Pointwise(Layer):
    """A function of each number: its value, first and second derivative at u."""

    def __init__(self) -> None:
        self._y: Tensor
        self._slope: Tensor
        self._du: Tensor | None = None

    def value(self, u: Tensor) -> Tensor:
        """The function at u."""
        raise NotImplementedError

    def slope(self, y: Tensor) -> Tensor:
        """The first derivative, from the value."""
        raise NotImplementedError

    def bend(self, y: Tensor, slope: Tensor) -> Tensor | None:
        """The second derivative, from the value and the first; None: zero."""
        raise NotImplementedError

    def forward(self, u: Tensor) -> Tensor:
        self._y = self.value(u)
        self._slope = self.slope(self._y)
        return self._y

    def backward(self, out: Tensor, deeper: bool) -> Tensor:
        return out * self._slope

    def tangent(self, du: Tensor | None, v: Tensor | None) -> Tensor | None:
        self._du = du
        return None if du is None else du * self._slope

    def reverse(self, out: Tensor, dout: Tensor | None) -> Tensor:
        above = out * self._slope
        bend = self.bend(self._y, self._slope)
        return above if bend is None or self._du is None or dout is None else above + dout * self._du * bend


class Sigmoid(Pointwise):
    """s(u) = 1 / (1 + exp(-u)), with s' = s - s^2."""

    def value(self, u: Tensor) -> Tensor:
        return torch.sigmoid(u)

    def slope(self, y: Tensor) -> Tensor:
        return y - y * y

    def bend(self, y: Tensor, slope: Tensor) -> Tensor | None:
        return slope - 2 * y * slope


class Tanh(Pointwise):
    """y = tanh(u), with y' = 1 - y^2."""

    def value(self, u: Tensor) -> Tensor:
        return torch.tanh(u)

    def slope(self, y: Tensor) -> Tensor:
        return 1 - y * y

    def bend(self, y: Tensor, slope: Tensor) -> Tensor | None:
        return -2 * y * slope


class Relu(Pointwise):
    """max(0, u). It has no second derivative where it has a first."""

    def value(self, u: Tensor) -> Tensor:
        return torch.relu(u)

    def slope(self, y: Tensor) -> Tensor:
        return (y > 0).to(y.dtype)

    def bend(self, y: Tensor, slope: Tensor) -> Tensor | None:
        return None
