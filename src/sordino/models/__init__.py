"""The networks of the papers, by name: ``build("cnn-mnist", (1, 28, 28), 10, seed=0)``.

All of them keep no state but their parameters (GroupNorm, never BatchNorm), so that every one can be trained under
either unit. Initial weights are a function of the name, the shapes and the seed alone: PyTorch's own generator is
left as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sordino import own_code
from sordino.errors import BadInput, whole

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Entry:
    """One network: how it is made, what input it takes and where it comes from."""

    make: Callable[[tuple[int, ...], int], nn.Module]
    dims: tuple[int, ...]  # how many dimensions one example may have
    note: str


def _conv(kind: str) -> Callable[[tuple[int, ...], int], nn.Module]:
    def make(shape: tuple[int, ...], classes: int) -> nn.Module:
        from sordino.models import convnets

        return getattr(convnets, kind)(shape, classes)

    return make


def _standardised(kind: str) -> Callable[[tuple[int, ...], int], nn.Module]:
    def make(shape: tuple[int, ...], classes: int) -> nn.Module:
        from sordino.models import standardised

        return getattr(standardised, kind)(shape, classes)

    return make


def _linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    from sordino.models.convnets import Linear

    return Linear(shape, classes)


def _lstm(shape: tuple[int, ...], classes: int) -> nn.Module:
    from sordino.models.recurrent import CharLSTM

    return CharLSTM(classes)


def _lstm_all(shape: tuple[int, ...], classes: int) -> nn.Module:
    from sordino.models.recurrent import CharLSTM

    return CharLSTM(classes, every=True)


def _resnet(shape: tuple[int, ...], classes: int) -> nn.Module:
    from sordino.models.resnet import ResNet18

    return ResNet18(shape, classes)


MODELS: dict[str, Entry] = {
    "linear": Entry(_linear, (1, 2, 3, 4), "linear softmax, starts at zero"),
    "lenet": Entry(_conv("LeNet"), (3,), "LeNet-5 with ReLU and max pooling (LeCun et al. 1998; FedMAP)"),
    "lenet-sigmoid": Entry(_conv("SmoothLeNet"), (3,), "3 strided conv 5x5 + 1 FC with sigmoid (DLG, Zhu et al. 2019)"),
    "cnn-mnist": Entry(_conv("TwoConvTwoFC"), (3,), "2 conv 5x5 + 2 FC (DP-FedACN's MNIST network)"),
    "cnn-gamma": Entry(_conv("TwoConvOneFC"), (3,), "2 conv 5x5 + 1 FC (noise_gamma's MNIST network)"),
    "cnn-tanh": Entry(
        _conv("Tempered"), (3,), "2 strided conv + 2 FC with tanh, for the example unit (Papernot et al. 2021)"
    ),
    "cnn-cifar": Entry(_conv("ThreeConvThreeFC"), (3,), "3 conv 3x3 + 3 FC (Fed-DPA, AdaCT-DPFL)"),
    "cnn-cifar-acn": Entry(_conv("TwoConvThreeFC"), (3,), "2 conv 5x5 + 3 FC (DP-FedACN's CIFAR network)"),
    "cnn-rail": Entry(_conv("Signal"), (2,), "1-D, 2 conv + 2 FC (AdaCT-DPFL's rail network)"),
    "char-lstm": Entry(_lstm, (1,), "embedding 8, 2 LSTM layers of 256, next character (LEAF)"),
    "char-lstm-all": Entry(_lstm_all, (1,), "the same, the next character at every position (DP-FedACN)"),
    "mlp": Entry(_standardised("table_mlp"), (1,), "tables: asinh of each column, 64 hidden units with tanh"),
    "wide-deep": Entry(
        _standardised("table_wide_deep"),
        (1,),
        "tables: asinh of each column, linear softmax plus 128 hidden units with tanh",
    ),
    "wide-fourier": Entry(
        _standardised("table_wide_fourier"),
        (1,),
        "tables: asinh of each column, linear softmax plus 128 cosines (Rahimi and Recht 2007)",
    ),
    "table-linear": Entry(_standardised("table_linear"), (1,), "tables: asinh of each column, linear softmax"),
    "std-linear": Entry(_standardised("std_linear"), (1, 2, 3, 4), "each record standardised, linear softmax"),
    "std-mlp": Entry(_standardised("std_mlp"), (1, 2, 3, 4), "each record standardised, 64 hidden units with tanh"),
    "std-cnn": Entry(_standardised("std_cnn"), (3,), "each picture standardised, then cnn-tanh"),
    "std-cnn-1d": Entry(_standardised("std_cnn_1d"), (2,), "each signal standardised, then cnn-rail"),
    "resnet18": Entry(_resnet, (3,), "ResNet-18 with GroupNorm (He et al. 2016; Wu and He 2018)"),
    "head": Entry(
        _conv("Head"), (1,), "linear softmax without a bias, starts at zero; for features (prepare features)"
    ),
}


def names() -> list[str]:
    """Every network that `build` knows."""
    return list(MODELS)


# The networks that the papers train, by method and data set.
_PAPERS = {
    ("adact", "cifar10"): "cnn-cifar",
    ("adact", "rail"): "cnn-rail",
    ("adact", "rail-simulated"): "cnn-rail",
    ("dp-fedacn", "mnist"): "cnn-mnist",
    ("dp-fedacn", "cifar10"): "cnn-cifar-acn",
    ("dp-fedacn", "cifar100"): "cnn-cifar-acn",
    ("dp-fedacn", "shakespeare-speeches"): "char-lstm-all",
    ("fedmap", "fashion-mnist"): "lenet",
    ("fedmap", "cifar10"): "resnet18",
    ("fedmap", "svhn"): "resnet18",
    ("noise-gamma", "mnist"): "cnn-gamma",
}


def paper_network(method: str, data: str) -> str | None:
    """The network that a method's paper trains on a data set; None where it has none."""
    return _PAPERS.get((method, data.lower().replace("cifar-", "cifar")))


def build(name: str, shape: tuple[int, ...], classes: int, seed: int = 0) -> nn.Module:
    """Make a network for examples of `shape` (without the batch) and `classes` classes, initialised from `seed`.

    >>> net = build("cnn-cifar", (3, 32, 32), 10, seed=1)
    >>> sum(p.numel() for p in net.parameters())
    343946
    """
    whole(classes=classes)
    whole(least=0, seed=seed)
    make, shape = _maker(name), tuple(int(n) for n in shape)
    if name in MODELS and len(shape) not in MODELS[name].dims:
        wanted = " or ".join(map(str, MODELS[name].dims))
        raise BadInput(f"model {name!r} takes examples of {wanted} dimensions, not of shape {shape}.")

    import torch

    generator = torch.random.default_generator
    kept = generator.get_state()
    try:
        generator.manual_seed(seed)
        made = make(shape, classes)
    finally:
        generator.set_state(kept)
    if not isinstance(made, torch.nn.Module):
        raise BadInput(f"model {name!r} made a {type(made).__name__}; it must return a torch.nn.Module.")
    return made


def _maker(name: str) -> Callable[[tuple[int, ...], int], nn.Module]:
    """A network of the catalogue, or a function of your own (shape, classes) -> module, named ``module:function``."""
    if name in MODELS:
        return MODELS[name].make
    if own_code.is_reference(name):
        found = own_code.load(name, "model")
        if not callable(found):
            raise BadInput(f"model {name!r} is no function of (shape, classes); name one that makes a module.")
        return found
    if name.startswith("<"):
        raise BadInput(
            f"the model {name!r} was handed over in Python and cannot be built from its name; name one, or hand it over."
        )
    raise BadInput(
        f"there is no model {name!r}: choose one of {', '.join(MODELS)}, or name your own as module:function."
    )
