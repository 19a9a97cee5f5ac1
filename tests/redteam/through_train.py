"""Attacks through `sordino.train`: two federations that differ in one record, many runs of each, a lower bound on epsilon.

    python tests/redteam/through_train.py [--runs 400]

Each attack is a model, a loss and a record with which, once, one record moved the released sum by more than the bound. The
attacker knows everything but which of two records is there (relation replace-one) and tests by the projection of the trained
weights on the difference that it expects: from the library's own gradients, and from those of a plain implementation that
runs the batch as a whole, which is where the holes were. Every line shows the epsilon that was printed, the bound from below
that the attack reached, and how far the record would move the sum in the plain implementation (the control: above 2 C, or
the attack shows nothing).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sordino import EngineOptions, Federation, Plan, train
from sordino.audit.thresholds import split
from sordino.errors import SordinoError
from sordino.gradients.flat import Flat as FlatModel
from sordino.gradients.per_example import PerExample
from sordino.privacy import bounds

HERE = EngineOptions("in-process", evaluate_every=10_000)
CONFIDENCE = 0.95


def _noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(seed)).standard_normal(shape, np.float32)


@dataclass(frozen=True)
class Attack:
    """A model, a loss, a crowd of records, and two records that may take the first place."""

    name: str
    make: Callable[[], nn.Module]
    crowd: tuple[np.ndarray, np.ndarray]
    one: tuple[np.ndarray, int]
    other: tuple[np.ndarray, int]
    loss: Callable[[Tensor, Tensor], Tensor] | None = None
    settings: dict[str, object] = field(default_factory=dict)
    length: Callable[[Tensor, Tensor], float] | None = None  # of a gradient, as the plain implementation takes it

    def data(self, target: tuple[np.ndarray, int]) -> tuple[np.ndarray, np.ndarray]:
        x, y = self.crowd
        return np.concatenate([target[0][None], x]), np.concatenate([[target[1]], y])

    def federation(self, target: tuple[np.ndarray, int]) -> Federation:
        return Federation.from_arrays([self.data(target)], classes=3, name="attacked")

    def plan(self, seed: int) -> Plan:
        base: dict[str, object] = {
            "data": "attacked", "clients": 1, "method": "dp-fedavg", "unit": "example", "observer": "public",
            "relation": "replace-one", "sampling": "none", "batch_size": 64, "rounds": 1, "multiplier": 20.0,
            "bound": 0.1, "lr": 1.0, "seed": seed,
        }  # fmt: skip
        return Plan.from_json(base | self.settings)

    # ---- what the attacker expects ---------------------------------------------------------------------------------------

    def sum(self, target: tuple[np.ndarray, int]) -> np.ndarray:
        """The clipped sum by the library."""
        x, y = self.data(target)
        engine = PerExample(self.make(), self.loss or "cross-entropy")
        return engine.clipped_sum(x, y, bounds.Flat(self.plan(0).bound))[0]

    def naive(self, target: tuple[np.ndarray, int]) -> np.ndarray:
        """The clipped sum of one batch, run as a whole: what mixes records mixes them here."""
        x, y = (torch.from_numpy(a) for a in self.data(target))
        flat, total, bound = FlatModel(self.make()), np.zeros(1), bounds.Flat(self.plan(0).bound)
        out = flat.model(x)
        losses = (self.loss or _cross_entropy)(out, y)
        for i in range(len(x)):
            parts = torch.autograd.grad(losses[i], flat.parameters, retain_graph=True)
            g = torch.cat([p.flatten() for p in parts]).double().numpy()
            norm = float(np.linalg.norm(g)) if self.length is None else self.length(x[i], out[i].detach())
            total = total + g * bound.factors(np.array([norm]))[0]
        return total

    @property
    def control(self) -> float:
        """How far the record moves the sum of the plain implementation, in bounds."""
        return float(np.linalg.norm(self.naive(self.one) - self.naive(self.other)) / self.plan(0).bound)

    # ---- runs --------------------------------------------------------------------------------------------------------------

    def run(self, target: tuple[np.ndarray, int], seed: int) -> tuple[np.ndarray, float]:
        """The trained weights and the epsilon that is printed."""
        with tempfile.TemporaryDirectory() as folder:
            result = train(
                self.make(), self.federation(target), self.plan(seed), out=Path(folder) / "run", options=HERE,
                loss=self.loss,
            )  # fmt: skip
        return np.concatenate([p.detach().numpy().ravel() for p in result.model.parameters()]), result.epsilon

    def lower(self, runs: int) -> tuple[float, float]:
        """Printed epsilon, and the lower bound from so many runs of each world."""
        ways = []
        for expected in (self.sum, self.naive):
            way = expected(self.one) - expected(self.other)
            ways.append(way / max(np.linalg.norm(way), 1e-30))
        worlds, printed = [], 0.0
        for number, target in enumerate((self.other, self.one)):
            rows = []
            for i in range(runs):
                weights, printed = self.run(target, seed=(number << 20) + i)
                rows.append([-float(weights @ way) for way in ways])  # training goes against the gradient
            worlds.append(np.array(rows))
        return printed, split(worlds[0], worlds[1], self.plan(0).delta, CONFIDENCE, gdp=False).epsilon


def _cross_entropy(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y, reduction="none")


# ---- records that reach others through the loss ----------------------------------------------------------------------------


def balanced(out: Tensor, y: Tensor) -> Tensor:
    """Classes weigh by their share of the batch: one record of a rare class changes the weight of another."""
    share = F.one_hot(y, 3).float().mean(0)[y]
    return F.cross_entropy(out, y, reduction="none") / share


def flagged(out: Tensor, y: Tensor) -> Tensor:
    """One record of class 2 turns every other loss round."""
    sign = 1.0 - 2.0 * (y == 2).any().float()
    return sign * F.cross_entropy(out, y, reduction="none")


# ---- and through the model ---------------------------------------------------------------------------------------------------


class Centred(nn.Module):
    """Subtracts the mean of the batch, behind a layer that starts at zero and hides it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate, self.out = nn.Linear(9, 9), nn.Linear(9, 9, bias=False), nn.Linear(9, 3)
        with torch.no_grad():
            self.gate.weight.zero_()

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.out(x + self.gate(x - x.mean(0)))


# ---- norms that are too small ---------------------------------------------------------------------------------------------


class Signed(nn.Module):
    """A dense layer over four positions that are added up with signs: positions of a record can nearly cancel."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(256, 3)
        self.register_buffer("signs", torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None])

    def forward(self, x: Tensor) -> Tensor:
        return (self.dense(x) * self.signs).sum(1)


def gram_length(a: Tensor, out: Tensor) -> float:
    """The length of a gradient of `Signed` for class 2 by a Gram product in single precision: terms of 10^7 that cancel."""
    error = torch.softmax(out, 0) - F.one_hot(torch.tensor(2), 3)
    g = torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None] * error
    product = ((a @ a.t()) * (g @ g.t())).sum().clamp_min(0)  # the bias cancels as it is
    return float(product.sqrt())


def _seeded(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        torch.manual_seed(0)
        return make()

    return made


def _plain() -> nn.Module:
    return nn.Sequential(nn.Linear(9, 10), nn.ReLU(), nn.Linear(10, 3))


def attacks() -> list[Attack]:
    x = 0.01 * _noise(63, 9)
    labels = np.arange(63) % 2
    same = np.tile(_noise(1, 9, seed=2), (63, 1))
    two = (_noise(9, seed=1), 2)
    few = 0.01 * _noise(15, 4, 256, seed=3)
    return [
        Attack("class-balanced loss", _seeded(_zero), (same, labels), (-same[0], 1), (-same[0], 0), balanced,
               {"bound": 4.7}),
        Attack("loss with a flag", _seeded(_plain), (x, labels), two, (two[0], 1), flagged),
        Attack("mean of the batch behind a gate", _seeded(Centred), (x, labels), (1e4 * two[0], 0), (two[0], 0)),
        Attack("positions that cancel", _seeded(Signed), (few, labels[:15]), (_cancelling(), 2), (0 * few[0], 2),
               length=gram_length),
        Attack("positions that cancel, in groups", _seeded(Signed), (few, labels[:15]), (_cancelling(), 2),
               (0 * few[0], 2), settings={"method": "dp-fedggc"}, length=gram_length),
    ]  # fmt: skip


def _zero() -> nn.Module:
    model = nn.Linear(9, 3)
    nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
    return model


def _cancelling() -> np.ndarray:
    """A record whose positions nearly cancel, found by a search for the most understated length."""
    best, found = 0.0, np.zeros((4, 256), np.float32)
    for seed in range(40):
        base = 300 * _noise(1, 256, seed=seed)
        record = np.repeat(base, 4, 0) + 0.02 * _noise(4, 256, seed=1000 + seed)
        record = record.astype(np.float32)
        signs = np.array([1.0, -1.0, 1.0, -1.0])[:, None]
        true = np.linalg.norm((record.astype(np.float64) * signs).sum(0))
        said = gram_length(torch.from_numpy(record), torch.zeros(3))
        ratio = true / max(said, 1e-2)
        if ratio > best:
            best, found = ratio, record
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400, help="of each world")
    runs = parser.parse_args().runs
    torch.set_num_threads(1)
    for attack in attacks():
        try:
            printed, lower = attack.lower(runs)
            verdict = f"printed {printed:.3g}, lower bound {lower:.3g}"
        except SordinoError as refusal:
            verdict = f"refused: {refusal}"
        print(f"{attack.name}: {verdict}; plain implementation {attack.control:.3g} C", flush=True)


if __name__ == "__main__":
    main()
