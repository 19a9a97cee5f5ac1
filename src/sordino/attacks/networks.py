"""Small networks that attacks learn with: one training loop, seeded, with the best state on held-out records kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor, nn

Losses = Callable[["Tensor", "Tensor"], "Tensor"]  # outputs, targets -> one number


@dataclass(frozen=True)
class Lesson:
    """How a network is trained."""

    lr: float
    epochs: int
    batch: int
    weight_decay: float = 0.0
    held_out: float = 0.15  # share of the records by which the best epoch is chosen; 0: the last epoch


def learn(
    build: Callable[[], nn.Module],
    inputs: Sequence[np.ndarray],
    targets: np.ndarray,
    loss: Losses,
    lesson: Lesson,
    rng: np.random.Generator,
    adamw: bool = False,
) -> nn.Module:
    """A trained network. `inputs` are arrays with one row per record, handed to the network one by one.

    One thread: layers this small gain nothing from more, and the result is the same on every machine.
    """
    import torch

    from sordino.clients.threads import one_thread

    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**62)))  # layers draw their weights and dropout from the global generator
        network = build()
        tensors = [torch.from_numpy(np.asarray(part)) for part in inputs]
        wanted = torch.from_numpy(np.asarray(targets))
        order = rng.permutation(len(wanted))
        held = torch.from_numpy(order[: int(len(order) * lesson.held_out)])
        rest = order[len(held) :]
        batch = min(lesson.batch, max(8, len(rest) // 10))  # few records still make several steps an epoch
        make = torch.optim.AdamW if adamw else torch.optim.Adam
        optimizer = make(network.parameters(), lr=lesson.lr, weight_decay=lesson.weight_decay)
        best, state = np.inf, None
        for _ in range(lesson.epochs):
            network.train()
            for rows in torch.from_numpy(rng.permutation(rest)).split(batch):
                optimizer.zero_grad()
                loss(network(*(part[rows] for part in tensors)), wanted[rows]).backward()
                torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
                optimizer.step()
            if len(held):
                network.eval()
                with torch.no_grad():
                    now = float(loss(network(*(part[held] for part in tensors)), wanted[held]))
                if now < best:
                    best, state = now, {k: v.clone() for k, v in network.state_dict().items()}
        if state is not None:
            network.load_state_dict(state)
        return network.eval()


def answer(network: nn.Module, inputs: Sequence[np.ndarray], batch: int = 500) -> np.ndarray:
    """The network's outputs, one row per record."""
    import torch

    parts = []
    with torch.no_grad():
        for start in range(0, len(inputs[0]), batch):
            here = [torch.from_numpy(np.asarray(part[start : start + batch])) for part in inputs]
            parts.append(network(*here).numpy())
    return np.concatenate(parts).astype(np.float64)


def member_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy of one logit."""
    from torch.nn import functional

    return functional.binary_cross_entropy_with_logits(outputs.squeeze(-1), targets)


def perceptron(width: int, hidden: Sequence[int], outputs: int = 1) -> nn.Module:
    """Dense layers with ReLU, Xavier weights."""
    from torch import nn

    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU()]
        width = size
    layers.append(nn.Linear(width, outputs))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


@dataclass(frozen=True, eq=False)
class Scale:
    """Centre and spread of columns, from the attacker's own records."""

    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def of(cls, table: np.ndarray) -> Scale:
        """The mean and the spread of each column of a table."""
        return cls(table.mean(0), table.std(0) + 1e-8)

    def __call__(self, table: np.ndarray) -> np.ndarray:
        return np.clip((table - self.mean) / self.std, -8, 8).astype(np.float32)
