"""Networks that the recipes choose: they bring their input onto one scale, record by record, which costs no privacy.

A learning rate suits inputs of one length. Pixels come as 0 to 1, 0 to 255 or standardised, signals in volts or in g. Pictures and
signals are standardised here, each by its own mean and deviation: nothing is asked of other records. Tables are not: their
columns have units of their own, and a record's mean over them means nothing. There the inverse hyperbolic sine keeps values
around 0 as they are and brings 50,000 down to 11.5.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sordino.models.convnets import Linear, Signal, Tempered

HIDDEN, BROAD = 64, 128
FREQUENCIES, AMPLITUDE = (1.0, 2.0), 0.5  # of cosines
TINY = 1e-12  # of a variance: blank records stay blank


class Standardised(nn.Module):
    """A network behind the standardisation of each record by itself."""

    def __init__(self, net: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.net, self.shape = net, list(shape)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(F.layer_norm(x, self.shape, eps=TINY))


class MLP(nn.Module):
    """One hidden layer with tanh, whose gradients stay short; the last layer starts at zero, as in the linear model."""

    def __init__(self, shape: tuple[int, ...], classes: int, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.hidden = nn.Linear(math.prod(shape), hidden)
        self.out = nn.Linear(hidden, classes)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.hidden(torch.flatten(x, 1))))


class WideDeep(nn.Module):
    """A linear model and one hidden layer beside it, added up (wide and deep, Cheng et al. 2016). Both start at zero.

    Few records at a small epsilon teach the linear part, and the hidden units do little harm; more records teach both.
    """

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.wide = Linear(shape, classes)
        self.deep = MLP(shape, classes, BROAD)

    def forward(self, x: Tensor) -> Tensor:
        return self.wide(x) + self.deep(x)


class WideFourier(nn.Module):
    """A linear model and cosines of random directions beside it, added up (random Fourier features, Rahimi and Recht 2007).

    Records of usual size turn half of the cosines by about 1 radian and half by about 2; directions are trained too. Hidden units with
    tanh are odd and nearly linear at first. What no line tells apart they learn only after many steps, for which noise leaves no room:
    they have 81% on the table `ring` at epsilon 1, and cosines have 91% (docs/regret.md). At half their size cosines cost little where
    a line is enough.
    """

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        inputs = math.prod(shape)
        self.wide = Linear(shape, classes)
        self.turns = nn.Linear(inputs, BROAD)
        self.out = nn.Linear(BROAD, classes, bias=False)
        fast = torch.tensor(FREQUENCIES).repeat_interleave(BROAD // len(FREQUENCIES))
        with torch.no_grad():
            self.turns.weight.copy_(torch.randn(BROAD, inputs) * fast[:, None] / math.sqrt(inputs))
            nn.init.uniform_(self.turns.bias, 0, 2 * math.pi)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.wide(x) + self.out(AMPLITUDE * torch.cos(self.turns(torch.flatten(x, 1))))


class Table(nn.Module):
    """A network for columns in units of their own."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(torch.asinh(x))


def std_linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One dense layer over standardised input."""
    return Standardised(Linear(shape, classes), shape)


def std_mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One hidden layer over standardised input."""
    return Standardised(MLP(shape, classes), shape)


def std_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A small convolutional network over standardised images."""
    return Standardised(Tempered(shape, classes), shape)


def std_cnn_1d(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A small convolutional network over standardised signals."""
    return Standardised(Signal(shape, classes), shape)


def table_linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One dense layer over a table's columns."""
    return Table(Linear(shape, classes))


def table_mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One hidden layer over a table's columns."""
    return Table(MLP(shape, classes))


def table_wide_deep(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A dense layer and a small network over a table's columns, added up."""
    return Table(WideDeep(shape, classes))


def table_wide_fourier(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Cosines beside a linear model, over columns on a scale of their own."""
    return Table(WideFourier(shape, classes))
